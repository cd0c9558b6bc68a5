"""map_input: from raw data of a modality to the encoder's input, with the mapper that the model's plugin declares.

Preprocessing calls it once for each item of a request's multimodal data. The mapper defines the types of the data:
nothing here decodes, or depends on a model family.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transept.errors import MediaError, PluginError
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import call_plugin
from transept.registry.spec import ModelSpec


@dataclass(frozen=True)
class MappedInput:
    """A mapper's result for one item: the encoder's input and its length.

    kwargs: the encoder's keyword arguments for one item, without a batch dimension, such as
        ``{"input_features": Tensor}`` with [num_mels, num_frames] float32.
    num_tokens: the length of the encoder's output in tokens, at least 1: the slots of the cross cache.
    token_ids: for an encoder that also reads text, the ids of all num_tokens tokens, with placeholders for the data;
        otherwise empty.
    """

    kwargs: dict[str, Any]
    num_tokens: int
    token_ids: Sequence[int] = ()


@dataclass(frozen=True)
class EncoderPrompt:
    """The text of a prompt with multimodal data, for an encoder that reads both.

    text: None if token_ids are given, or neither. token_ids: in the vocabulary; None if text is given.
    """

    text: str | None = None
    token_ids: Sequence[int] | None = None


InputMapper = Callable[..., MappedInput]
"""(raw data, view) -> MappedInput, or (raw data, view, EncoderPrompt) -> MappedInput of prompted modalities.

Raises MediaError when the data cannot be read or does not fit the model.
"""


def map_input(
    spec: ModelSpec, view: CheckpointView, modality: str, data: Any, prompt: EncoderPrompt | None = None
) -> MappedInput:
    """Turn one item of multimodal data into the encoder's input.

    spec: the model family, whose ``input_mappers`` has the mapper. view: of the checkpoint, passed to the mapper.
    modality: such as ``"audio"``. data: of the mapper's types. prompt: for the mapper of a prompted modality.
    Raises MediaError if the family has no mapper for this modality, and the mapper's own errors for bad data;
    PluginFailedError for its other exceptions, and PluginError if its result is invalid.
    """
    if modality not in spec.input_mappers:
        known = sorted(spec.input_mappers)
        if not known:
            raise MediaError(f'"{spec.name}" models cannot read "{modality}" data: they take text only')
        listed = ", ".join(f'"{name}"' for name in known)
        message = f'"{spec.name}" models have no mapper for "{modality}" data. They take: {listed}'
        nearest = difflib.get_close_matches(modality, known, n=1)
        raise MediaError(message + (f'; did you mean "{nearest[0]}"?' if nearest else ""))
    prompts = [prompt or EncoderPrompt()] if modality in spec.prompted_modalities else []
    mapped = call_plugin(spec, f'the "{modality}" mapper', spec.input_mappers[modality], data, view, *prompts)
    mapper = f'the "{modality}" mapper of {spec.known_as}'
    if not isinstance(mapped, MappedInput):
        raise PluginError(f"{mapper} returned {type(mapped).__name__}; it must return a MappedInput")
    if not isinstance(mapped.kwargs, dict) or not all(isinstance(keyword, str) for keyword in mapped.kwargs):
        raise PluginError(f"{mapper} returned kwargs that are not a dict of the encoder's keyword arguments")
    if isinstance(mapped.num_tokens, bool) or not isinstance(mapped.num_tokens, int) or mapped.num_tokens < 1:
        raise PluginError(f"{mapper} returned num_tokens={mapped.num_tokens!r}; it must be an int, 1 or more")
    if not mapped.kwargs and not mapped.token_ids:
        raise PluginError(f"{mapper} returned neither kwargs nor token_ids: nothing for the encoder")
    if len(mapped.token_ids) not in (0, mapped.num_tokens):
        raise PluginError(
            f"{mapper} returned {len(mapped.token_ids)} token_ids and num_tokens={mapped.num_tokens}; return an id for "
            "every token, with placeholders for the data"
        )
    return mapped
