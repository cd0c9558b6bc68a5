"""Real weights, real speech: the same tokens, however little memory there is."""

from pathlib import Path

import pytest
from whisper_reference import windows

from transept import Engine, SamplingParams

PARAMS = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=3 * 64)  # long enough to outgrow the pool


@pytest.fixture(scope="module")
def prompts(speech_dir: Path) -> list[dict]:
    """The first windows of the LibriVox clips."""
    files = sorted((speech_dir / "librivox").glob("*.flac"))
    waveforms = [window for file in files for window in windows(file)]
    return [{"multi_modal_data": {"audio": (waveform, 16_000)}} for waveform in waveforms[:4]]


@pytest.fixture(scope="module")
def expected(tiny_en_dir: Path, prompts: list[dict]) -> list[list[int]]:
    """The tokens where there is memory for all."""
    return [output.outputs[0].token_ids for output in Engine(tiny_en_dir).generate(prompts, PARAMS)]


SWAP = 1 << 30  # bytes
IN_EVERY_RUN = [(8, 0), (16, SWAP), (64, 0)]  # block size and bytes


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("block_size", "swap_bytes"),
    [
        pytest.param(size, swap, marks=() if (size, swap) in IN_EVERY_RUN else pytest.mark.slow)
        for size in (8, 16, 64)
        for swap in (0, SWAP)
    ],
)
def test_greedy_tokens_under_preemption(
    tiny_en_dir: Path, prompts: list[dict], expected: list[list[int]], block_size: int, swap_bytes: int
) -> None:
    slots = 3 * 1536 + 3 * 128  # three requests start, but cannot all finish
    block_bytes = 2 * 4 * 384 * 4  # keys and values, layers, width, float32: of one slot
    engine = Engine(tiny_en_dir, block_size=block_size, kv_cache_bytes=slots * block_bytes, swap_bytes=swap_bytes)
    for index, each in enumerate(prompts):
        engine.add_request(str(index), each, PARAMS)
    finished, preempted = {}, set()
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.block_manager.check_integrity()
        preempted |= {group.request_id for group in engine.scheduler.queue if group.seqs[0].output_token_ids}
    assert preempted
    assert [finished[str(index)].outputs[0].token_ids for index in range(len(prompts))] == expected
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
