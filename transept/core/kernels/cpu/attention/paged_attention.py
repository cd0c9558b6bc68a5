"""Attention of few queries over a paged cache, whose keys and values are read once, in the order of memory.

Called by the `torch` backend for steps that decode. PyTorch's attention computes one head after the other, and skips
over the other heads of each token; this kernel reads all heads of a token together. Keys are cut into pieces of a fixed
length, each with its own softmax, which are joined afterwards. So cores also share the work of one sequence, and a
result does not depend on the other sequences of the step. A key whose bias is minus infinity has no weight; a query
without any other key gets zeros. docs/notes/attention.md has the figures.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

from torch import Tensor

from transept.core.kernels.cpu.attention.kv_cache import KVCacheStruct
from transept.core.kernels.cpu.library import Float, Int, KernelFunction, Pointer

MOST_QUERIES = 5  # in a sequence; for more queries, matrix products are faster
PIECE_KEYS = 128
HIDDEN = -1e38  # the bias of a masked key; also its score, because floats near it are 1e31 apart

_PIECE_FIELDS, _ROW_FIELDS = 6, 3  # number of fields of Piece and RowPieces in attention/paged_attention.h

_attend = KernelFunction("transept_attend_paged", Pointer, Int, Pointer, Pointer, Float, Pointer, Pointer)


class WorkStruct(ctypes.Structure):
    """PagedWork of attention/paged_attention.h."""

    _fields_ = (
        ("block_size", Int),
        ("blocks", Pointer),
        ("pieces", Pointer),
        ("num_pieces", Int),
        ("rows", Pointer),
        ("num_rows", Int),
        ("most_queries", Int),
    )


class PagedWork:
    """The keys that each query attends to, for every layer of a step.

    block_tables, lengths: of some sequences, lengths in keys. rows: first and last + 1 query row of each sequence.

    num_slots: the slots that the cache must have for these blocks. num_rows: rows that the queries must have.
    most_keys: the longest sequence. `check` compares these with the arrays of a call.

    Raises IndexError for a table that is too short for its length, a length below 1, and a negative block or row.
    """

    def __init__(
        self,
        block_size: int,
        block_tables: Sequence[Sequence[int]],
        lengths: Sequence[int],
        rows: Sequence[tuple[int, int]],
    ) -> None:
        blocks: list[int] = []
        pieces: list[int] = []
        by_row: list[int] = []
        lowest = highest = most_queries = 0
        for table, length, (first, last) in zip(block_tables, lengths, rows, strict=True):
            if not 0 < length <= len(table) * block_size or not 0 <= first <= last:
                raise IndexError(
                    f"rows {first} to {last} attend to {length} keys in {len(table)} blocks of {block_size} slots"
                )
            lowest, highest = min(lowest, min(table)), max(highest, max(table))
            most_queries = max(most_queries, last - first)
            start, before = len(blocks), len(pieces) // _PIECE_FIELDS
            blocks += table
            for key in range(0, length, PIECE_KEYS):
                pieces += (start, key, min(key + PIECE_KEYS, length), first, last, length)
            for row in range(first, last):
                by_row += (row, before, len(pieces) // _PIECE_FIELDS)
        if lowest < 0:
            raise IndexError(f"a block table holds block {lowest}")
        self.num_slots = (highest + 1) * block_size if blocks else 0
        self.num_rows = max((last for _, last in rows), default=0)
        self.most_keys = max(lengths, default=0)
        self._arrays = [array("q", numbers) for numbers in (blocks, pieces, by_row)]
        of_blocks, of_pieces, of_rows = (numbers.buffer_info()[0] for numbers in self._arrays)
        num_pieces, num_rows = len(pieces) // _PIECE_FIELDS, len(by_row) // _ROW_FIELDS
        self.struct = WorkStruct(block_size, of_blocks, of_pieces, num_pieces, of_rows, num_rows, most_queries)

    def __bool__(self) -> bool:
        return bool(self.struct.num_pieces)

    def check(self, num_rows: int, num_slots: int, bias: DistanceBias) -> None:
        """Raise IndexError if the work reaches beyond the query's rows, the cache or the bias's distances."""
        if self.num_rows > num_rows or self.num_slots > num_slots:
            raise IndexError(
                f"the work needs {self.num_rows} rows and {self.num_slots} slots, but there are {num_rows} rows and "
                f"{num_slots} slots"
            )
        if bias.table is not None and self.most_keys > bias.table.shape[1]:
            raise IndexError(f"the bias reaches {bias.table.shape[1]} keys back, but a sequence has {self.most_keys}")


class BiasStruct(ctypes.Structure):
    """DistanceBias of attention/paged_attention.h."""

    _fields_ = (("values", Pointer), ("distances", Int))


class DistanceBias:
    """A bias that is added to scores, by the distance of query and key. table=None: no bias.

    table: float32 [heads, distances], the last column for a sequence's last key. Minus infinity becomes HIDDEN, so that
    differences of biases are numbers.
    """

    def __init__(self, table: Tensor | None = None) -> None:
        self.table, self.struct = None, BiasStruct(None, 0)
        if table is not None:
            self.table = table.clamp(min=HIDDEN).contiguous()
            self.struct = BiasStruct(self.table.data_ptr(), table.shape[1])

    def check(self, num_heads: int) -> None:
        """Raise IndexError if it is for fewer heads."""
        if self.table is not None and len(self.table) < num_heads:
            raise IndexError(f"the bias is for {len(self.table)} heads, but there are {num_heads}")


NO_BIAS = DistanceBias()


def attend(query: Tensor, cache: Tensor, work: PagedWork, scale: float, bias: DistanceBias, out: Tensor) -> None:
    """Compute attention for the query rows in ``work``. Every query attends to all keys of its sequence.

    query, out: [num_tokens, heads, dim]. cache: [keys and values, slots, kv_heads, dim]. All are float32 on the CPU;
    the cache may be float16. Raises IndexError if the work reaches beyond them, and for shapes that do not fit.
    """
    if not work:
        return
    keys, heads = KVCacheStruct(cache), query.shape[1]
    if query.shape[1:] != out.shape[1:] or query.shape[2] != keys.dim or heads % keys.kv_heads:
        raise IndexError(f"queries {[*query.shape]}, output {[*out.shape]} and cache {[*cache.shape]} do not fit")
    if not out.is_contiguous():
        raise IndexError("the output has gaps")
    work.check(min(len(query), len(out)), keys.slots, bias)
    bias.check(heads)
    query = query.contiguous()
    _attend(
        query.data_ptr(),
        heads,
        ctypes.addressof(keys),
        ctypes.addressof(work.struct),
        scale,
        ctypes.addressof(bias.struct),
        out.data_ptr(),
    )
