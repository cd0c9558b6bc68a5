"""SlicedEncodes: encodes that pause between two layers of the encoder, and continue in a later step.

The model's own code loops over its layers. So `encode` runs in a greenlet, on the same thread and with its OpenMP team,
and switches back to the model runner before the first layer of a later step. Only on CPUs. An encode that takes one
step runs without a greenlet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from transept.core.execution.encoder_runner import EncoderRunner
from transept.core.scheduling.step import Encode


class SlicedEncodes:
    """Runs encodes that take several steps. At most one is in progress at a time.

    The model runner holds this object. The paused encode has no reference to the model runner, so both are freed by
    reference counting.
    """

    def __init__(self, encoder: EncoderRunner) -> None:
        self._encoder = encoder
        self._under_way: SlicedEncode | None = None

    def begin_step(self, encodes: Sequence[Encode]) -> None:
        """Drop the encode in progress, unless the step continues it. encodes: all encodes of the step."""
        if all(not self._is_under_way(each) for each in encodes):
            self.drop()

    def drop(self) -> None:
        """Drop the encode in progress. A step that continues it restarts it."""
        self._under_way = None

    def __call__(self, encodes: Sequence[Encode], embeddings: dict[int, Tensor]) -> Sequence[Encode]:
        """Continue the encodes that take several steps. Returns the others. Raises the model's errors.

        embeddings: see EncoderRunner.
        """
        sliced = [each for each in encodes if each.num_layers is not None or self._is_under_way(each)]
        for each in sliced:
            self._go_on(each, embeddings)
        return [each for each in encodes if each not in sliced] if sliced else encodes

    def _is_under_way(self, encode: Encode) -> bool:
        return self._under_way is not None and self._under_way.encode_id == encode.encode_id

    def _go_on(self, encode: Encode, embeddings: dict[int, Tensor]) -> None:
        """Compute this step's layers of an encode. After an exception, nothing of the encode is kept."""
        sliced, self._under_way = (self._under_way if self._is_under_way(encode) else None), None
        num_layers = encode.num_layers
        if sliced is not None and sliced.thread != threading.get_ident():
            sliced = num_layers = None  # restart, in one step, since another thread may run the next step
        if sliced is None:
            sliced = SlicedEncode(encode.encode_id, partial(self._encoder.encode, [encode.inputs], encode.adapter))
        hidden = sliced.advance(num_layers)
        if hidden is not None:
            self._encoder.end(hidden, [encode], embeddings)
        self._under_way = sliced


class SlicedEncode:
    """One encode. function: returns the encoder's output. encode_id: see Encode. thread: the one that began it.

    A greenlet belongs to the thread that began it. If another thread drops it, its memory is freed only when the first
    thread switches greenlets again.
    """

    def __init__(self, encode_id: int, function: Callable[[], Tensor]) -> None:
        self.encode_id = encode_id
        self._progress = LayerProgress()
        self._greenlet = greenlet(function)
        self._greenlet.gr_context = copy_context()
        self._greenlet.gr_context.run(_PROGRESS.set, self._progress)
        self.thread = threading.get_ident()

    def advance(self, num_layers: int | None) -> Tensor | None:
        """Compute the encoder up to layer `num_layers`, unless that is done; None: up to the last layer.

        Returns the encoder's output if this call completes it, else None. Raises the function's errors.
        """
        progress = self._progress
        if self._greenlet.dead or (num_layers is not None and progress.num_layers >= num_layers):
            return None
        state = _thread_state()
        progress.most_layers, progress.caller = num_layers, getcurrent()
        self._greenlet.parent = progress.caller
        hidden: Tensor | None = self._greenlet.switch()
        if hidden is None and _thread_state() != state:  # changed by the model: must not leak into other work
            progress.most_layers = None
            hidden = self._greenlet.switch()
        return hidden


@dataclass
class LayerProgress:
    """Progress of an encode.

    num_layers: layers begun so far. most_layers: layers after which it pauses. caller: the greenlet to switch to then.

    Holds no reference to the encode's own greenlet: a reference from its own stack would keep it from being freed.
    """

    num_layers: int = 0
    most_layers: int | None = None
    caller: greenlet = field(default_factory=getcurrent)


_PROGRESS: ContextVar[LayerProgress | None] = ContextVar("progress of the encode that runs", default=None)


def pause_before_layer(layer: nn.Module, given: Any) -> None:
    """Pause the running encode until a step computes one more layer. A forward pre-hook of an encoder's layers."""
    progress = _PROGRESS.get()
    if progress is not None:
        while progress.most_layers is not None and progress.num_layers >= progress.most_layers:
            progress.caller.switch(None)
        progress.num_layers += 1


def _thread_state() -> tuple[object, ...]:
    """Return the thread state that PyTorch's context managers change; an encode must not pause inside one of these."""
    return torch.is_autocast_enabled("cpu"), torch.get_default_dtype(), torch._C._len_torch_function_stack()
