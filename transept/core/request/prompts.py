"""Request: a user's prompt and sampling parameters.

The prompt types are TypedDicts, so plain dicts work as well.

An encoder/decoder model takes two prompts. A single prompt is the encoder's, unless it has multimodal data: then the
data is the encoder's, and the text or the tokens are the decoder's. If a family's encoder reads text beside the data
(`ModelSpec.prompted_modalities`), both are the encoder's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict

from transept.core.request.pooling import Pooling
from transept.core.request.sampling_params import SamplingParams


class _FurtherInputs(TypedDict, total=False):
    encoder_inputs: Mapping[str, Any]  # further inputs of the family's encoder, by name
    multi_modal_data: Mapping[str, Any]  # modality -> data, such as {"audio": "talk.flac"}
    multi_modal_uuids: Mapping[str, str]  # modality -> your name for the data, which is encoded once


class TextPrompt(_FurtherInputs):
    """A prompt given as text."""

    prompt: str


class TokensPrompt(_FurtherInputs, total=False):
    """A prompt given as token ids, under one of the two names; other engines use the second."""

    prompt_tokens: Sequence[int]
    prompt_token_ids: Sequence[int]


class MultiModalPrompt(TypedDict):
    """Multimodal data alone: the decoder gets the family's default prompt."""

    multi_modal_data: Mapping[str, Any]
    multi_modal_uuids: NotRequired[Mapping[str, str]]


SingletonPrompt: TypeAlias = str | TextPrompt | TokensPrompt | MultiModalPrompt


class ExplicitEncoderDecoderPrompt(TypedDict):
    """Both sides, each a prompt of any single form; no multimodal data on the decoder's side."""

    encoder_prompt: SingletonPrompt
    decoder_prompt: SingletonPrompt | None  # None: the family's default decoder prompt


Prompt: TypeAlias = SingletonPrompt | ExplicitEncoderDecoderPrompt


@dataclass(frozen=True)
class Request:
    """A prompt and its parameters, as a user passes them to the engine.

    sampling_params: None takes the checkpoint's settings.
    generation_config: a transformers GenerationConfig or a PlainConfig that replaces the checkpoint's, for fields that
        sampling_params does not set.
    pooling: for a request that only encodes, whose output is an embedding. The three exclude each other.
    lora: name of the LoRA adapter to compute with; None: no adapter.
    """

    prompt: Prompt
    sampling_params: SamplingParams | None = None
    generation_config: Any | None = None
    pooling: Pooling | None = None
    lora: str | None = None
