"""Requests as users make them: a prompt and its sampling parameters.

The prompt types are TypedDicts, so plain dicts serve as well.

An encoder/decoder model takes two prompts. A lone prompt belongs to the encoder, unless it carries multimodal data:
the data then goes to the encoder and the text or the tokens to the decoder. Where a family's encoder reads text beside
the data (`ModelSpec.prompted_modalities`) both go to the encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict

from transept.core.request.sampling_params import SamplingParams


class TextPrompt(TypedDict):
    """A prompt given as text."""

    prompt: str
    encoder_inputs: NotRequired[Mapping[str, Any]]  # what the family's encoder takes beside text, by its names
    multi_modal_data: NotRequired[Mapping[str, Any]]  # modality -> data, such as {"audio": "talk.flac"}
    multi_modal_uuids: NotRequired[Mapping[str, str]]  # modality -> a name of yours; data of one name is encoded once


class TokensPrompt(TypedDict):
    """A prompt given as token ids, under one of the two names; users of other engines know the second."""

    prompt_tokens: NotRequired[Sequence[int]]
    prompt_token_ids: NotRequired[Sequence[int]]
    encoder_inputs: NotRequired[Mapping[str, Any]]
    multi_modal_data: NotRequired[Mapping[str, Any]]
    multi_modal_uuids: NotRequired[Mapping[str, str]]


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
    """

    prompt: Prompt
    sampling_params: SamplingParams | None = None
    generation_config: Any | None = None
