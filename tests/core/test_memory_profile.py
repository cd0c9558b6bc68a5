"""The step that a GPU's memory is measured with runs, and is as large as steps may be."""

import gc
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated_gpu import emulated_gpu
from one_head import with_one_head
from random_whisper import save_random_whisper
from transformers import WhisperConfig

from transept import Engine, SamplingParams
from transept.core.config import SchedulerConfig
from transept.core.execution import decode_graphs, decoder_runner, encoder_graphs, memory_profile
from transept.core.execution.kv_cache import KVCache, block_bytes
from transept.core.execution.memory_profile import largest_step
from transept.core.execution.model_runner import ModelRunner
from transept.core.model import ForConditionalGeneration
from transept.core.model_shape import ModelShape
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import StepInput
from transept.errors import CapacityError, ParameterError, PluginError
from transept.plugins.whisper.model import WhisperForConditionalGeneration

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("whisper"))


@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p", "whisper"])
def test_the_largest_step_uses_up_its_budgets_and_runs(name: str, whisper: Path) -> None:
    engine = Engine(
        whisper if name == "whisper" else CMUDICT / name,
        device="cpu",
        block_size=16,
        max_num_seqs=3,
        max_decoder_tokens=30,
        max_encoder_tokens=100,
    )
    limits = engine.scheduler.config
    runner = engine.executor.worker.runner
    features = type(runner.model).longest_features(engine.model_config)
    step = largest_step(engine.shape, limits, 16, features)
    encoder = [encode.inputs.num_tokens for encode in step.encodes]
    longest = min(engine.shape.max_source_positions or 100, 100)
    assert encoder == [longest] * min(3, 100 // longest)
    assert sum(data.num_tokens for group in step.decodes for data in group.seq_data.values()) == 30

    one_block = KVCache(engine.shape, 16, 1, 0, torch.float32, runner.device)
    output = ModelRunner(runner.spec, runner.model, one_block, 16, runner.sampler).issue(step).collect()
    assert len(output.sampled) == 3


def step_of(engine: Engine) -> StepInput:
    """The largest."""
    features = type(engine.executor.worker.runner.model).longest_features(engine.model_config)
    return largest_step(engine.shape, engine.scheduler.config, engine.config.block_size, features)


def test_what_an_encoder_is_given_beside_text_fits_the_largest_step() -> None:
    shape = ModelShape(2, 4, 16, vocab_size=100, max_source_positions=700, max_target_positions=64)
    limits = SchedulerConfig(max_num_seqs=3, max_decoder_tokens=30, max_encoder_tokens=500)
    step = largest_step(shape, limits, 16, {}, lambda token_ids: {"marks": torch.ones(len(token_ids))})
    (encoder,) = (encode.inputs for encode in step.encodes)
    assert len(encoder.token_ids) == len(encoder.features["marks"]) == encoder.num_tokens == 500


def test_an_encoder_without_text_or_features_is_told_what_to_do(whisper: Path) -> None:
    class SilentPlugin(WhisperForConditionalGeneration):
        @classmethod
        def longest_features(cls, config: Any) -> dict[str, torch.Tensor]:
            return ForConditionalGeneration.longest_features.__func__(cls, config)

    with pytest.raises(PluginError, match=r"SilentPlugin .* kv_cache_bytes"):
        SilentPlugin.longest_features(WhisperConfig.from_pretrained(whisper))


@pytest.mark.parametrize("share", [0, 1.5, True, "0.9"])
def test_a_share_of_the_memory_is_checked(share: object) -> None:
    with pytest.raises(ParameterError, match=r"gpu_memory_utilization must be a number above 0 and at most 1, not"):
        Engine(CMUDICT / "bart-g2p", gpu_memory_utilization=share)


@needs_gpu
def test_the_cache_takes_the_share_of_the_memory_that_it_may() -> None:
    engine = Engine(CMUDICT / "bart-g2p", device="cuda", gpu_memory_utilization=0.5)
    size = block_bytes(engine.shape, engine.config.block_size, getattr(torch, engine.config.dtype))
    total = torch.cuda.mem_get_info()[1]
    assert 0.4 * total < engine.executor.worker.num_device_blocks * size < 0.5 * total
    assert engine.generate("transept", SamplingParams(temperature=0.0, max_tokens=9))[0].outputs[0].token_ids


@pytest.mark.skipif(find_spec("triton") is None or torch.cuda.is_available(), reason="emulates a GPU by Triton")
@pytest.mark.parametrize("name", ["bart-g2p", pytest.param("whisper", marks=pytest.mark.slow)])
def test_recordings_have_room_beside_the_cache(
    name: str, whisper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many shapes are recorded. On this GPU no recording uses another's memory again."""
    for module, attribute, value in (
        (decoder_runner, "ROWS_OF_FEW", 4),
        (decode_graphs, "MOST_RECORDINGS", 4),
        (encoder_graphs, "MOST_PASSES", 4),
        (encoder_graphs, "MOST_TEXT_TOKENS", 128),
        (memory_profile, "MOST_TEXT_TOKENS", 128),
    ):
        monkeypatch.setattr(module, attribute, value)
    directory = whisper if name == "whisper" else with_one_head(name, tmp_path)
    with emulated_gpu() as gpu, torch.inference_mode():
        gpu.memory = 64 << 20
        limits = {"block_size": 16, "max_num_seqs": 2, "max_encoder_tokens": 128, "max_decoder_tokens": 8}
        engine = Engine(directory, device="cuda", dtype="float32", gpu_memory_utilization=0.8, **limits)
        runner = engine.executor.worker.runner
        encoder, decoder = runner.encoder.graphs, runner.decoder.graphs
        for shape in [(4, 4, 4), (4, 2, 4), (2, 4, 2), (2, 1, 4), (1, 1, 4)]:
            decoder._serving(shape)
        largest = [each.inputs for each in step_of(engine).encodes]
        for inputs in (largest, [EncoderInputs(None, [0] * 9, 9)]):
            if name == "bart-g2p" or inputs is largest:
                encoder.record(inputs)
        assert not decoder.failed_shapes
        assert len(decoder._recordings) == 4
        assert all(encoder._recordings.values())
        gc.collect()  # of what Triton's interpreter keeps in cycles
        assert 0.75 * gpu.memory < gpu.used <= 0.8 * gpu.memory


@needs_gpu
def test_too_small_a_share_says_what_takes_the_memory() -> None:
    with pytest.raises(CapacityError, match="nothing is left for the cache"):
        Engine(CMUDICT / "bart-g2p", device="cuda", gpu_memory_utilization=1e-5)
