"""InputProcessor: prepares requests for the scheduler. It is called once for each request, in any thread."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from transept.core.request.generation_defaults import complete as complete_params
from transept.core.request.generation_defaults import tokenize_bad_words, tokenize_draft, within_vocabulary
from transept.core.request.generation_settings import check_generation_settings
from transept.core.request.grammars import Grammars
from transept.core.request.guided import Grammar, Guide
from transept.core.request.ignored_settings import IgnoredSettings
from transept.core.request.inputs import Adapter, DecoderInputs, EncoderDecoderInputs, PreparedRequest
from transept.core.request.keywords import REMEMBERED, Keywords, tokenize_keywords
from transept.core.request.pooling import Pooling
from transept.core.request.preprocess import InputPreprocessor
from transept.core.request.prompts import Request
from transept.core.request.sampling_params import SamplingParams
from transept.errors import CheckpointError, ParameterError, RequestFailedError, TranseptError
from transept.options import refusal
from transept.registry.plain_config import PlainConfig
from transept.registry.special_tokens import config_token

NO_TOKENS = SamplingParams(max_tokens=1)  # of a request that only encodes; they have no effect


def not_params(given: Any) -> ParameterError:
    """Return the error of sampling_params of another type."""
    message = f"must be SamplingParams, not {type(given).__name__}; make one of a dict by SamplingParams(**it)"
    return ParameterError(f"{{sampling_params}} {message}", param="sampling_params", value=given)


class InputProcessor:
    """Preprocesses prompts and completes sampling parameters.

    ignored_settings: warns of unsupported settings in a request's generation config. max_num_seqs: of the engine.
    find_adapter: returns the adapter with a name. has_draft_model: of the engine.
    """

    def __init__(
        self,
        preprocess: InputPreprocessor,
        ignored_settings: IgnoredSettings,
        max_num_seqs: int,
        find_adapter: Callable[[str], Adapter],
        has_draft_model: bool = False,
    ) -> None:
        self.preprocess, self.ignored_settings, self.max_num_seqs = preprocess, ignored_settings, max_num_seqs
        self.find_adapter, self.has_draft_model = find_adapter, has_draft_model
        self._grammars = Grammars(lambda: preprocess.tokenizer, preprocess.shape.vocab_size)
        self._tokenize_keywords = lru_cache(REMEMBERED)(tokenize_keywords)  # all windows of a recording have the same
        self.generation_config = preprocess.view.generation_config
        # The checkpoint's end-of-sequence tokens, for a request's generation config without any.
        eos = getattr(self.generation_config, "eos_token_id", None)
        eos = config_token(preprocess.view.config, "eos_token_id") if eos is None else eos
        self.eos_token_ids = within_vocabulary(eos, preprocess.shape.vocab_size)

    def __call__(self, request: Request) -> PreparedRequest:
        """Preprocess the prompt and complete the sampling parameters.

        Raises PromptError or MediaError for a bad prompt, ParameterError for bad parameters and an unknown adapter,
        RequestFailedError for any other exception of a mapper or a tokenizer.
        """
        if not isinstance(request.sampling_params, SamplingParams | None):
            raise not_params(request.sampling_params)
        given = request.generation_config
        if not (given is None or isinstance(given, PlainConfig) or hasattr(given, "eos_token_id")):
            raise ParameterError(
                "{generation_config} must be a GenerationConfig of transformers or a PlainConfig, not "
                f"{type(given).__name__}",
                param="generation_config",
                value=given,
            )
        if request.pooling is not None:
            _check_pooling(request)
        adapter = None if request.lora is None else self.find_adapter(request.lora)
        try:
            if request.pooling is not None:
                sides = EncoderDecoderInputs(self.preprocess.encoder_inputs(request.prompt), DecoderInputs(None, []))
                return PreparedRequest(sides, NO_TOKENS, request.pooling, adapter)
            inputs = self.preprocess(request.prompt)
        except TranseptError:
            raise
        except Exception as error:  # any kind: a plugin's mapper may raise anything
            raise RequestFailedError.of(error) from error
        if not inputs.encoder.token_ids:
            _check_encoder_rules(request.sampling_params)
        if adapter is not None:
            inputs = _encoded_with(adapter, inputs)
        return PreparedRequest(inputs, self._params(request, inputs.decoder.token_ids), adapter=adapter)

    def for_task(
        self, params: SamplingParams, settings: Mapping[str, Any], decoder_prompt: list[int] | None, source: str
    ) -> Any | None:
        """Check the parameters that a task's requests share, and return their generation config (see Request).

        settings: the task's, which override the checkpoint's; returns None if they are empty. source: of the settings,
        for errors. decoder_prompt: token ids; None: the family's default.
        Raises ParameterError for parameters that contradict each other or the model, CapacityError for too many beams,
        PromptError for the prompt, CheckpointError for the settings.
        """
        config = copy.deepcopy(self.generation_config) if settings else None
        if config is not None:
            try:
                config.update(**settings)
            except ValueError as error:
                raise CheckpointError(f"{source}: {error}") from error
        prompt_token_ids = self.preprocess.decoder_inputs(decoder_prompt).token_ids
        self._params(Request("", params, config), prompt_token_ids).check_width(self.max_num_seqs)
        return config

    def check_form(self, form: Guide | Grammar) -> None:
        """Compile a form of outputs. Raises ParameterError if it is invalid, or if this model cannot write it."""
        self._grammars(form)

    def _params(self, request: Request, prompt_token_ids: list[int]) -> SamplingParams:
        """Complete the request's parameters, and check them against this model."""
        shape, tokenizer = self.preprocess.shape, self.preprocess.tokenizer
        try:
            params = complete_params(
                request.sampling_params or SamplingParams(),
                request.generation_config or self.generation_config,
                prompt_token_ids=prompt_token_ids,
                max_positions=shape.max_target_positions,
                vocab_size=shape.vocab_size,
                eos_token_ids=self.eos_token_ids,
            )
        except TypeError:
            _check_generation_config(request.generation_config)
            raise
        if request.generation_config is not None:
            self.ignored_settings.warn(request.generation_config)
        if params.stop and tokenizer is None:
            raise refusal(params, "{stop} strings need a tokenizer, which this checkpoint lacks; pass {stop_token_ids}")
        if params.draft_length and params.draft is None and params.draft_tokens is None and not self.has_draft_model:
            advice = "set {draft='lookup'} or {draft_tokens}, or load the engine with a {draft_model}"
            raise refusal(params, "{draft_length=} has no draft to bound; " + advice)
        params = tokenize_draft(tokenize_bad_words(params, tokenizer), tokenizer)
        if isinstance(params.keywords, Keywords) and params.keywords:
            terms = self._tokenize_keywords(params.keywords, params.keyword_boost, tokenizer, shape.vocab_size)
            params = dataclasses.replace(params, keywords=terms)  # type: ignore[arg-type]
        if params.guided is not None:
            if not params.eos_token_ids:
                raise refusal(params, "{guided} needs an end-of-sequence token; set {eos_token_ids}")
            params = dataclasses.replace(params, guided=self._grammars(params.guided))
        if params.prompt_probe is not None:
            num_heads = shape.num_heads or shape.num_kv_heads
            try:
                params.prompt_probe.check(len(prompt_token_ids), shape.vocab_size, shape.num_decoder_layers, num_heads)
            except ParameterError as error:
                raise error.renamed(lambda name: f"prompt_probe.{name}") from None
        return params


