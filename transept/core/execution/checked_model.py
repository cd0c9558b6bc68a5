"""CheckedModel: calls a plugin's model. Its errors name the plugin, and its results have the right shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transept.core.attention.attention import RowsDifferError
from transept.core.attention.metadata import AttentionMetadata
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.request.inputs import EncoderInputs
from transept.errors import PluginError, TranseptError
from transept.registry.plugin_calls import plugin_failure, plugin_named
from transept.registry.spec import ModelSpec


class CheckedModel:
    """Calls a model's methods.

    All raise PluginFailedError for any foreign error but lack of memory, and PluginError for a result of another shape.
    """

    def __init__(self, spec: ModelSpec, model: ForConditionalGeneration) -> None:
        self.spec, self.model = spec, model
        self._vocab_size = model.shape(model.config).vocab_size

    def encode(
        self,
        inputs: Sequence[EncoderInputs],
        input_ids: Tensor | None,
        positions: Tensor | None,
        metadata: AttentionMetadata,
        features: dict[str, list[Tensor]],
    ) -> Tensor:
        """The encoder's output, [encoder tokens, hidden]. inputs: those that the other arguments are made of."""
        try:
            hidden = self._call("encode", input_ids, positions, metadata, **features)
        except PluginError as error:
            differ = error.__cause__
            if not isinstance(differ, RowsDifferError) or differ.metadata is not metadata:  # which a model may make
                raise
            raise _unlike_declared(self._named("encode"), inputs, differ.rows) from None
        _check_encoded(self._named("encode"), inputs, hidden)
        return hidden

    def keys_and_values(self, attention: MakesKeysAndValues, hidden: Tensor, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that a decoder layer's cross-attention makes of the encoder's output, checked."""
        method = f"{type(attention).__name__}.keys_and_values"
        key, value = self._guarded(method, attention.keys_and_values, hidden)
        expected = [len(hidden), *kv_cache.shape[3:]]
        for each in (key, value):
            if [*each.shape] != expected:
                raise PluginError(
                    f"{method} of {self.spec.known_as} returned {[*each.shape]}, and the cache takes {expected}: have "
                    f"{type(self.model).__name__}.shape return the layers' num_kv_heads and head_dim"
                )
        return key, value

    def decode(
        self, input_ids: Tensor, positions: Tensor, kv_caches: list[Tensor], metadata: AttentionMetadata
    ) -> Tensor:
        """The decoder's output, [rows, hidden]."""
        hidden = self._call("decode", input_ids, positions, kv_caches, metadata)
        _check_shape(self._named("decode"), hidden, len(input_ids), None)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits, [rows, vocabulary]."""
        logits = self._call("compute_logits", hidden)
        _check_shape(self._named("compute_logits"), logits, len(hidden), self._vocab_size)
        return logits

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        return self._guarded(
            f"{type(self.model).__name__}.{method}", getattr(self.model, method), *arguments, **keywords
        )

    def _guarded(self, what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a function of the plugin's, which `what` names in messages."""
        try:
            with plugin_named(self.spec):
                return function(*arguments, **keywords)
        except (TranseptError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise plugin_failure(self.spec, what, error) from error

    def _named(self, method: str) -> str:
        return f"{type(self.model).__name__}.{method} of {self.spec.known_as}"


def _check_encoded(encode: str, batch: Sequence[EncoderInputs], hidden: Any) -> None:
    """Raise PluginError where `encode` did not return a row for each of these inputs' tokens."""
    expected = sum(inputs.num_tokens for inputs in batch)
    if not isinstance(hidden, Tensor) or hidden.dim() != 2:
        returned = [*hidden.shape] if isinstance(hidden, Tensor) else type(hidden).__name__
        raise PluginError(f"{encode} returned {returned}; it must return a tensor [encoder tokens, hidden size]")
    if len(hidden) != expected:
        raise _unlike_declared(encode, batch, len(hidden))


def _unlike_declared(encode: str, batch: Sequence[EncoderInputs], rows: int) -> PluginError:
    """An error for an `encode` that makes as many rows of these inputs."""
    expected = sum(inputs.num_tokens for inputs in batch)
    mappers = sorted({inputs.mapper or "the prompt's token ids" for inputs in batch})
    lengths = ", ".join(str(inputs.num_tokens) for inputs in batch)
    return PluginError(
        f"{encode} returned {rows} rows, but {' and '.join(mappers)} declared {expected} encoder tokens "
        f"(num_tokens={lengths}): correct one of the two"
    )


def _check_shape(method: str, returned: Any, rows: int, width: int | None) -> None:
    """Raise PluginError unless a result is a tensor [rows, width]. width: None for any."""
    if not isinstance(returned, Tensor):
        raise PluginError(f"{method} returned {type(returned).__name__}; it must return a tensor")
    if returned.dim() != 2 or len(returned) != rows or width not in (None, returned.shape[1]):
        wanted = f"[{rows}, {'hidden size' if width is None else width}]"
        raise PluginError(f"{method} returned {[*returned.shape]}; it must return {wanted}")
