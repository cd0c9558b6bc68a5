"""Whole models through the triton backend say what they say through the torch backend."""

from pathlib import Path

import pytest
import torch

from transept import Engine, SamplingParams
from transept.core.attention.backends.triton import TritonBackend

CHECKPOINTS = Path(__file__).parent.parent / "data" / "cmudict"
WORDS = ["grapheme", "ox", "transept"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(
        bool(TritonBackend.reasons_against(torch.device(DEVICE), torch.float32, 64, 16)),
        reason="Triton is not installed",
    ),
    pytest.mark.usefixtures("triton_checks_no_overflow"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p"])
@pytest.mark.parametrize("beams", [1, 5])  # more than 4 queries over one cross table go to another kernel
def test_tokens_and_scores_are_those_of_the_torch_backend(name: str, beams: int) -> None:
    params = SamplingParams(temperature=0.0, num_beams=beams, max_tokens=5)
    completions = []
    for backend in ("torch", "triton"):
        engine = Engine(
            CHECKPOINTS / name,
            device=DEVICE,
            dtype="float32",
            attention_backend=backend,
            block_size=16,
            max_num_seqs=6,
            kv_cache_bytes=1 << 26,
        )
        outputs = engine.generate(WORDS, params, progress=False)
        completions.append([completion for output in outputs for completion in output.outputs])
        engine.block_manager.check_integrity()
    for expected, ours in zip(*completions, strict=True):
        assert ours.token_ids == expected.token_ids
        assert ours.cumulative_logprob == pytest.approx(expected.cumulative_logprob, abs=1e-4)
