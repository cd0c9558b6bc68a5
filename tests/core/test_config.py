"""EngineConfig checks its values when it is made, before a checkpoint is looked for."""

import os

import pytest

from transept import EngineConfig
from transept.errors import ParameterError
from transept.options import declared

INTEGERS = {name: each for name, each in declared(EngineConfig).items() if int in each.types}

OPTIONAL = ("threads", "kv_cache_bytes", "max_decoder_tokens", "max_encoder_tokens", "encoder_layers_per_step")


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_another_type_or_out_of_range(name):
    lowest, highest = int(INTEGERS[name].option.ge or 0), int(INTEGERS[name].option.le or 0)
    for value in (lowest - 1, -(2**70), 2**70, highest + 1, True, False, 1.0, 4.5, float("nan"), "8", [8], b"8"):
        with pytest.raises(ParameterError, match=f"^{name} must be (an integer of at least|at most) "):
            EngineConfig(model="org/name", **{name: value})


@pytest.mark.parametrize("name", INTEGERS)
def test_none_is_for_options_with_a_default_of_their_own(name):
    if name in OPTIONAL:
        assert getattr(EngineConfig(model="org/name", **{name: None}), name) is None
    else:
        with pytest.raises(ParameterError, match=f"^{name} must be an integer of at least"):
            EngineConfig(model="org/name", **{name: None})


def test_budgets_that_contradict_each_other():
    with pytest.raises(ParameterError, match="max_decoder_tokens=4 is under max_num_seqs=8"):
        EngineConfig(model="org/name", max_num_seqs=8, max_decoder_tokens=4)


def test_budgets_are_as_given():
    limits = EngineConfig(model="org/name", max_num_seqs=1, max_decoder_tokens=1, max_encoder_tokens=1)
    assert limits.scheduler_config(1500, 448).max_encoder_tokens == 1
    assert limits.scheduler_config(1500, 448).max_decoder_tokens == 1


@pytest.mark.parametrize("name", ["kv_cache_bytes", "swap_bytes"])
def test_more_memory_than_the_machine_has(name):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    config = EngineConfig(model="org/name", device="cpu", **{name: memory + 1})
    with pytest.raises(ParameterError, match=f"^{name}={memory + 1} is more than this machine's memory"):
        config.on_this_machine()


def test_a_numbered_cpu_is_the_cpu():
    assert EngineConfig(model="org/name", device="cpu:0").on_this_machine().device == "cpu"


@pytest.mark.parametrize("device", ["cpu:x", "cuda:", "cuda:-1", "cpu:0:0", "cuda:99999999999999999999"])
def test_malformed_device(device):
    with pytest.raises(ParameterError, match="device"):
        EngineConfig(model="org/name", device=device).on_this_machine()


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "float16"])
def test_float16_on_a_cpu_is_told_to_be_slow(dtype, caplog):
    EngineConfig(model="org/name", device="cpu", dtype=dtype).on_this_machine()
    assert ["float16 is slow on a CPU; float32" in message for message in caplog.messages] == [True] * (
        dtype == "float16"
    )


@pytest.mark.parametrize(
    "options", [{"enforce_eager": "no"}, {"plugin": 3}, {"attention_backend": None}, {"model": None}, {"model": 5}]
)
def test_options_of_another_type(options):
    with pytest.raises(ParameterError, match=f"^{next(iter(options))} must be "):
        EngineConfig(**{"model": "org/name", **options})
