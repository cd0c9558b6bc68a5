"""Where every layer of a decoder has a window, cache blocks behind it are given back and nothing else changes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from windowed_bart import put_windows

from transept import Engine, RequestOutput, SamplingParams
from transept.core.execution.kv_cache import block_bytes
from transept.errors import PluginError

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing"]
WINDOW = 6
BLOCK_SIZE = 4
KINDS = [
    SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=5, n=2, max_tokens=25, ignore_eos=True),
    SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=20, ignore_eos=True),
]


@pytest.fixture
def make_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Engine]:
    """Engines whose decoder has windows. declared: what the shape says of them."""

    def make(declared: int | None, cache_bytes: int = 1 << 22, swap_bytes: int = 0) -> Engine:
        put_windows(monkeypatch, WINDOW, declared)
        sizes = {"block_size": BLOCK_SIZE, "kv_cache_bytes": cache_bytes, "swap_bytes": swap_bytes}
        return Engine(CHECKPOINT, dtype="float32", device="cpu", **sizes)

    return make


def run(engine: Engine) -> tuple[list[list[list[int]]], bool]:
    """The tokens of all words by all kinds of requests, in one batch, and whether one that had begun was preempted."""
    done: dict[str, RequestOutput] = {}
    preempted = False
    for index, word in enumerate(WORDS * len(KINDS)):
        engine.add_request(str(index), word, KINDS[index // len(WORDS)])
    while engine.has_unfinished_requests:
        done.update((output.request_id, output) for output in engine.step() if output.finished)
        preempted |= any(group.seqs[0].output_token_ids for group in engine.scheduler.queue)
        engine.block_manager.check_integrity()
    assert not engine.block_manager.block_tables
    return [[one.token_ids for one in done[str(index)].outputs] for index in range(len(done))], preempted


def test_tokens_are_those_of_a_cache_that_keeps_all(make_engine: Callable[..., Engine]) -> None:
    plenty = make_engine(None)
    expected, preempted = run(plenty)
    assert not preempted
    assert run(make_engine(WINDOW)) == (expected, False)
    little = 30 * block_bytes(plenty.shape, BLOCK_SIZE, torch.float32)
    for swap_bytes in (0, 1 << 22):
        assert run(make_engine(WINDOW, little, swap_bytes)) == (expected, True)


def test_a_request_holds_the_blocks_of_its_window(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(WINDOW)
    engine.add_request("one", WORDS[0], KINDS[0])
    held = []
    while engine.has_unfinished_requests:
        engine.step()
        held += [len(table) for table in engine.block_manager.block_tables.values()]
    assert len(held) > 20
    assert max(held) == 1 + -(-WINDOW // BLOCK_SIZE)


def test_a_layer_that_sees_more_is_told(make_engine: Callable[..., Engine]) -> None:
    with pytest.raises(PluginError, match=r"ModelShape\.window is 5, but a layer of the decoder sees 6 tokens"):
        make_engine(WINDOW - 1).generate(WORDS[0], KINDS[0], progress=False)
