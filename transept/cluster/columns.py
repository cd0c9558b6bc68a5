"""Columns of a Ray Data batch, a dict of arrays or an Arrow table, and the columns of results.

Called by `data`. The Arrow types are fixed, so that the files of all batches have the same schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from transept.errors import ParameterError, suggest

Batch: TypeAlias = "Mapping[str, Any] | pa.Table"  # column -> values of its rows

WORD = pa.struct([("start", pa.float64()), ("end", pa.float64()), ("word", pa.string()), ("probability", pa.float64())])
SEGMENT = pa.struct(
    [
        ("id", pa.int64()),
        ("seek", pa.int64()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("text", pa.string()),
        ("tokens", pa.list_(pa.int64())),
        ("temperature", pa.float64()),
        ("avg_logprob", pa.float64()),
        ("compression_ratio", pa.float64()),
        ("no_speech_prob", pa.float64()),
        ("words", pa.list_(WORD)),
        ("token_logprobs", pa.list_(pa.float64())),
        ("language", pa.string()),
        ("speaker", pa.string()),
    ]
)
OPTIONAL_FIELDS = ("words", "token_logprobs", "language", "speaker")  # Segment.to_dict leaves them out if they are None
TEXT_COLUMNS = {"text": pa.string(), "error": pa.string()}
SPEECH_COLUMNS = {
    "text": pa.string(),
    "segments": pa.list_(SEGMENT),
    "language": pa.string(),
    "duration": pa.float64(),
    "warnings": pa.list_(pa.string()),
    "reason": pa.string(),
    "error": pa.string(),
}


def has_column(batch: Batch, name: str) -> bool:
    """Return True if a batch has a column."""
    return name in (batch.column_names if isinstance(batch, pa.Table) else batch)


def values_of(batch: Batch, name: str) -> list[Any]:
    """Return the values of a column as Python objects. Raises ParameterError for an unknown column."""
    if not has_column(batch, name):
        names = list(batch.column_names if isinstance(batch, pa.Table) else batch)
        message = f'the batch has no column "{name}"; it has {", ".join(names)}.{suggest(name, names)}'
        raise ParameterError(message, param="column", value=name)
    column = batch[name]
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return list(column.to_pylist())
    return [value.item() if isinstance(value, np.generic) else value for value in column]


def with_columns(batch: Batch, rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> Batch:
    """Return the batch with new columns, of these types in a table, or of Python objects in a dict of arrays.

    rows: the values of the new columns, one mapping a row; missing values are None. Old columns are replaced.
    """
    if isinstance(batch, pa.Table):
        for name, kind in types.items():
            column = pa.array([row.get(name) for row in rows], kind)
            at = batch.column_names.index(name) if name in batch.column_names else None
            batch = batch.append_column(name, column) if at is None else batch.set_column(at, name, column)
        return batch
    added = {}
    for name in types:
        column = np.empty(len(rows), dtype=object)
        for index, row in enumerate(rows):
            column[index] = row.get(name)
        added[name] = column
    return {**batch, **added}
