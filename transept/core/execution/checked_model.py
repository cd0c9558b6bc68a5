"""CheckedModel: calls a plugin's model, checks the shapes of its results, and names the plugin in its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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

    Every method raises PluginError for a result of the wrong shape, and PluginFailedError for any exception of the
    model, except a TranseptError or an out-of-memory error, which it passes on.
    """

    def __init__(self, spec: ModelSpec, model: ForConditionalGeneration) -> None:
        self.spec, self.model = spec, model
        self._vocab_size = model.shape(model.config).vocab_size

    @contextmanager
    def encoding(self, inputs: Sequence[EncoderInputs], metadata: AttentionMetadata) -> Iterator[None]:
        """Call the model's `encode` in this context. inputs: those of the pass."""
        try:
            with self._calling("encode"):
                yield
        except PluginError as error:
            differ = error.__cause__
            if not isinstance(differ, RowsDifferError) or differ.metadata is not metadata:  # or the model made it
                raise
            raise self._unlike_declared(inputs, differ.rows) from None

    def check_encoded(self, inputs: Sequence[EncoderInputs], hidden: Any) -> None:
        """Raise PluginError if `encode` did not return a row for each token of these inputs."""
        if not isinstance(hidden, Tensor) or hidden.dim() != 2:
            returned = [*hidden.shape] if isinstance(hidden, Tensor) else type(hidden).__name__
            raise PluginError(
                f"{self._named('encode')} returned {returned}; it must return a tensor [encoder tokens, hidden size]"
            )
        if len(hidden) != sum(each.num_tokens for each in inputs):
            raise self._unlike_declared(inputs, len(hidden))

    def keys_and_values(self, attention: MakesKeysAndValues, hidden: Tensor, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        """Return a decoder layer's keys and values of the encoder's output. Raises PluginError for a wrong shape."""
        method = f"{type(attention).__name__}.keys_and_values"
        with guarded(self.spec, method):
            key, value = attention.keys_and_values(hidden)
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
        """Return the decoder's output, [rows, hidden]."""
        with self._calling("decode"):
            hidden = self.model.decode(input_ids, positions, kv_caches, metadata)
        _check_shape(self._named("decode"), hidden, len(input_ids), None)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return logits, [rows, vocabulary]."""
        with self._calling("compute_logits"):
            logits = self.model.compute_logits(hidden)
        _check_shape(self._named("compute_logits"), logits, len(hidden), self._vocab_size)
        return logits

    def _calling(self, method: str) -> AbstractContextManager[None]:
        return guarded(self.spec, f"{type(self.model).__name__}.{method}")

    def _named(self, method: str) -> str:
        return f"{type(self.model).__name__}.{method} of {self.spec.known_as}"

    def _unlike_declared(self, inputs: Sequence[EncoderInputs], rows: int) -> PluginError:
        """Return the error for an `encode` that returned `rows` rows for these inputs."""
        expected = sum(each.num_tokens for each in inputs)
        mappers = sorted({each.mapper or "the prompt's token ids" for each in inputs})
        lengths = ", ".join(str(each.num_tokens) for each in inputs)
        return PluginError(
            f"{self._named('encode')} returned {rows} rows, but {' and '.join(mappers)} declared {expected} encoder "
            f"tokens (num_tokens={lengths}): correct one of the two"
        )


@contextmanager
def guarded(spec: ModelSpec, what: str) -> Iterator[None]:
    """Run a plugin's function in this context. what: its name in messages."""
    try:
        with plugin_named(spec):
            yield
    except (TranseptError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        trace = error.__traceback__  # begins here
        raise plugin_failure(spec, what, error.with_traceback(trace and trace.tb_next)) from error


def _check_shape(method: str, returned: Any, rows: int, width: int | None) -> None:
    """Raise PluginError unless a result is a tensor [rows, width]. width: None for any."""
    if not isinstance(returned, Tensor):
        raise PluginError(f"{method} returned {type(returned).__name__}; it must return a tensor")
    if returned.dim() != 2 or len(returned) != rows or width not in (None, returned.shape[1]):
        wanted = f"[{rows}, {'hidden size' if width is None else width}]"
        raise PluginError(f"{method} returned {[*returned.shape]}; it must return {wanted}")
