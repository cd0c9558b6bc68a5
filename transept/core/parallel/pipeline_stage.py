"""PipelineStage: which layers of a model a process has, and what stages give each other (Huang et al. 2019, "GPipe").

Each stage computes some neighbouring layers of the encoder and some of the decoder, gives what comes out of them to the
stage after it, and goes on with the next step. Links carry it; `core/layers/staging.py` puts the stage into a model.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from transept.core.model_shape import ModelShape
from transept.core.parallel.group import ExchangeError
from transept.errors import ParameterError, PluginError


class Message(NamedTuple):
    """What one stage gives another in a step: numbers, or why there are none."""

    step: int
    content: Tensor | Exception


class Link(ABC):
    """One end of what joins two stages, used by one thread. Messages arrive in the order in which they were sent.

    Tensors of any device are sent; those that arrive are on the host.
    """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message, without waiting for who receives it. Raises ExchangeError where nobody does any more."""

    @abstractmethod
    def receive(self) -> Message:
        """The next message; waits for it. Raises ExchangeError where none will come."""


class PipelineStage:
    """One stage of `count`, from 0.

    links: by the stage at the other end: those to its neighbours, and between the last stage and every other.
    step: number of the step that it computes; whoever computes sets it, higher from step to step.

    Messages of a step that failed may lie unread: they are dropped when one of a later step is received.
    """

    def __init__(self, index: int = 0, count: int = 1, links: Mapping[int, Link] | None = None) -> None:
        if count < 1 or not 0 <= index < count:
            raise ParameterError(f"there is no stage {index} of {count}")
        self.index, self.count = index, count
        self.step = 0
        self._links = links or {}

    @property
    def is_first(self) -> bool:
        """Whether it gets what the engine is given."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Whether it has what the model returns, and draws the tokens."""
        return self.index == self.count - 1

    def layers(self, total: int, after: float = 0.0) -> range:
        """The layers that it has of one side's, of which it takes as long for as every other stage, or nearly.

        after: what the last stage computes beside its layers, in layers. Every stage has one at least, where there are
        as many.
        """
        if self.count == 1:
            return range(total)
        of_last = max(1, math.ceil((total + after) / self.count - after - 0.5))  # rounded, halves down
        bounds = [-(-index * (total - of_last) // (self.count - 1)) for index in range(self.count)] + [total]
        return range(bounds[self.index], bounds[self.index + 1])

    def decoder_layers(self, shape: ModelShape) -> range:
        """The layers of a decoder that it has: in the last stage fewer, since that computes the logits, too.

        A step reads of a usual layer 14 h² weights, h the hidden size: in self-attention 4, in cross-attention 2, in
        the feed-forward network 8; for logits it reads h for each token of the vocabulary.
        """
        hidden = (shape.num_heads or shape.num_kv_heads) * shape.head_dim
        return self.layers(shape.num_decoder_layers, shape.vocab_size / (14 * hidden))

    def take_over(self, x: Tensor) -> Tensor:
        """What the stage before has computed. x: what stands in its place here, of the same shape."""
        received = self._receive(self.index - 1, x.device)
        if received.shape != x.shape:
            raise PluginError(
                f"stage {self.index - 1} computed hidden states {[*received.shape]} where stage {self.index} expects "
                f"{[*x.shape]}: pipeline parallelism is for models whose layers hand on nothing but these"
            )
        return received

    def hand_over(self, x: Tensor) -> Tensor:
        """Give the stage after this one what this one has computed. Returns x."""
        self._links[self.index + 1].send(Message(self.step, x))
        return x

    def share_encoded(self, hidden: Tensor) -> None:
        """Give all other stages the encoder's output of a chunk, which the last stage has."""
        for index in range(self.index):
            self._links[index].send(Message(self.step, hidden))

    def receive_encoded(self, device: torch.device) -> Tensor:
        """The encoder's output of the next chunk, from the last stage."""
        return self._receive(self.count - 1, device)

    def add_up(self, x: Tensor) -> Tensor:
        """In the last stage the sum of all stages' x, of one shape and dtype; in others of those so far."""
        if not self.is_first:
            x = x + self._receive(self.index - 1, x.device)
        if not self.is_last:
            self.hand_over(x)
        return x

    def fail(self, error: Exception, encodes: bool) -> None:
        """Tell the stages that wait for this one that they get nothing in this step.

        encodes: whether encoders run in the step, for whose output other stages wait.
        """
        message = Message(self.step, error)
        if not self.is_last:
            self._links[self.index + 1].send(message)
        elif encodes:
            for index in range(self.index):
                self._links[index].send(message)

    def _receive(self, stage: int, device: torch.device) -> Tensor:
        """What a stage has sent in this step, on a device here. Raises what it failed with."""
        step, content = self._links[stage].receive()
        while step < self.step:
            step, content = self._links[stage].receive()
        if step > self.step:
            raise ExchangeError(f"stages are out of step: {stage} computes {step}, {self.index} {self.step}")
        if isinstance(content, Exception):
            raise content
        return content.to(device)
