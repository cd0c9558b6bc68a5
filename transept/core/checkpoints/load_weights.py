"""load_weights: fill a model's parameters from a checkpoint, by the names in a WeightMap.

The checkpoint is walked once. Each tensor is converted while it is copied to its place, so that the model is never in
memory twice; whatever does not fit is gathered and told at the end, all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.layers.linear import StackedParameter
from transept.errors import CheckpointError, PluginError

WHOLE = ""  # the one piece of a parameter without parts
SMALLEST_FLOAT = 2  # bytes; floating-point types below are quantized


def load_weights(
    model: nn.Module,
    checkpoint: Checkpoint,
    weight_map: WeightMap,
    loaded: Callable[[Tensor], None] = lambda tensor: None,
) -> None:
    """Copy every weight of the checkpoint to where the weight map puts it, in the model's dtype and on its device.

    The places are the model's parameters and persistent buffers; one that two modules share counts once. loaded: called
    with each as soon as it is complete and not needed any more: what it stores may then be stored otherwise.

    Raises CheckpointError that lists all missing, unexpected and wrongly shaped weights and those loaded twice; or that
    names a quantized checkpoint. Raises PluginError when the weight map names parts that a parameter does not have.
    """
    places = _Places(model)
    report = _Report()
    tied: list[tuple[str, str, Tensor]] = []
    shared = {target for _, target in weight_map.tied}  # with what else the checkpoint has, which is compared at last
    for name, tensor in checkpoint.tensors():
        if weight_map.is_ignored(name):
            continue
        if target := weight_map.tied_target(name):
            tied.append((name, target, tensor))
        elif target := weight_map.target(name):
            _fill(places, name, target, tensor, report)
            if target in places and target.partition("#")[0] not in shared:
                places.tell_if_complete(target, loaded)
        else:
            report.unexpected.append(name)
    for name, target, tensor in tied:
        _fill_tied(places, name, target, tensor, report)
    for target in places.unfilled():
        if weight_map.is_zero(target):
            place = places.find(target)
            place.zero()
            places.filled.update(dict.fromkeys(place.pieces, "zeros"))
        else:
            report.missing.append(target)
    if problems := report.text():
        raise CheckpointError(f'the weights in "{checkpoint.path}" do not fit {type(model).__name__}:\n{problems}')
    for target in places.tensors:
        places.tell_if_complete(target, loaded)


@dataclass
class _Report:
    """What did not fit, one line each."""

    missing: list[str] = field(default_factory=list)  # targets
    unexpected: list[str] = field(default_factory=list)  # checkpoint names, as all below
    misshaped: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    untied: list[str] = field(default_factory=list)
    quantized: list[str] = field(default_factory=list)

    def text(self) -> str:
        """All problems, or nothing. A quantized checkpoint explains every other problem, so it stands alone."""
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
    """Where one tensor goes: rows of a parameter or buffer, made of one or more pieces that are filled together."""

    destination: Tensor
    pieces: list[tuple[int, str]]  # (id of the parameter, part)

    def zero(self) -> None:
        with torch.no_grad():
            self.destination.zero_()


class _Places:
    """All places of a model, by the names of its state_dict, and which pieces of them have been filled from what."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors: dict[str, Tensor] = model.state_dict(keep_vars=True)
        self.filled: dict[tuple[int, str], str] = {}  # piece -> checkpoint name
        self.told: set[int] = set()  # ids of parameters that are complete

    def __contains__(self, target: str) -> bool:
        return target.partition("#")[0] in self.tensors

    def find(self, target: str) -> _Place:
        """The place of a target whose name is in the model. Raises PluginError for parts that it does not have."""
        name, _, part = target.partition("#")
        tensor = self.tensors[name]
        parts = _parts(tensor)
        if not part:
            return _Place(tensor.detach(), [(id(tensor), piece) for piece in parts or (WHOLE,)])
        wanted = part.split("+")
        if unknown := [piece for piece in wanted if piece not in parts]:
            raise PluginError(
                f'weight map: "{target}" names part {", ".join(unknown)}; {name} has {", ".join(parts) or "no parts"}'
            )
        rows = [parts[piece] for piece in wanted]
        if any(above.stop != below.start for above, below in pairwise(rows)):
            raise PluginError(f'weight map: the parts in "{target}" are not adjacent; {name} has {", ".join(parts)}')
        return _Place(tensor.detach()[rows[0].start : rows[-1].stop], [(id(tensor), piece) for piece in wanted])

    def tell_if_complete(self, target: str, loaded: Callable[[Tensor], None]) -> None:
        """Call `loaded` with the target's parameter if all of it is filled, once."""
        tensor = self.tensors[target.partition("#")[0]]
        if id(tensor) in self.told or any((id(tensor), part) not in self.filled for part in _parts(tensor) or (WHOLE,)):
            return
        self.told.add(id(tensor))
        loaded(tensor)

    def unfilled(self) -> list[str]:
        """Targets that nothing filled, part by part; a shared parameter by its first name."""
        targets: dict[tuple[int, str], str] = {}
        for name, tensor in self.tensors.items():
            for part in _parts(tensor) or (WHOLE,):
                targets.setdefault((id(tensor), part), f"{name}#{part}" if part else name)
        return [target for piece, target in targets.items() if piece not in self.filled]


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
    if tensor.shape != place.destination.shape:
        report.misshaped.append(_misshaped(name, target, tensor, place))
        return
    with torch.no_grad():
        place.destination.copy_(tensor)


def _fill_tied(places: _Places, name: str, target: str, tensor: Tensor, report: _Report) -> None:
    """Fill a place that nothing filled; else the checkpoint's copy must be what the model shares."""
    if target not in places or not all(piece in places.filled for piece in places.find(target).pieces):
        _fill(places, name, target, tensor, report)
        return
    destination = places.find(target).destination
    if tensor.shape != destination.shape:
        report.misshaped.append(_misshaped(name, target, tensor, places.find(target)))
    elif not torch.equal(tensor.to(destination), destination):
        report.untied.append(f"{name} (for {target})")


def _misshaped(name: str, target: str, tensor: Tensor, place: _Place) -> str:
    return f"{name}: {list(tensor.shape)} in the checkpoint, {list(place.destination.shape)} in the model ({target})"


def _is_quantized(tensor: Tensor, destination: Tensor) -> bool:
    """Whether numbers that need a scale would be copied as if they were weights."""
    if not destination.is_floating_point():
        return False
    return not tensor.is_floating_point() or tensor.dtype.itemsize < SMALLEST_FLOAT
