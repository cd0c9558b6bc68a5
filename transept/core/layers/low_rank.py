"""LowRankUpdate: an update of a weight by two thin matrices, as LoRA adapters have them (Hu et al. 2021).

An update names its weight as a checkpoint has it: one part of a stacked weight, or several, of all ranks. The functions
here find its rows in this rank's parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transept.core.layers.adapters import LowRankPiece
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import WHOLE, StackedParameter
from transept.core.parallel.group import Shard
from transept.errors import CheckpointError


@dataclass(frozen=True)
class LowRankUpdate:
    """``weight += scale * b @ a``.

    name: the module in PEFT's names. target: the weight, see WeightMap. a: [rank, in]. b: [out, rank].
    """

    name: str
    target: str
    a: Tensor
    b: Tensor
    scale: float

    @property
    def parameter(self) -> str:
        """Name of the updated parameter in the model's state_dict."""
        return self.target.partition("#")[0]

    @property
    def rank(self) -> int:
        """Number of rows of `a`."""
        return len(self.a)


def rows_of(target: str, parameter: Tensor) -> range:
    """Return the rows of a target in the checkpoint's weight, which is this parameter of all ranks, without shards."""
    whole, (_, _, named) = _whole_rows(parameter), target.partition("#")
    ranges = [whole[part] for part in (named.split("+") if named else whole)]
    return range(ranges[0].start, ranges[-1].stop)


def check_updates(model: nn.Module, updates: Iterable[LowRankUpdate]) -> None:
    """Raise CheckpointError for updates of weights that the model does not have, or that have another shape.

    Also for updates of the vocabulary matrix, which an embedding and the output layer may share.
    """
    readers = {f"{name}.weight": module for name, module in model.named_modules()}
    parameters = model.state_dict(keep_vars=True)
    for update in updates:
        parameter = parameters.get(update.parameter)
        if parameter is None:
            raise CheckpointError(
                f"the adapter updates {update.name}, and this model has no {update.parameter}. Load the adapter "
                "with the model for which it was trained"
            )
        if isinstance(readers.get(update.parameter), VocabParallelEmbedding | VocabParallelHead | nn.Embedding):
            raise CheckpointError(
                f"the adapter updates {update.name}, an embedding or the output layer, which is not supported. Merge "
                "it with PEFT's merge_and_unload(), or train other target_modules"
            )
        found = [len(update.b), update.a.shape[1]]
        expected = (
            [len(rows_of(update.target, parameter)), _inputs(parameter)] if parameter.dim() == 2 else [*parameter.shape]
        )
        if found != expected:
            raise CheckpointError(
                f"the adapter's factors for {update.name} are for a weight of {found}, and the model's is {expected}. "
                "Load the adapter with the model for which it was trained"
            )


def merged(weight: Tensor, target: str, parameter: Tensor, updates: Iterable[LowRankUpdate]) -> Tensor:
    """Return a checkpoint's tensor with its updates added, in float32; unchanged if none concerns its rows.

    weight: [rows of target, in], of all ranks.
    """
    own, total = rows_of(target, parameter), None
    for update in updates:
        rows = rows_of(update.target, parameter)
        first, stop = max(own.start, rows.start), min(own.stop, rows.stop)
        if first < stop:
            total = weight.float() if total is None else total
            added = update.b[first - rows.start : stop - rows.start].float() @ update.a.float()
            part = total[first - own.start : stop - own.start] + update.scale * added
            total = torch.cat([total[: first - own.start], part, total[stop - own.start :]])
    return weight if total is None else total


def pieces_of(update: LowRankUpdate, parameter: Tensor) -> list[LowRankPiece]:
    """Return this rank's part of an update, one piece for each part of a stacked weight."""
    rows, pieces = rows_of(update.target, parameter), []
    local, shards = _parts(parameter)
    for part, whole in _whole_rows(parameter).items():
        shard = shards.get(part)
        of_rows = shard is not None and shard.dim == 0
        begin = whole.start + (shard.first if shard is not None and of_rows else 0)
        first, stop = max(begin, rows.start), min(begin + local[part].stop - local[part].start, rows.stop)
        if first < stop:
            a = update.a if shard is None or of_rows else shard.of(update.a)
            b = update.b[first - rows.start : stop - rows.start]
            pieces.append(LowRankPiece(local[part].start + first - begin, a, update.scale * b.float()))
    return pieces


def _whole_rows(parameter: Tensor) -> dict[str, range]:
    """Return the rows of each part in the checkpoint's weight, of all ranks."""
    parts, shards = _parts(parameter)
    rows, start = {}, 0
    for part, local in parts.items():
        shard = shards.get(part)
        size = shard.total if shard is not None and shard.dim == 0 else local.stop - local.start
        rows[part] = range(start, start + size)
        start += size
    return rows


def _parts(parameter: Tensor) -> tuple[dict[str, slice], dict[str, Shard]]:
    """Return the rows of each part in this rank's parameter, and the parts' shards."""
    whole = {WHOLE: slice(0, len(parameter))}
    return (parameter.parts or whole, parameter.shards) if isinstance(parameter, StackedParameter) else (whole, {})


def _inputs(parameter: Tensor) -> int:
    shard = next(iter(_parts(parameter)[1].values()), None)
    return shard.total if shard is not None and shard.dim == 1 else int(parameter.shape[-1])
