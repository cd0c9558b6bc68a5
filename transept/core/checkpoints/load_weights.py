"""load_weights: fill a model's parameters from a checkpoint, by the names in a WeightMap.

The checkpoint is read once. Each tensor is converted while it is copied to its place, or packed from the mapped file,
so the model is never in memory twice. One error at the end lists all problems. If a group of processes shares the
model, only this process's shard of a tensor is copied or packed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.checkpoints.wrapped_names import adapter_problem
from transept.core.layers.linear import WHOLE, StackedParameter
from transept.core.layers.low_rank import LowRankUpdate, check_updates, merged
from transept.core.layers.packing import WeightPacker
from transept.core.parallel.group import Shard
from transept.errors import CheckpointError, PluginError

MOST_UNEXPECTED = 1000  # weights; with more, the checkpoint belongs to another model, and reading stops
SMALLEST_FLOAT = 2  # bytes; floating-point types below are quantized


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    weight_map: WeightMap,
    packer: WeightPacker | None = None,
    elsewhere: Collection[str] = (),
    known_as: str = "",
    updates: Sequence[LowRankUpdate] = (),
) -> None:
    """Copy every weight of the checkpoint to its place by the weight map, in the model's dtype and on its device.

    Places are the model's parameters and persistent buffers; one that two modules share counts once. packer: packs
    weights whose parameters are on the meta device, each when all its parts are loaded. elsewhere: names of parameters
    and buffers that other processes load. known_as: names the plugin in messages. updates: of an adapter, added to
    the checkpoint's weights.

    Raises CheckpointError that lists all weights that are missing, unexpected, of a wrong shape, or loaded twice; or
    that reports a quantized checkpoint or an adapter. Raises PluginError if the weight map names parts that a parameter
    does not have.
    """
    misfit = f'the weights in "{checkpoint.path}" do not fit {type(model).__name__}{known_as and f" of {known_as}"}'
    places = _Places(model, packer, {target for _, target in weight_map.tied}, updates, elsewhere)
    report = _Report()
    tied: list[tuple[str, str, Tensor]] = []
    for name, tensor in checkpoint.tensors():
        if weight_map.is_ignored(name):
            continue
        also = weight_map.tied_target(name)
        target = also or weight_map.target(name)
        if target and target.partition("#")[0] in elsewhere:
            continue
        if also:
            tied.append((name, also, tensor))
        elif target:
            _fill(places, name, target, tensor, report)
            if target in places and not places.is_tied(target):
                places.pack_if_complete(target)
        else:
            report.unexpected.append(name)
            if len(report.unexpected) > MOST_UNEXPECTED:
                report.refuse_adapters(misfit)
                some = ", ".join(report.unexpected[:3])
                raise CheckpointError(
                    f"{misfit}: over {MOST_UNEXPECTED} are unexpected in the checkpoint, such as {some}"
                )
    for name, target, tensor in tied:
        _fill_tied(places, name, target, tensor, report)
    for target in places.unfilled():
        if weight_map.is_zero(target):
            place = places.find(target)
            places.fill(place, torch.zeros(()).expand(place.destination.shape))
            places.filled.update(dict.fromkeys(place.pieces, "zeros"))
        else:
            report.missing.append(target)
    report.refuse_adapters(misfit)
    if problems := report.text():
        raise CheckpointError(f"{misfit}:\n{problems}")
    for target in places.tensors:
        places.pack_if_complete(target)


@dataclass
class _Report:
    """Problems with weights, one line each."""

    missing: list[str] = field(default_factory=list)  # targets
    unexpected: list[str] = field(default_factory=list)  # checkpoint names, as all below
    misshaped: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    untied: list[str] = field(default_factory=list)
    quantized: list[str] = field(default_factory=list)

    def refuse_adapters(self, misfit: str) -> None:
        """Raise CheckpointError for the weights of an adapter, which explain every other problem."""
        if problem := adapter_problem(name.partition(" ")[0] for name in self.unexpected):
            raise CheckpointError(f"{misfit}: {problem}")

    def text(self) -> str:
        """Return all problems; empty without any. Quantization explains all others, so it is reported alone."""
        if self.quantized:
            return (
                f"  {len(self.quantized)} of them are quantized, such as {self.quantized[0]}; quantized checkpoints "
                "are not supported yet. Use one in float32, float16 or bfloat16"
            )
        kinds = {
            "missing from the checkpoint": self.missing,
            "unexpected in the checkpoint": self.unexpected,
            "of another shape": self.misshaped,
            "loaded twice": self.twice,
            "tied in the model but different in the checkpoint": self.untied,
        }
        lines = []
        for kind, names in kinds.items():
            if names:
                lines += [f"  {len(names)} {kind}:", *(f"    {name}" for name in names)]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Place:
    """The place of one tensor: rows of a parameter or buffer, made of pieces that are filled together."""

    parameter: Tensor
    first_row: int
    destination: Tensor  # the rows
    pieces: list[tuple[int, str]]  # (id of the parameter, part)
    shards: list[Shard]  # of each piece, the rank's part of the checkpoint's tensor; empty without sharding

    @property
    def shape(self) -> torch.Size:
        """Shape of the checkpoint's tensor."""
        shape = [*self.destination.shape]
        if self.shards:
            shape[self.shards[0].dim] = sum(shard.total for shard in self.shards)
        return torch.Size(shape)

    def own(self, tensor: Tensor) -> Tensor:
        """Return the rank's part of a tensor of that shape; a view if there is one piece."""
        if not self.shards:
            return tensor
        if self.shards[0].dim == 1:
            return self.shards[0].of(tensor)
        pieces = tensor.split([shard.total for shard in self.shards])
        return _joined([shard.of(piece) for shard, piece in zip(self.shards, pieces, strict=True)])


