"""Decode steps over tensors that stay where they are give what steps made anew give.

With a GPU they are replayed CUDA graphs. Without one the recorded step is computed from the same buffers, by Triton's
interpreter.
"""

import dataclasses
import gc
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from one_head import with_one_head
from replaying import DEVICE, HERE, replaying
from windowed_bart import put_windows

from transept import Engine, SamplingParams
from transept.core.attention.backends.triton import TritonBackend
from transept.core.attention.metadata import AttentionMetadata, DecodeTables
from transept.core.execution import decode_graphs
from transept.core.execution.decode_graphs import DecodeGraphs, Recorder
from transept.core.execution.decoder_runner import DecoderRunner
from transept.plugins.bart.model import BartForConditionalGeneration

CHECKPOINTS = Path(__file__).parents[2] / "data" / "cmudict"
WORDS = ["grapheme", "ox", "transept", "a", "engine"]
# One sequence ends at each step, so that the steps have 5 rows (padded to 8), 4, 3 (padded to 4), 2 and 1.
ONE_AFTER_ANOTHER = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (2, 6, 4, 5, 3)]
pytestmark = [
    pytest.mark.skipif(
        bool(TritonBackend.reasons_against(torch.device(DEVICE), torch.float32, 64, 16)),
        reason="Triton is not installed",
    ),
    pytest.mark.usefixtures("triton_checks_no_overflow"),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained checkpoints, with one head where an interpreter computes them."""
    if DEVICE == "cuda":
        return CHECKPOINTS
    folder = tmp_path_factory.mktemp("one-head")
    for name in ("bart-g2p", "t5-g2p"):
        with_one_head(name, folder / name)
    return folder


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p"])
@pytest.mark.parametrize("beams", [1, 3])
def test_tokens_and_scores_are_those_of_steps_made_anew(name: str, beams: int, checkpoints: Path) -> None:
    params = SamplingParams(temperature=0.0, num_beams=beams, max_tokens=6)
    expected = Engine(checkpoints / name, attention_backend="torch", **HERE).generate(WORDS, params, progress=False)
    engine = replaying(checkpoints / name, max_num_seqs=6)  # some wait, so the steps change their shape
    for ours, theirs in zip(engine.generate(WORDS, params, progress=False), expected, strict=True):
        for one, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert one.token_ids == other.token_ids
            assert one.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-4)
    assert not engine.executor.worker.runner.decoder.graphs.failed_shapes  # no step was made anew after all
    engine.block_manager.check_integrity()


def test_a_sequence_is_the_same_alone_and_beside_others(checkpoints: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=6)
    engine = replaying(checkpoints / "bart-g2p")
    batched = engine.generate(WORDS, params, progress=False)
    for word, output in zip(WORDS, batched, strict=True):
        (alone,) = engine.generate(word, params, progress=False)
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids
        assert alone.outputs[0].cumulative_logprob == pytest.approx(output.outputs[0].cumulative_logprob, abs=1e-5)


def test_what_a_recording_reads_is_there_as_long_as_the_recording(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CUDA graph keeps none of the memory that it reads, as the recorder here keeps nothing of a step."""

    def record(recorder: Recorder, step: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        logits = step()
        return lambda: logits

    def plan_decode(backend: TritonBackend, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        original(backend, metadata, tables)
        work = (metadata.plan.decoder, metadata.plan.cross)
        read.extend(weakref.ref(tensor) for each in work for tensor in (each.pairs, each.query_start, each.lengths))

    read: list[weakref.ref[torch.Tensor]] = []
    original = TritonBackend.plan_decode
    monkeypatch.setattr(Recorder, "__call__", record)
    monkeypatch.setattr(TritonBackend, "plan_decode", plan_decode)
    engine = replaying(checkpoints / "bart-g2p")
    engine.generate(WORDS, SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True), progress=False)
    gc.collect()
    assert read
    assert all(each() is not None for each in read)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "ahead"])
def test_lengths_and_tables_change_between_replays(ahead: bool, checkpoints: Path) -> None:
    counts = (3, 18, 5, 9, 4)  # the longest enters its second block
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in counts]
    engine, fresh = replaying(checkpoints / "t5-g2p", max_num_seqs=3), Engine(checkpoints / "t5-g2p", **HERE)
    # a step is issued before the tokens of the last one are known
    engine.executor.capacity = dataclasses.replace(engine.executor.capacity, asynchronous=ahead)
    ours, theirs = (each.generate(WORDS, params, progress=False) for each in (engine, fresh))
    assert [output.outputs[0].token_ids for output in ours] == [output.outputs[0].token_ids for output in theirs]


