"""PipelineStage: a stage's layers of a model, and its messages to other stages (Huang et al. 2019, "GPipe").

Each stage computes some consecutive layers of the encoder and some of the decoder, sends their output to the next
stage, and continues with the next step. `core/layers/pipeline_partition.py` puts the stage into a model; links send
messages.
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
    """A message from one stage to another in a step: a tensor, or the exception of computing it."""

    step: int
    content: Tensor | Exception


class Link(ABC):
    """One end of a connection between two stages, used by one thread. Messages arrive in the order of sending.

    Tensors of any device can be sent; received tensors are on the host.
    """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message, without waiting until it is received. Raises ExchangeError if the other stage has gone."""

    @abstractmethod
    def receive(self) -> Message:
        """Wait for the next message. Raises ExchangeError if the other stage has gone."""


class PipelineStage:
    """One of `count` stages, numbered from 0.

    links: by the stage at the other end. They connect neighbouring stages, and the last stage to every other.
    step: number of the step that it computes; set by the worker, increases from step to step.

    Messages of a failed step may remain unread: they are dropped when a later step's message is received.
    """

    def __init__(self, index: int = 0, count: int = 1, links: Mapping[int, Link] | None = None) -> None:
        if count < 1 or not 0 <= index < count:
            raise ParameterError(f"there is no stage {index} of {count}", param="index", value=index)
        self.index, self.count = index, count
        self.step = 0
        self._links = links or {}

    @property
    def is_first(self) -> bool:
        """True if it receives the engine's inputs."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """True if it computes the model's output and draws the tokens."""
        return self.index == self.count - 1

    def layers(self, total: int, after: float = 0.0) -> range:
        """Return this stage's part of `total` layers of one side, so that all stages take about the same time.

        after: further work of the last stage, in units of a layer. Every stage has at least one layer, if there are
        enough.
        """
        if self.count == 1:
            return range(total)
        of_last = max(1, math.ceil((total + after) / self.count - after - 0.5))  # rounded, halves down
        bounds = [-(-index * (total - of_last) // (self.count - 1)) for index in range(self.count)] + [total]
        return range(bounds[self.index], bounds[self.index + 1])

    def decoder_layers(self, shape: ModelShape) -> range:
        """Return this stage's decoder layers: fewer in the last stage, which also computes the logits.

        A step reads 14 h² weights of a typical layer with hidden size h: 4 h² in self-attention, 2 h² in
        cross-attention, 8 h² in the feed-forward network. For logits it reads h weights for each token of the
        vocabulary.
        """
        hidden = (shape.num_heads or shape.num_kv_heads) * shape.head_dim
        return self.layers(shape.num_decoder_layers, shape.vocab_size / (14 * hidden))

    def recv(self, x: Tensor) -> Tensor:
        """Receive the hidden states of the previous stage. x: a placeholder of the same shape."""
        received = self._receive(self.index - 1, x.device)
        if received.shape != x.shape:
            raise PluginError(
                f"stage {self.index - 1} computed hidden states {[*received.shape]} where stage {self.index} expects "
                f"{[*x.shape]}: pipeline parallelism is for models whose layers pass on only hidden states"
            )
        return received

    def send(self, x: Tensor) -> Tensor:
        """Send this stage's hidden states to the next stage. Returns x."""
        self._links[self.index + 1].send(Message(self.step, x))
        return x

    def share_encoded(self, hidden: Tensor) -> None:
        """Send the encoder's output of a chunk to all other stages. Only the last stage calls this."""
        for index in range(self.index):
            self._links[index].send(Message(self.step, hidden))

    def receive_encoded(self, device: torch.device) -> Tensor:
        """Receive the encoder's output of the next chunk from the last stage."""
        return self._receive(self.count - 1, device)

    def add_up(self, x: Tensor) -> Tensor:
        """Return the sum of this and all earlier stages' x, of one shape and dtype; in the last stage, of all."""
        if not self.is_first:
            x = x + self._receive(self.index - 1, x.device)
        if not self.is_last:
            self.send(x)
        return x

    def fail(self, error: Exception, encodes: bool) -> None:
        """Send an error to the stages that wait for a message of this one in this step.

        encodes: True if the step encodes inputs, so that other stages wait for the encoder's output.
        """
        message = Message(self.step, error)
        if not self.is_last:
            self._links[self.index + 1].send(message)
        elif encodes:
            for index in range(self.index):
                self._links[index].send(message)

    def _receive(self, stage: int, device: torch.device) -> Tensor:
        """Receive a stage's tensor of this step, onto a device. Raises the stage's exception if it failed."""
        step, content = self._links[stage].receive()
        while step < self.step:
            step, content = self._links[stage].receive()
        if step > self.step:
            raise ExchangeError(f"stages are out of step: {stage} computes {step}, {self.index} {self.step}")
        if isinstance(content, Exception):
            raise content
        return content.to(device)
