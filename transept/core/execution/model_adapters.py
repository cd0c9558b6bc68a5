"""ModelAdapters: fills the slots of a model's linear layers with adapters. Each worker has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transept.core.layers.adapters import NONE, AdapterRows, LayerAdapters, LowRankPiece, rows_in_use
from transept.core.layers.linear import Linear
from transept.core.layers.low_rank import LowRankUpdate, check_updates, pieces_of
from transept.errors import CheckpointError


class ModelAdapters:
    """The adapters of a model, or of a rank's part of it. num_slots: number of adapters at a time."""

    def __init__(self, model: nn.Module, num_slots: int) -> None:
        self._model, self._parameters = model, model.state_dict(keep_vars=True)
        self._num_slots, self._errors = num_slots, dict[int, Exception]()
        self._layers: dict[str, LayerAdapters] = {}  # by the name of a weight
        self._used: list[set[str]] = [set() for _ in range(num_slots)]
        self._last: AdapterRows | None = None
        for name, module in model.named_modules():
            if isinstance(module, Linear):
                module.adapters = module.adapters or self._of(module, module.weight)
                self._layers[f"{name}.weight"] = module.adapters

    def load(self, slot: int, updates: Sequence[LowRankUpdate]) -> None:
        """Fill a slot. If that fails, passes that use the slot raise the error."""
        self._errors.pop(slot, None)
        try:
            for name in self._used[slot]:
                self._layers[name].put(slot, ())
            self._used[slot] = set()
            own = [update for update in updates if update.parameter in self._parameters]  # others: of other stages
            check_updates(self._model, own)
            pieces: dict[str, list[LowRankPiece]] = {}
            for update in own:
                pieces.setdefault(update.parameter, []).extend(pieces_of(update, self._parameters[update.parameter]))
            for name, each in pieces.items():
                self._used[slot].add(name)
                self._layer(name).put(slot, each)
        except Exception as error:
            self._errors[slot] = error

    def rows(self, slots: Sequence[int | None]) -> AdapterRows | None:
        """Return the rows of a pass; None if none has an adapter. Raises the error of a slot that was not filled."""
        if all(slot is None for slot in slots):
            return None
        for slot in {*slots} & self._errors.keys():
            raise self._errors[slot or 0]
        own = [NONE if slot is None else slot for slot in slots]
        if self._last is None or self._last.slots.tolist() != own:
            self._last = AdapterRows(own)
        return self._last

    def all_rows(self, slot: int | None) -> AdapterRows | None:
        """Return the rows of a pass that all have one adapter. Raises like `rows`."""
        if slot in self._errors:
            raise self._errors[slot]
        return None if slot is None else AdapterRows(slot)

    def _layer(self, name: str) -> LayerAdapters:
        """Return the adapters of the layer with a weight. One of PyTorch's gets a hook that adds its updates."""
        if name not in self._layers:
            module = self._model.get_submodule(name.removesuffix(".weight"))
            if not isinstance(module, nn.Linear) or not name.endswith(".weight"):
                raise CheckpointError(
                    f"an adapter updates {name}, whose layer takes no adapters while requests run. Merge the adapter "
                    "by merge_adapter"
                )
            layer = self._layers[name] = self._of(module, module.weight)
            module.register_forward_hook(lambda _, given, out: _added(layer, given[0], out))
        return self._layers[name]

    def _of(self, module: Any, weight: Tensor) -> LayerAdapters:
        shape = (module.in_features, module.out_features)
        # A packed weight's parameter has no memory: its bias, or the model's first parameter, has the device.
        device = next((each.device for each in self._model.parameters() if not each.is_meta), torch.device("cpu"))
        return LayerAdapters(*shape, self._num_slots, device, weight.dtype)


def _added(layer: LayerAdapters, x: Tensor, out: Tensor) -> Tensor:
    """Add the updates of the pass that runs to the output of one of PyTorch's layers, [..., out]."""
    rows = rows_in_use()
    if rows is None:
        return out
    added = layer.add(rows, x.reshape(-1, x.shape[-1]).contiguous(), out.reshape(-1, out.shape[-1]).contiguous())
    return added.view(out.shape)
