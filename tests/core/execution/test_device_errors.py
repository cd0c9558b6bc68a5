"""An error after which a device computes nothing more ends the engine, with its reason. Others fail their requests."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated_gpu import emulated_gpu
from one_head import with_one_head
from torch import Tensor

from transept import Engine, RequestOutput, SamplingParams
from transept.core.execution.device_errors import is_fatal
from transept.errors import EngineClosedError, EngineDeadError, PluginFailedError
from transept.plugins.bart.model import BartForConditionalGeneration

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing", "choir", "apse"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=9)
ADVICE = "\nCUDA kernel errors might be asynchronously reported at some other API call."
STICKY = [
    torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered{ADVICE}"),
    torch.AcceleratorError(f"CUDA error: device-side assert triggered{ADVICE}"),
    RuntimeError("CUDA error: uncorrectable ECC error encountered"),
    RuntimeError("CUDA driver error: unspecified launch failure"),
    RuntimeError("Triton Error [CUDA]: misaligned address"),
    RuntimeError("NCCL Error 5: NCCL communicator was aborted on rank 1."),
]
OTHERS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.AcceleratorError(f"CUDA error: out of memory{ADVICE}"),
    torch.AcceleratorError(f"CUDA error: invalid configuration argument{ADVICE} an illegal memory access"),
    RuntimeError("no word starts with CUDA error: an illegal memory access was encountered"),
    ValueError("CUDA error: an illegal memory access was encountered"),
]


def named(error: Exception) -> str:
    return f"{type(error).__name__} {error}".partition("\n")[0]


class Broken(BartForConditionalGeneration):
    """A model whose decoder raises."""

    error: Exception
    num_calls = 0

    def decode(self, *inputs: Any) -> Tensor:
        type(self).num_calls += 1
        raise self.error


def breaking(engine: Engine, error: Exception) -> type[Broken]:
    model = engine.executor.worker.runner.model
    model.__class__ = type("Broken", (Broken,), {"error": error})
    return model.__class__


def run(engine: Engine) -> dict[str, RequestOutput]:
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    return finished


@pytest.mark.parametrize("error", STICKY, ids=named)
def test_a_sticky_error_ends_the_engine_and_is_the_reason(error: Exception) -> None:
    engine = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24, max_num_seqs=3)
    for word in WORDS:  # more than take part in the step that fails
        engine.add_request(word, word, GREEDY)
    engine.step()
    model = breaking(engine, error)
    finished = run(engine)
    assert model.num_calls == 1  # no part of the step is computed again
    reason = str(error).partition("\n")[0]
    assert set(finished) == {*WORDS}
    for output in finished.values():
        assert isinstance(output.error, EngineDeadError)
        assert f"{type(error).__name__}: {reason}). Make another engine in a new process" in str(output.error)
    with pytest.raises(EngineDeadError, match="has failed, and the engine has stopped"):
        engine.add_request("late", WORDS[0], GREEDY)
    with pytest.raises(EngineDeadError, match="has failed, and the engine has stopped"):
        engine.generate(WORDS[0], GREEDY)
    engine.block_manager.check_integrity()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
    engine.close()
    with pytest.raises(EngineDeadError):  # still the reason
        engine.executor.check_open()


@pytest.mark.parametrize("error", OTHERS, ids=named)
def test_other_errors_fail_their_requests(error: Exception) -> None:
    engine = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    for word in WORDS:
        engine.add_request(word, word, GREEDY)
    model = breaking(engine, error)
    finished = run(engine)
    assert model.num_calls == 2 * len(WORDS) - 1  # in halves
    assert not [output for output in finished.values() if isinstance(output.error, EngineClosedError)]
    model.decode = BartForConditionalGeneration.decode
    assert engine.generate(WORDS[0], GREEDY)[0].outputs[0].token_ids


def test_lack_of_memory_for_a_whole_batch_is_none_for_its_halves() -> None:
    class SmallDevice(BartForConditionalGeneration):
        def decode(self, input_ids: Tensor, *rest: Any) -> Tensor:
            if len(input_ids) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().decode(input_ids, *rest)

    engine = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    expected = engine.generate(WORDS, GREEDY, progress=False)
    engine.executor.worker.runner.model.__class__ = SmallDevice
    ours = engine.generate(WORDS, GREEDY, progress=False)
    assert [each.outputs[0].token_ids for each in ours] == [each.outputs[0].token_ids for each in expected]


@pytest.mark.skipif(find_spec("triton") is None or torch.cuda.is_available(), reason="emulates a GPU by Triton")
def test_an_error_that_shows_when_tokens_are_fetched_ends_the_engine(tmp_path: Path) -> None:
    """As most do: kernels run after their launch has returned."""
    directory = with_one_head("bart-g2p", tmp_path)
    with emulated_gpu() as gpu:
        engine = Engine(directory, device="cuda", attention_backend="triton", dtype="float32", kv_cache_bytes=1 << 24)
        for word in WORDS[:3]:
            engine.add_request(word, word, GREEDY)
        engine.step()
        gpu.fault = STICKY[0]
        finished = run(engine)
        assert {type(output.error) for output in finished.values()} == {EngineDeadError}
        with pytest.raises(EngineDeadError, match=r"cuda has failed, .*an illegal memory access"):
            engine.add_request("late", WORDS[0], GREEDY)


@pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU")
def test_an_error_that_nobody_knows_is_fatal_where_the_device_answers_no_more() -> None:
    unknown = torch.AcceleratorError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`")
    with emulated_gpu() as gpu:
        assert not is_fatal(unknown, torch.device("cuda", 0))
        gpu.fault = STICKY[0]
        assert is_fatal(unknown, torch.device("cuda", 0))


def test_a_reason_behind_others_counts_and_crosses_to_other_processes() -> None:
    error = PluginFailedError("decode failed")
    error.__cause__ = STICKY[0]
    assert is_fatal(error, torch.device("cpu"))
    error.__cause__ = error
    assert not is_fatal(error, torch.device("cpu"))
    copy = pickle.loads(pickle.dumps(EngineDeadError("the reason")))
    assert (type(copy), str(copy)) == (EngineDeadError, "the reason")