def test_tables_that_begin_behind_a_window(checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    put_windows(monkeypatch, window=2, declared=2)
    engine = replaying(checkpoints / "bart-g2p")
    put_windows(monkeypatch, window=2, declared=None)
    fresh = Engine(checkpoints / "bart-g2p", **HERE)
    ours, theirs = (each.generate(WORDS[:2], params, progress=False) for each in (engine, fresh))
    assert [output.outputs[0].token_ids for output in ours] == [output.outputs[0].token_ids for output in theirs]


def test_a_model_that_cannot_be_recorded_decodes_without_graphs(
    caplog: pytest.LogCaptureFixture, checkpoints: Path
) -> None:
    class ReadsLists(BartForConditionalGeneration):
        def decode(self, *inputs: Any) -> torch.Tensor:
            assert inputs[-1].seq_lens
            return super().decode(*inputs)

    engine = replaying(checkpoints / "bart-g2p")
    params = ONE_AFTER_ANOTHER
    expected = engine.generate(WORDS, params, progress=False)
    engine.executor.worker.runner.model.__class__ = ReadsLists
    engine.executor.worker.runner.decoder.graphs = DecodeGraphs(
        engine.executor.worker.runner.model, engine.executor.worker.cache, 16
    )
    ours = engine.generate(WORDS, params, progress=False)
    assert [output.outputs[0].token_ids for output in ours] == [output.outputs[0].token_ids for output in expected]
    failed = engine.executor.worker.runner.decoder.graphs.failed_shapes
    assert {rows for rows, _, _ in failed} == {16, 8, 4, 2, 1}  # with the new requests' prompts, and without
    assert len(caplog.messages) == len(failed)  # once each
    assert all(re.match(r"ReadsLists decodes \d+ .* without CUDA graphs", line) for line in caplog.messages)


@pytest.mark.slow
def test_a_shape_that_cannot_be_recorded_leaves_the_others_their_graphs(
    caplog: pytest.LogCaptureFixture, checkpoints: Path
) -> None:
    attempts = []

    class FailsOnFour(BartForConditionalGeneration):
        def decode(self, input_ids: torch.Tensor, *rest: Any) -> torch.Tensor:
            if len(input_ids) == 4 and rest[-1].num_rows is not None:  # a recording, not a step made anew
                attempts.append(len(input_ids))
                raise RuntimeError("CUDA error: out of memory")
            return super().decode(input_ids, *rest)

    params = ONE_AFTER_ANOTHER
    engine = replaying(checkpoints / "bart-g2p")
    expected = engine.generate(WORDS, params, progress=False)
    graphs = engine.executor.worker.runner.decoder.graphs = DecodeGraphs(
        engine.executor.worker.runner.model, engine.executor.worker.cache, 16
    )
    engine.executor.worker.runner.model.__class__ = FailsOnFour
    ours = engine.generate(WORDS, params, progress=False)
    assert [output.outputs[0].token_ids for output in ours] == [output.outputs[0].token_ids for output in expected]
    assert {rows for rows, _, _ in graphs.failed_shapes} == {4}
    assert {rows for rows, _, _ in graphs._recordings} == {16, 8, 2, 1}
    assert len(attempts) == len(graphs.failed_shapes) == len(caplog.messages)


def test_steps_beyond_the_recordings_are_filled_up_or_launched(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = replaying(checkpoints / "bart-g2p").generate(WORDS, ONE_AFTER_ANOTHER, progress=False)
    monkeypatch.setattr(decode_graphs, "MOST_RECORDINGS", 2)
    engine = replaying(checkpoints / "bart-g2p")
    decoder, launched = engine.executor.worker.runner.decoder, []

    class Counted(DecoderRunner):
        def launch(self, step: Any, last: Any) -> Any:
            launched.append(len(step))
            return super().launch(step, last)

    decoder.__class__ = Counted
    ours = engine.generate(WORDS, ONE_AFTER_ANOTHER, progress=False)
    assert [output.outputs[0].token_ids for output in ours] == [output.outputs[0].token_ids for output in expected]
    assert {rows for rows, _, _ in decoder.graphs._recordings} == {16, 8}
    assert launched == [2, 1]  # steps of 4 rows take part in those of 8


@pytest.mark.slow
@torch.inference_mode()
def test_recordings_share_their_logits(checkpoints: Path) -> None:
    """Of 64 recordings of 256 rows and 50,000 tokens each, logits alone would be 1.6 GB."""
    engine = replaying(checkpoints / "bart-g2p")
    engine.generate(WORDS, ONE_AFTER_ANOTHER, progress=False)
    recordings = engine.executor.worker.runner.decoder.graphs._recordings
    assert len(recordings) == 5
    assert len({recording.replay().untyped_storage().data_ptr() for recording in recordings.values()}) == 1


@pytest.mark.slow
def test_a_cache_in_fp8_says_much_the_same(checkpoints: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=9)
    expected = Engine(checkpoints / "bart-g2p", **HERE).generate(WORDS, params)
    ours = replaying(checkpoints / "bart-g2p", kv_cache_dtype="fp8").generate(WORDS, params)
    same = sum(
        one.outputs[0].token_ids == other.outputs[0].token_ids for one, other in zip(ours, expected, strict=True)
    )
    assert same >= len(WORDS) - 1
