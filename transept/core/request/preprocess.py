"""InputPreprocessor: turns a user's prompt into the inputs of the encoder and of the decoder.

The input processor calls it for every request. It needs a ModelSpec and a CheckpointView, but no model.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from blake3 import blake3

from transept.core.model_shape import ModelShape
from transept.core.request.inputs import DecoderInputs, EncoderDecoderInputs, EncoderInputs
from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.core.request.prompts import Prompt
from transept.core.request.text_features import map_text_features
from transept.errors import PluginError, PromptError, suggest
from transept.multimodal.mapping import EncoderPrompt, MappedInput, map_input
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import call_prompt_rule
from transept.registry.spec import ModelSpec

_CONTENT_KEYS = ("prompt", "prompt_tokens", "prompt_token_ids")
_SINGLE_KEYS = (*_CONTENT_KEYS, "encoder_inputs", "multi_modal_data", "multi_modal_uuids")
_EXPLICIT_KEYS = ("encoder_prompt", "decoder_prompt")
NO_TOKENIZER = "this checkpoint has no tokenizer; pass token ids: TokensPrompt(prompt_tokens=[...])"


@dataclass(frozen=True)
class _Single:
    """The parts of a single prompt: text or token ids, and multimodal data with names for it.

    inputs: the prompt's encoder_inputs.
    """

    text: str | None
    token_ids: list[int] | None
    data: Mapping[str, Any] | None
    uuids: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True if there is neither text nor tokens."""
        return not self.text and not self.token_ids


