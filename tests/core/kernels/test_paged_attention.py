"""The kernel of decoding steps against PyTorch's attention, over caches whose other slots are NaN."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS, PIECE_KEYS, DistanceBias, PagedWork, attend

LENGTHS = [1, PIECE_KEYS - 1, PIECE_KEYS, PIECE_KEYS + 1, 1500, 37]
DIM = 16


def paged(block_size: int, kv_heads: int, dim: int = DIM) -> tuple[Tensor, list[list[int]], list[Tensor]]:
    """A cache [2, slots, kv_heads, dim] with the sequences in it, their tables, and each one's [2, length, ...]."""
    counts = [-(-length // block_size) for length in LENGTHS]
    blocks = torch.randperm(sum(counts) + 3).tolist()
    tables = [[blocks.pop() for _ in range(count)] for count in counts]
    cache = torch.full((2, (sum(counts) + 3) * block_size, kv_heads, dim), float("nan"))
    sequences = [torch.randn(2, length, kv_heads, dim) for length in LENGTHS]
    for table, sequence in zip(tables, sequences, strict=True):
        for position in range(sequence.shape[1]):
            cache[:, table[position // block_size] * block_size + position % block_size] = sequence[:, position]
    return cache, tables, sequences


@pytest.mark.sampled(5)
@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 6), (6, 2)])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dim", [DIM, 20, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_it_is_attention(
    block_size: int, heads: int, kv_heads: int, queries: int, with_bias: bool, dim: int, dtype: torch.dtype
) -> None:
    cache, tables, sequences = paged(block_size, kv_heads, dim)
    cache, sequences = cache.to(dtype), [sequence.to(dtype) for sequence in sequences]
    query = torch.randn(len(LENGTHS) * queries, heads, dim)
    rows = [(i * queries, (i + 1) * queries) for i in range(len(LENGTHS))]
    bias = torch.randn(heads, max(LENGTHS) + 5) if with_bias else None
    out = torch.full_like(query, float("nan"))
    attend(query, cache, PagedWork(block_size, tables, LENGTHS, rows), 0.3, DistanceBias(bias), out)
    for (first, last), (keys, values) in zip(rows, sequences, strict=True):
        q, k, v = (x.double().transpose(0, 1) for x in (query[first:last], keys, values))
        mask = None if bias is None else bias[:, None, -len(keys) :].double()
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(out[first:last].double(), expected.transpose(0, 1), rtol=1e-5, atol=1e-5)


def test_a_sequence_has_the_same_bits_alone_and_among_others() -> None:
    cache, tables, _ = paged(16, 4)
    query = torch.randn(len(LENGTHS), 4, DIM)
    rows = [(i, i + 1) for i in range(len(LENGTHS))]
    batched, alone = torch.empty_like(query), torch.empty_like(query)
    attend(query, cache, PagedWork(16, tables, LENGTHS, rows), 1.0, NO_BIAS, batched)
    for i, row in enumerate(rows):
        attend(query, cache, PagedWork(16, [tables[i]], [LENGTHS[i]], [row]), 1.0, NO_BIAS, alone)
    assert torch.equal(batched, alone)


def test_other_rows_are_left_alone() -> None:
    cache, tables, _ = paged(16, 4)
    query = torch.randn(4, 4, DIM)
    out = torch.full_like(query, 7.0)
    attend(query, cache, PagedWork(16, tables[:1], LENGTHS[:1], [(2, 3)]), 1.0, NO_BIAS, out)
    assert (out[[0, 1, 3]] == 7.0).all()
    assert (out[2] != 7.0).all()
    attend(query, cache, PagedWork(16, [], [], []), 1.0, NO_BIAS, out)


HIDDEN = {
    "the first piece": slice(0, PIECE_KEYS),
    "a middle piece": slice(PIECE_KEYS, 2 * PIECE_KEYS),
    "all but the last key": slice(0, -1),
    "every key": slice(None),
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_a_bias_that_hides_whole_pieces(hidden: slice) -> None:
    cache, tables, sequences = paged(16, 2)
    length = max(LENGTHS)
    index = LENGTHS.index(length)
    query, bias = torch.randn(1, 4, DIM), torch.randn(4, length)
    bias[:3, hidden] = float("-inf")  # the last head sees all
    out = torch.full_like(query, float("nan"))
    attend(query, cache, PagedWork(16, tables[index : index + 1], [length], [(0, 1)]), 0.3, DistanceBias(bias), out)
    keys, values = (each.repeat_interleave(2, dim=1).double() for each in sequences[index])
    scores = torch.einsum("hd,khd->hk", query[0].double(), keys) * 0.3 + bias
    expected = torch.einsum("hk,khd->hd", torch.softmax(scores, dim=-1).nan_to_num(0.0), values)
    torch.testing.assert_close(out[0].double(), expected, rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_is_no_hidden_key() -> None:
    cache, tables, _ = paged(16, 4)
    query, bias = torch.full((1, 4, DIM), float("nan")), torch.zeros(4, 37)
    bias[:, :-1] = float("-inf")
    out = torch.zeros_like(query)
    attend(query, cache, PagedWork(16, tables[-1:], LENGTHS[-1:], [(0, 1)]), 1.0, DistanceBias(bias), out)
    assert out.isnan().all()


BAD_WORK = [  # block tables, lengths, query rows
    ([[0, 1]], [33], [(0, 1)]),
    ([[0, 1, -1]], [33], [(0, 1)]),
    ([[0, 1], []], [32, 1], [(0, 1), (1, 2)]),
    ([[0, 1]], [0], [(0, 1)]),
    ([[0, 1]], [20], [(-1, 1)]),
]


@pytest.mark.parametrize(("tables", "lengths", "rows"), BAD_WORK)
def test_tables_that_do_not_hold_their_keys_are_refused(
    tables: list[list[int]], lengths: list[int], rows: list[tuple[int, int]]
) -> None:
    with pytest.raises(IndexError, match=r"blocks? "):
        PagedWork(16, tables, lengths, rows)


@pytest.mark.parametrize(
    ("table", "rows", "distances", "message"),
    [
        ([0, 4], (0, 1), None, "80 slots"),
        ([0, 1], (3, 5), None, "needs 5 rows"),
        ([0, 1], (0, 1), 31, "31 keys back"),
        ([0, 1], (0, 1), -1, "bias is for 1 heads"),
    ],
)
def test_nothing_is_read_beyond_the_cache_the_queries_or_the_bias(
    table: list[int], rows: tuple[int, int], distances: int | None, message: str
) -> None:
    query, cache = torch.zeros(4, 2, DIM), torch.zeros(2, 4 * 16, 2, DIM)
    bias = None if distances is None else torch.zeros(2, distances) if distances > 0 else torch.zeros(1, 64)
    with pytest.raises(IndexError, match=message):
        attend(query, cache, PagedWork(16, [table], [32], [rows]), 1.0, DistanceBias(bias), torch.zeros_like(query))


def test_a_tensor_that_is_no_cache_is_refused() -> None:
    query, work = torch.zeros(1, 2, DIM), PagedWork(16, [[0]], [16], [(0, 1)])
    for cache in (torch.zeros(2, 16, 2, DIM, dtype=torch.bfloat16), torch.zeros(1, 16, 2, DIM), torch.zeros(2, 16, 2)):
        with pytest.raises(IndexError, match="a cache is"):
            attend(query, cache, work, 1.0, NO_BIAS, torch.zeros_like(query))
    with pytest.raises(IndexError, match="do not fit"):
        attend(query, torch.zeros(2, 16, 2, DIM + 1), work, 1.0, NO_BIAS, torch.zeros_like(query))