class _Places:
    """All places of a model by the names of its state_dict, and the checkpoint names that have filled them."""

    def __init__(
        self,
        model: nn.Module,
        packer: WeightPacker | None,
        tied: set[str],
        updates: Sequence[LowRankUpdate],
        elsewhere: Collection[str],
    ) -> None:
        self.tensors: dict[str, Tensor] = model.state_dict(keep_vars=True)
        own = [update for update in updates if update.parameter not in elsewhere]
        check_updates(model, own)
        self._updates: dict[str, list[LowRankUpdate]] = {}
        for update in own:
            self._updates.setdefault(update.parameter, []).append(update)
        self._tied = {id(tensor) for name, tensor in self.tensors.items() if name in tied}
        self.filled: dict[tuple[int, str], str] = {}  # piece -> checkpoint name
        self._packer = packer
        # of each parameter to pack: first row -> rows of the checkpoint
        self._gathered: dict[int, dict[int, Tensor]] = {
            id(tensor): {} for tensor in self.tensors.values() if tensor.is_meta
        }

    def __contains__(self, target: str) -> bool:
        return target.partition("#")[0] in self.tensors

    def is_tied(self, target: str) -> bool:
        """True if the checkpoint may have the target's parameter a second time, which is compared at the end."""
        return id(self.tensors[target.partition("#")[0]]) in self._tied

    def find(self, target: str) -> _Place:
        """Return the place of a target in the model. Raises PluginError for parts that it does not have."""
        name, _, part = target.partition("#")
        tensor = self.tensors[name]
        parts, shards = _parts(tensor), tensor.shards if isinstance(tensor, StackedParameter) else {}
        if not part:
            pieces = [(id(tensor), piece) for piece in parts or (WHOLE,)]
            return _Place(tensor, 0, tensor.detach(), pieces, [*shards.values()])
        wanted = part.split("+")
        if unknown := [piece for piece in wanted if piece not in parts]:
            raise PluginError(
                f'weight map: "{target}" names part {", ".join(unknown)}; {name} has {", ".join(parts) or "no parts"}'
            )
        rows = [parts[piece] for piece in wanted]
        if any(above.stop != below.start for above, below in pairwise(rows)):
            raise PluginError(f'weight map: the parts in "{target}" are not adjacent; {name} has {", ".join(parts)}')
        first, stop = rows[0].start, rows[-1].stop
        pieces, own = [(id(tensor), piece) for piece in wanted], [shards[piece] for piece in wanted if shards]
        return _Place(tensor, first, tensor.detach()[first:stop], pieces, own)

    def fill(self, place: _Place, rows: Tensor) -> None:
        """Copy rows to their place, or keep them until their parameter is packed."""
        if place.destination.is_meta:
            self._gathered[id(place.parameter)][place.first_row] = rows
        else:
            with torch.no_grad():
                place.destination.copy_(rows)

    def updated(self, target: str, tensor: Tensor) -> Tensor:
        """Return a checkpoint's tensor with an adapter's updates added."""
        name = target.partition("#")[0]
        return merged(tensor, target, self.tensors[name], self._updates[name]) if name in self._updates else tensor

    def content(self, place: _Place) -> Tensor:
        """Return the content of a filled place."""
        if not place.destination.is_meta:
            return place.destination
        first, stop = place.first_row, place.first_row + len(place.destination)
        overlapping = [
            rows[max(0, first - start) : max(0, stop - start)]
            for start, rows in sorted(self._gathered[id(place.parameter)].items())
        ]
        return _joined(overlapping)

    def pack_if_complete(self, target: str) -> None:
        """Pack the target's parameter, once, if a packer takes it and all its rows are loaded."""
        parameter = self.tensors[target.partition("#")[0]]
        gathered = self._gathered.get(id(parameter), {})
        if self._packer is None or not gathered or sum(map(len, gathered.values())) < len(parameter):
            return
        parts = [rows for _, rows in sorted(gathered.items())]
        self._packer.pack(parameter, _joined(parts))
        gathered.clear()

    def unfilled(self) -> list[str]:
        """Return the targets that are not filled, part by part; a shared parameter by its first name."""
        targets: dict[tuple[int, str], str] = {}
        for name, tensor in self.tensors.items():
            for part in _parts(tensor) or (WHOLE,):
                targets.setdefault((id(tensor), part), f"{name}#{part}" if part else name)
        return [target for piece, target in targets.items() if piece not in self.filled]


