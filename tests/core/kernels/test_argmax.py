"""The highest logit and its log probability against PyTorch in float64."""

import pytest
import torch

from transept.core.kernels.cpu.elementwise.argmax import argmax

INFINITY = float("inf")
PIECE = 4096  # PIECE_LOGITS of argmax.cpp


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("size", [1, 7, PIECE, PIECE + 1, 51_864])
def test_is_argmax_and_log_softmax(rows: int, size: int) -> None:
    torch.manual_seed(0)
    logits = 10 * torch.randn(rows, size)
    logits[:, 1::3] = -INFINITY
    tokens, logprobs = argmax(logits)
    expected = logits.double().log_softmax(dim=-1).max(dim=-1, keepdim=True)
    assert torch.equal(tokens, expected.indices)
    torch.testing.assert_close(logprobs.double(), expected.values, rtol=1e-5, atol=1e-6)


def test_first_of_equals() -> None:
    logits = torch.zeros(2, 3 * PIECE)
    logits[1, [PIECE + 5, 2 * PIECE + 1]] = 1.0
    assert argmax(logits)[0].flatten().tolist() == [0, PIECE + 5]


def test_pieces_and_rows_that_are_forbidden() -> None:
    logits = torch.full((3, 3 * PIECE), -INFINITY)
    logits[0, -1] = -4.0
    logits[1] = float("nan")
    tokens, logprobs = (each.flatten().tolist() for each in argmax(logits))
    assert (tokens[0], logprobs[0]) == (3 * PIECE - 1, 0.0)
    assert all(0 <= token < 3 * PIECE for token in tokens)


def test_a_view() -> None:
    logits = torch.randn(50, 4).t()
    assert torch.equal(argmax(logits)[0], logits.argmax(dim=-1, keepdim=True))