def _check_pooling(request: Request) -> None:
    """Raise ParameterError for a pooling of another type, or with parameters that only a decoder has."""
    if not isinstance(request.pooling, Pooling):
        message = f'{{pooling}} must be a Pooling, such as Pooling("mean"), not {type(request.pooling).__name__}'
        raise ParameterError(message, param="pooling", value=request.pooling)
    if request.sampling_params is not None or request.generation_config is not None:
        raise ParameterError(
            "a request with {pooling} only encodes, and generates no token: leave {sampling_params} and "
            "{generation_config} out",
            param="pooling",
            others=("sampling_params", "generation_config"),
        )


def _check_encoder_rules(params: SamplingParams | None) -> None:
    """Raise ParameterError for parameters about the tokens of an encoder's prompt, which has none."""
    if params is not None and params.reads_encoder_tokens:
        name = "encoder_no_repeat_ngram_size" if params.encoder_no_repeat_ngram_size else "encoder_repetition_penalty"
        advice = "leave it out, or give a text or token ids"
        raise refusal(params, f"{{{name}=}} needs tokens in the encoder's prompt, which has none here; {advice}", name)


def _encoded_with(adapter: Adapter, inputs: EncoderDecoderInputs) -> EncoderDecoderInputs:
    """Return inputs whose content key holds the adapter, because the encoder's output depends on it."""
    encoder = inputs.encoder
    if encoder.content_key is None:
        return inputs
    key = encoder.content_key + b" with adapter " + str(adapter.number).encode()
    return dataclasses.replace(inputs, encoder=dataclasses.replace(encoder, content_key=key))


def _check_generation_config(generation_config: Any | None) -> None:
    """Raise ParameterError, naming the setting, if a user's generation config has a value of a wrong type."""
    settings = {} if generation_config is None else vars(generation_config)
    try:
        check_generation_settings(settings, Path("generation_config"))
    except CheckpointError as error:
        raise ParameterError(str(error), param="generation_config", value=generation_config) from None
