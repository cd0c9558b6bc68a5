"""Adapters: the LoRA adapters that requests may choose by name. Loaded, found and unloaded in any thread.

An adapter is read and checked in the engine's process, and stays in its memory. The scheduler sends it to the workers
when a request needs it. So a request keeps the adapter that its name meant when it was prepared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.checkpoints.adapter_folder import read_adapter
from transept.core.checkpoints.model_description import ModelDescription, build_model
from transept.core.layers.linear import Linear
from transept.core.layers.low_rank import LowRankUpdate, check_updates
from transept.core.parallel.group import ParallelGroup
from transept.core.request.adapter_options import check_adapter_name
from transept.core.request.inputs import Adapter, AdapterName
from transept.errors import CheckpointError, ParameterError, suggest

logger = logging.getLogger(__name__)


class Adapters:
    """The adapters of an engine.

    describe: describes the engine's model, once for each adapter, so that no checkpoint stays open. max_rank: of an
    adapter.
    """

    def __init__(self, describe: Callable[[], ModelDescription], max_rank: int) -> None:
        self._describe, self._max_rank = describe, max_rank
        self._by_name: dict[str, Adapter] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._model: nn.Module | None = None  # without memory, to check adapters; None: not built yet
        self._is_checked = True

    @property
    def names(self) -> list[str]:
        """The names that requests may give, in the order of loading."""
        return list(self._by_name)

    def load_all(self, folders: Mapping[str, str]) -> None:
        """Load several adapters. Raises like `load`."""
        for name, folder in folders.items():
            self.load(name, folder)

    def load(self, name: str, folder: str | Path) -> None:
        """Read an adapter, and give it a name. Requests that are prepared from now on may choose it.

        Raises ParameterError for a name that is in use or not a text, CheckpointError for a folder that is not a LoRA
        adapter of this model, or whose rank is too large.
        """
        check_adapter_name("name", name)
        self._refuse_used(name)
        described = self._describe()
        updates = read_adapter(Path(folder).expanduser(), described.names_of_adapters)
        if (rank := max(update.rank for update in updates)) > self._max_rank:
            raise CheckpointError(
                f'the adapter "{folder}" has rank {rank}, and {{max_adapter_rank}} is {self._max_rank}. Raise that to '
                f"{rank}",
                others=["max_adapter_rank"],
            )
        self._check(updates, described)
        with self._lock:
            self._refuse_used(name)
            self._by_name[name] = Adapter(next(self._numbers), name, updates)

    def unload(self, name: str) -> None:
        """Forget a name. Requests that have its adapter keep it. Raises ParameterError for an unknown name."""
        with self._lock:
            self.find(name)
            del self._by_name[name]

    def find(self, name: Any) -> Adapter:
        """Return the adapter with a name. Raises ParameterError for an unknown name."""
        if isinstance(name, AdapterName):
            return name.adapter
        adapter = self._by_name.get(name) if isinstance(name, str) else None
        if adapter is None:
            known = self.names
            near = suggest(name, known) if isinstance(name, str) and known else ""
            advice = near or " Load it by load_adapter, or give the engine {adapters}."
            message = f"there is no adapter {{lora!}}.{advice}"
            raise ParameterError(message, param="lora", value=name, others={} if near else ["adapters"])
        return adapter

    def lasting(self, name: Any) -> AdapterName:
        """Return a name that will always mean the adapter that it means now.

        Raises ParameterError for an unknown name.
        """
        adapter = self.find(name)
        lasting = AdapterName(adapter.name)
        lasting.adapter = adapter
        return lasting

    def _refuse_used(self, name: str) -> None:
        if name in self._by_name:
            message = f"the {{name}} {name!r} is in use by another adapter. Unload that one, or choose another name"
            raise ParameterError(message, param="name", value=name)

    def _check(self, updates: list[LowRankUpdate], described: ModelDescription) -> None:
        """Raise CheckpointError for updates that do not fit the model."""
        with self._lock:
            if self._model is None and self._is_checked:
                self._model = _without_memory(described)
                self._is_checked = self._model is not None
        if self._model is None:
            return
        check_updates(self._model, updates)
        layers = {f"{name}.weight": layer for name, layer in self._model.named_modules()}
        for update in updates:
            if not isinstance(layers.get(update.parameter), Linear | nn.Linear):
                raise CheckpointError(
                    f"the adapter updates {update.name}, whose layer takes no adapters while requests run. Merge the "
                    "adapter by {merge_adapter}",
                    others=["merge_adapter"],
                )


def _without_memory(described: ModelDescription) -> nn.Module | None:
    """Return the whole model without memory for weights; None if building it reads weights."""
    try:
        with torch.device("meta"):
            return build_model(described, LayerContext(TorchBackend(), ParallelGroup()))
    except Exception:  # of a plugin's model; the workers check the adapters
        logger.debug("the model cannot be built without memory; its workers check adapters", exc_info=True)
        return None
