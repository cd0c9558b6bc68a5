"""Triton functions of both attention kernels: cache slots, biases, windows and soft caps.

SOFTCAP: scaled scores become SOFTCAP · tanh(scores / SOFTCAP) before a bias is added; 0: no cap. WINDOW:
number of keys that a query sees up to its own, which is the last of them; 0: any number. AFTER: number of keys that it
sees after its own, if it is not causal and has a window.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) is exp2(x · LOG2_E), which is one instruction
LOWEST = tl.constexpr(-1e38)  # below every score, and finite: its difference to itself is a number

# Arguments without specialised kernels: they would be compiled while serving, and are not faster.
ANY = {
    "do_not_specialize": ["table_row", "num_pieces"],
    "do_not_specialize_on_alignment": ["pairs", "tiles", "query_start", "lengths", "tables"],
}


@triton.jit
def cache_slots(columns, seen, table, BLOCK_SIZE: tl.constexpr):
    """Return the cache slots of some columns' keys, int64."""
    blocks = tl.load(table + columns // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
    return blocks * BLOCK_SIZE + columns % BLOCK_SIZE


@triton.jit
def bias_of(bias, positions, columns, mask, bias_row, FARTHEST: tl.constexpr, BIAS: tl.constexpr):
    """Return the biases of keys at columns for queries at positions, which broadcast.

    bias: of one head, by distance from -FARTHEST to FARTHEST, beyond which it stays the same, or by both positions.
    """
    if BIAS == 1:
        distance = tl.minimum(tl.maximum(columns - positions, -FARTHEST), FARTHEST)
        return tl.load(bias + FARTHEST + distance).to(tl.float32)  # in the table wherever the key is
    return tl.load(bias + positions * bias_row + columns, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def first_in_window(position, WINDOW: tl.constexpr):
    """Return the first key in a query's window; negative if the window begins before the sequence."""
    return position - WINDOW + 1


@triton.jit
def capped(scores, SOFTCAP: tl.constexpr):
    """Return SOFTCAP · tanh(scores / SOFTCAP). Scores and the result are multiplied by LOG2_E."""
    # tanh(x) = 1 - 2 / (1 + exp(2x)): at infinity as well
    cap = SOFTCAP * LOG2_E
    return cap - 2.0 * cap / (1.0 + tl.exp2(scores * (2.0 / SOFTCAP)))