def _joined(parts: list[Tensor]) -> Tensor:
    """Concatenate rows; a single part is not copied, since it may be the largest weight."""
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0)


def _parts(tensor: Tensor) -> dict[str, slice]:
    return tensor.parts if isinstance(tensor, StackedParameter) else {}


def _fill(places: _Places, name: str, target: str, tensor: Tensor, report: _Report) -> None:
    if target not in places:
        report.unexpected.append(f"{name} (for {target}, which the model does not have)")
        return
    place = places.find(target)
    if _is_quantized(tensor, place.destination):
        report.quantized.append(f"{name} ({str(tensor.dtype).removeprefix('torch.')})")
        return
    if earlier := sorted({places.filled[piece] for piece in place.pieces if piece in places.filled}):
        report.twice.append(f"{target}, from {name} after {', '.join(earlier)}")
        return
    places.filled.update(dict.fromkeys(place.pieces, name))
    tensor = _without_trailing_ones(tensor, place.shape)
    if tensor.shape != place.shape:
        report.misshaped.append(_misshaped(name, target, tensor, place))
        return
    places.fill(place, place.own(places.updated(target, tensor)))


def _fill_tied(places: _Places, name: str, target: str, tensor: Tensor, report: _Report) -> None:
    """Fill an empty place; if it is filled, the tensor must equal its content."""
    if target not in places or not all(piece in places.filled for piece in places.find(target).pieces):
        _fill(places, name, target, tensor, report)
        return
    place = places.find(target)
    tensor = _without_trailing_ones(tensor, place.shape)
    if tensor.shape != place.shape:
        report.misshaped.append(_misshaped(name, target, tensor, place))
    elif not _same(place.own(tensor), places.content(place), place.destination.dtype):
        report.untied.append(f"{name} (for {target})")


def _without_trailing_ones(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return a convolution's weight of one tap as a matrix, if that has the expected shape; else the tensor."""
    more = tensor.shape[len(shape) :]
    return tensor.flatten(len(shape) - 1) if shape and more and more.numel() == 1 else tensor


def _same(tensor: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    """True if two tensors have equal numbers in a dtype."""
    if tensor.dtype is not other.dtype or tensor.device != other.device:
        tensor, other = tensor.to(other.device, dtype), other.to(dtype)
    return torch.equal(tensor, other)


def _misshaped(name: str, target: str, tensor: Tensor, place: _Place) -> str:
    return f"{name}: {list(tensor.shape)} in the checkpoint, {list(place.shape)} in the model ({target})"


def _is_quantized(tensor: Tensor, destination: Tensor) -> bool:
    """True for quantized numbers, which need a scale, where the model expects weights."""
    if not destination.is_floating_point():
        return False
    return not tensor.is_floating_point() or tensor.dtype.itemsize < SMALLEST_FLOAT