class InputPreprocessor:
    """Converts prompts to EncoderDecoderInputs.

    shape: of the model. Without source_vocab_size, the vocab_size of the config counts, else of the encoder's config,
        else of the decoder.
    tokenizers: for the encoder's text and for the decoder's; None without one. limits: for a prompt's text.
    """

    def __init__(
        self,
        spec: ModelSpec,
        view: CheckpointView,
        shape: ModelShape,
        tokenizers: tuple[Any, Any],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.spec, self.view, self.shape, self.limits = spec, view, shape, limits
        self.source_tokenizer, self.tokenizer = tokenizers
        configs = (view.config, getattr(view.config, "encoder", None))
        of_configs = [getattr(config, "vocab_size", None) for config in configs]
        self.source_vocab_size: int = shape.source_vocab_size or of_configs[0] or of_configs[1] or shape.vocab_size

    def __call__(self, prompt: Prompt) -> EncoderDecoderInputs:
        """Split and tokenize a prompt of any form.

        Raises PromptError for a malformed or too long prompt, MediaError for multimodal data that cannot be used.
        """
        encoder, decoder = self._take_sides_apart(prompt)
        return EncoderDecoderInputs(self._encoder_inputs(encoder), self._decoder_inputs(decoder))

    def encoder_inputs(self, prompt: Prompt) -> EncoderInputs:
        """Return the encoder's inputs. Raises as a call, and PromptError for a prompt with a decoder's side."""
        encoder, decoder = self._take_sides_apart(prompt)
        if decoder is not None:
            message = "the prompt has a decoder's side, and the request only encodes: leave that side out"
            raise PromptError(message, param="decoder_prompt")
        return self._encoder_inputs(encoder)

    def _take_sides_apart(self, prompt: Prompt) -> tuple[_Single, _Single | None]:
        if isinstance(prompt, Mapping) and any(key in prompt for key in _EXPLICIT_KEYS):
            return self._take_explicit_apart(prompt)
        single = _take_apart(prompt)
        if single.data is None or self._is_prompted(single.data):
            return single, None
        # The data is for the encoder, and the text or the tokens are for the decoder.
        decoder = None if single.empty else _Single(single.text, single.token_ids, None)
        return _Single(None, None, single.data, single.uuids), decoder

    def _take_explicit_apart(self, prompt: Mapping[str, Any]) -> tuple[_Single, _Single | None]:
        for key in prompt:
            if key not in _EXPLICIT_KEYS:
                raise PromptError(
                    f"an explicit encoder/decoder prompt has no {key!r}.{suggest(str(key), _EXPLICIT_KEYS)}"
                )
        if prompt.get("encoder_prompt") is None:
            raise PromptError("encoder_prompt is missing; only decoder_prompt may be None", param="encoder_prompt")
        encoder = _take_apart(prompt["encoder_prompt"])
        if encoder.data is not None and not encoder.empty and not self._is_prompted(encoder.data):
            raise PromptError(
                f'encoder_prompt holds text and multimodal data, and the encoder of "{self.spec.name}" models reads no '
                "text beside data; put the text into decoder_prompt",
                param="encoder_prompt",
            )
        given = prompt.get("decoder_prompt")
        decoder = None if given is None else _take_apart(given)
        if decoder is not None and (decoder.data or decoder.inputs):
            misplaced = "multi_modal_data" if decoder.data else "encoder_inputs"
            message = f"decoder_prompt holds {misplaced}, which only the encoder takes: move it to encoder_prompt"
            raise PromptError(message, param="decoder_prompt")
        return encoder, decoder

    def _is_prompted(self, data: Mapping[str, Any]) -> bool:
        """True if the encoder reads text beside this data."""
        return any(modality in self.spec.prompted_modalities for modality in data)

    def _encoder_inputs(self, single: _Single) -> EncoderInputs:
        if single.data is not None:
            return self._multimodal_inputs(single, single.data)
        if not self.shape.encoder_takes_text:
            takes = ", ".join(f'{{"multi_modal_data": {{"{name}": ...}}}}' for name in self.spec.input_mappers)
            raise PromptError(f'the encoder of "{self.spec.name}" models takes no text; pass {takes}')
        token_ids = self._token_ids(single, self.source_tokenizer, self.source_vocab_size, add_special_tokens=True)
        if not token_ids:
            raise PromptError("the encoder's prompt is empty")
        self._check_source_length(len(token_ids))
        features = map_text_features(self.spec, self.view, single.inputs, token_ids)
        text, key = _text(single.text, token_ids, self.source_tokenizer), content_key({"": token_ids, **features})
        return EncoderInputs(text, token_ids, len(token_ids), features, content_key=key)

    def _multimodal_inputs(self, single: _Single, given: Mapping[str, Any]) -> EncoderInputs:
        """Return the encoder's inputs for data, and for text beside it if the encoder reads that."""
        if len(given) != 1:
            message = f"multi_modal_data holds {sorted(given)}; give exactly one modality"
            raise PromptError(message, param="multi_modal_data", value=given)
        ((modality, data),) = given.items()
        mapped = map_input(self.spec, self.view, modality, data, self._encoder_prompt(single))
        mapper = f'the "{modality}" mapper of {self.spec.known_as}'
        token_ids = [operator.index(token) for token in mapped.token_ids]
        if outside := [token for token in token_ids if not 0 <= token < self.source_vocab_size]:
            last = self.source_vocab_size - 1
            raise PromptError(f"{mapper} made token id {outside[0]} of the prompt, but ids go from 0 to {last}")
        limit = self.shape.max_source_positions
        if single.empty and limit is not None and mapped.num_tokens > limit:
            raise PluginError(
                f"{mapper} declared num_tokens={mapped.num_tokens}, and the encoder gives {limit} tokens at most, by "
                "max_source_positions of the model's shape(config). That is for the plugin's author: correct one of "
                "the two, or if the data is longer than the model takes, raise a MediaError in the mapper"
            )
        self._check_source_length(mapped.num_tokens)
        name = single.uuids.get(modality)
        known_by = mapped.kwargs if name is None else {"modality": modality, "name": name, "form": _form(mapped)}
        if token_ids:
            known_by = {**known_by, "token_ids": token_ids}
        key = content_key(known_by)
        return EncoderInputs(single.text or None, token_ids, mapped.num_tokens, mapped.kwargs, key, mapper)

    def _encoder_prompt(self, single: _Single) -> EncoderPrompt:
        """Return text or token ids for the mapper. Raises PromptError if they are outside limits or vocabulary."""
        if single.empty:
            return EncoderPrompt()
        if single.token_ids is not None:
            _check_token_ids(single.token_ids, self.source_vocab_size)
            return EncoderPrompt(token_ids=single.token_ids)
        self._check_text(single, self.source_tokenizer)
        return EncoderPrompt(single.text)

    def _check_source_length(self, num_tokens: int) -> None:
        limit = self.shape.max_source_positions
        if limit is not None and num_tokens > limit:
            raise PromptError(f"the encoder's prompt has {num_tokens} tokens; this model reads {limit}: shorten it")

    def _decoder_inputs(self, single: _Single | None) -> DecoderInputs:
        text = None
        if single is None:
            token_ids = call_prompt_rule(self.spec, "default_decoder_prompt", self.view)
        else:
            vocab_size = self.shape.vocab_size
            try:
                given = self._token_ids(single, self.tokenizer, vocab_size, add_special_tokens=False)
            except PromptError as error:
                error.param = "decoder_prompt"
                raise
            token_ids = call_prompt_rule(self.spec, "prepare_decoder_prompt", given, self.view)
            text = single.text if token_ids == given else None  # the rule changed the tokens, so the text too
            token: Any  # of a plugin's rule
            for token in token_ids:
                if token is not None and not (isinstance(token, Integral) and 0 <= int(token) < vocab_size):
                    raise PromptError(
                        f'the decoder prompt rule of "{self.spec.name}" models gives {reprlib.repr(token_ids)}, but '
                        f"token ids go from 0 to {vocab_size - 1}",
                        param="decoder_prompt",
                    )
        if not token_ids:
            message = f'the decoder\'s prompt is empty; the rules of "{self.spec.name}" models leave no token'
            raise PromptError(message, param="decoder_prompt")
        if None in token_ids:
            raise PromptError(
                "the start of the decoder's prompt is unknown: this checkpoint's config lacks decoder_start_token_id "
                "or bos_token_id; pass a decoder_prompt with all its tokens",
                param="decoder_prompt",
            )
        limit = self.shape.max_target_positions
        if limit is not None and len(token_ids) >= limit:
            raise PromptError(
                f"the decoder's prompt has {len(token_ids)} tokens; this model has {limit} positions for prompt and "
                "output together: shorten it",
                param="decoder_prompt",
            )
        return DecoderInputs(_text(text, token_ids, self.tokenizer), token_ids)

    def decoder_inputs(self, token_ids: list[int] | None) -> DecoderInputs:
        """Return the decoder's inputs for these token ids; None: the family's default. Raises PromptError."""
        return self._decoder_inputs(None if token_ids is None else _Single(None, token_ids, None))

    def _token_ids(self, single: _Single, tokenizer: Any, vocab_size: int, *, add_special_tokens: bool) -> list[int]:
        """Return the prompt's token ids, or its text's, in which special tokens such as ``<|en|>`` are recognised."""
        token_ids = single.token_ids
        if token_ids is None:
            self._check_text(single, tokenizer)
            token_ids = list(tokenizer(single.text, add_special_tokens=add_special_tokens).input_ids)
        _check_token_ids(token_ids, vocab_size)
        return token_ids

    def _check_text(self, single: _Single, tokenizer: Any) -> None:
        if tokenizer is None:
            raise PromptError(NO_TOKENIZER)
        self.limits.check_text(single.text or "", "the prompt")


def _check_token_ids(token_ids: list[int], vocab_size: int) -> None:
    for token in token_ids:
        if not 0 <= token < vocab_size:
            raise PromptError(f"token id {token} is outside of the vocabulary, 0 to {vocab_size - 1}")


def _text(text: str | None, token_ids: Sequence[int], tokenizer: Any) -> str | None:
    if text is not None or tokenizer is None:
        return text
    return str(tokenizer.decode(token_ids, skip_special_tokens=False))


def _take_apart(prompt: Any) -> _Single:
    if isinstance(prompt, str):
        return _Single(prompt, None, None)
    if not isinstance(prompt, Mapping):
        raise PromptError(f"a prompt is a string or a dict, such as TextPrompt, not {type(prompt).__name__}")
    for key in prompt:
        if key not in _SINGLE_KEYS:
            raise PromptError(f"a prompt has no {key!r}.{suggest(str(key), (*_SINGLE_KEYS, *_EXPLICIT_KEYS))}")
    given = [key for key in _CONTENT_KEYS if prompt.get(key) is not None]
    data = prompt.get("multi_modal_data")
    if data is not None and not (isinstance(data, Mapping) and all(isinstance(modality, str) for modality in data)):
        shown = reprlib.repr([*data]) if isinstance(data, Mapping) else f"a {type(data).__name__}"
        message = f'multi_modal_data is {{modality: data}}, such as {{"audio": "talk.flac"}}, not {shown}'
        raise PromptError(message, param="multi_modal_data", value=data)
    data = data or None
    uuids = _uuids(prompt.get("multi_modal_uuids"), data)
    inputs = _inputs(prompt.get("encoder_inputs"), data)
    if len(given) > 1:
        raise PromptError(f"a prompt holds both {given[0]!r} and {given[1]!r}; give one of them")
    if not given and data is None:
        raise PromptError("the prompt is empty; give prompt, prompt_tokens or multi_modal_data")
    if not given:
        return _Single(None, None, data, uuids)
    value = prompt[given[0]]
    if given[0] == "prompt":
        if not isinstance(value, str):
            message = f"prompt must be a string, not {type(value).__name__}; token ids go into prompt_tokens"
            raise PromptError(message, param="prompt", value=value)
        return _Single(value, None, data, uuids, inputs)
    try:
        return _Single(None, [operator.index(token) for token in value], data, uuids, inputs)
    except TypeError:
        message = f"{given[0]} must be a list of token ids, not {reprlib.repr(value)}"
        raise PromptError(message, param=given[0], value=value) from None


def _inputs(given: Any, data: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        message = f"encoder_inputs is {{name: value}}, with the model family's names, not {reprlib.repr(given)}"
        raise PromptError(message, param="encoder_inputs", value=given)
    if given and data is not None:
        message = "encoder_inputs go with text that the encoder reads; this prompt holds multi_modal_data"
        raise PromptError(message, param="encoder_inputs", value=given)
    return given


def _uuids(given: Any, data: Mapping[str, Any] | None) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or any(not isinstance(name, str) or not name for name in given.values()):
        message = 'multi_modal_uuids is {modality: your name for its data}, such as {"audio": "talk-1"}'
        raise PromptError(message, param="multi_modal_uuids", value=given)
    if missing := [modality for modality in given if modality not in (data or {})]:
        message = f"multi_modal_uuids names {missing[0]!r}, which multi_modal_data does not have"
        raise PromptError(message, param="multi_modal_uuids", value=given)
    return given


def _form(mapped: MappedInput) -> str:
    """Return an input's length, shapes and dtypes. Inputs of one name share a cross table only if these agree."""
    forms = [
        f"{keyword} {getattr(value, 'dtype', type(value).__name__)} {tuple(getattr(value, 'shape', ()))}"
        for keyword, value in sorted(mapped.kwargs.items())
    ]
    return ", ".join([f"{mapped.num_tokens} tokens", *forms])


def content_key(encoder_input: Mapping[str, Any]) -> bytes | None:
    """Return a hash of the encoder's input; None for values that NumPy cannot represent.

    A cryptographic hash, so that no request can forge another's key. BLAKE3 takes 0.35 ms for a window of audio
    (1.5 MB), and BLAKE2 2.8 to 3.8 ms (best of 50 on a 4th-generation Xeon).
    """
    digest = blake3()
    for name, value in sorted(encoder_input.items()):
        try:
            array = np.ascontiguousarray(value.cpu() if hasattr(value, "cpu") else value)
        except TypeError:  # PyTorch's, for a dtype that NumPy lacks
            return None
        if array.dtype.hasobject:
            return None
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest(length=16)
