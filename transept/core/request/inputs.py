"""The input processor's result: inputs of encoder and decoder, and complete sampling parameters.

No torch here: features travel as opaque values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transept.core.request.pooling import Pooling
from transept.core.request.sampling_params import SamplingParams


@dataclass(frozen=True)
class EncoderInputs:
    """Inputs of the encoder.

    num_tokens: length of the encoder's output, which is the number of cross-attention slots.
    features: the encoder's keyword arguments for multimodal input; empty for text.
    token_ids: all tokens, if the encoder reads text alone or beside features; else empty.
    content_key: equal for equal token ids and features, so that they are encoded once; None: never shared.
    mapper: name of the function that made the features and declared num_tokens, for messages; None for text.
    """

    prompt: str | None
    token_ids: list[int]
    num_tokens: int
    features: Mapping[str, Any] = field(default_factory=dict)
    content_key: bytes | None = None
    mapper: str | None = None


@dataclass(frozen=True)
class DecoderInputs:
    """Inputs of the decoder: its prompt."""

    prompt: str | None
    token_ids: list[int]


@dataclass(frozen=True)
class EncoderDecoderInputs:
    """A preprocessed prompt: both sides, ready to run."""

    encoder: EncoderInputs
    decoder: DecoderInputs


@dataclass(frozen=True, eq=False)
class Adapter:
    """A LoRA adapter, loaded under a name. number: unique in this engine. updates: its LowRankUpdates."""

    number: int
    name: str
    updates: Any


class AdapterName(str):
    """A name that means one adapter, also after the adapter is unloaded, or another one is loaded under the name.

    A job takes it when it is made, because its requests may follow much later.
    """

    adapter: Adapter


@dataclass(frozen=True)
class PreparedRequest:
    """A request that is ready to be queued: the input processor's result.

    sampling_params: complete, with the checkpoint's settings and a seed if the request samples.
    pooling: for a request that only encodes: its decoder side is empty, and its sampling_params have no effect.
    adapter: to compute with; by now, its name may mean another adapter.
    """

    inputs: EncoderDecoderInputs
    sampling_params: SamplingParams
    pooling: Pooling | None = None
    adapter: Adapter | None = None
