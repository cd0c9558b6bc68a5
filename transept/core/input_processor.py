"""InputProcessor: from a request as a user makes it to the sequence group that the scheduler runs.

Made by the engine. A prompt may be preprocessed in any thread, beside the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from transept.core.checkpoints.generation_settings import check_generation_settings
from transept.core.checkpoints.plain_config import PlainConfig
from transept.core.model_shape import ModelShape
from transept.core.request.generation_defaults import complete as complete_params
from transept.core.request.generation_defaults import num_forced_tokens, tokenize_bad_words
from transept.core.request.ignored_settings import IgnoredSettings
from transept.core.request.inputs import EncoderDecoderInputs
from transept.core.request.preprocess import InputPreprocessor
from transept.core.request.prompts import Prompt
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import CheckpointError, ParameterError, RequestFailedError, TranseptError

NOT_PARAMS = "sampling_params must be SamplingParams, not {}; of a dict, SamplingParams(**it) makes one"
NO_GENERATION_CONFIG = "generation_config must be a GenerationConfig of transformers or a PlainConfig, not {}"


@dataclass(frozen=True)
class Request:
    """A prompt and its parameters, as a user passes them to the engine.

    prompt: in any form, or already preprocessed. sampling_params: None takes the checkpoint's settings.
    generation_config: a transformers GenerationConfig or a PlainConfig that replaces the checkpoint's, for fields that
        sampling_params does not set.
    """

    prompt: Prompt | EncoderDecoderInputs
    sampling_params: SamplingParams | None = None
    generation_config: Any | None = None


class InputProcessor:
    """Preprocesses prompts, completes sampling parameters, and numbers what arrives.

    generation_config: the checkpoint's. eos_token_ids: end-of-sequence tokens if a generation config has none.
    ignored_settings: warns of unsupported settings in a request's generation config.
    """

    def __init__(
        self,
        preprocess: InputPreprocessor,
        shape: ModelShape,
        generation_config: Any,
        eos_token_ids: tuple[int, ...],
        ignored_settings: IgnoredSettings,
    ) -> None:
        self.preprocess = preprocess
        self.shape = shape
        self.generation_config = generation_config
        self.eos_token_ids = eos_token_ids
        self.ignored_settings = ignored_settings
        self.seq_ids = count()
        self._arrivals = count()

    def __call__(self, request_id: str, request: Request) -> SequenceGroup:
        """Return a group that is ready to be scheduled.

        Raises PromptError or MediaError for a bad prompt, ParameterError for bad parameters, RequestFailedError for
        any other exception of a mapper or a tokenizer.
        """
        if not isinstance(request.sampling_params, SamplingParams | None):
            raise ParameterError(NOT_PARAMS.format(type(request.sampling_params).__name__))
        given = request.generation_config
        if not (given is None or isinstance(given, PlainConfig) or hasattr(given, "eos_token_id")):
            raise ParameterError(NO_GENERATION_CONFIG.format(type(given).__name__))
        inputs = self.inputs(request.prompt)
        prompt_token_ids = inputs.decoder.token_ids
        params = self._params(request, prompt_token_ids)
        group = SequenceGroup(
            request_id,
            [Sequence(next(self.seq_ids), inputs)],
            Sequence(next(self.seq_ids), inputs, from_decoder_prompt=False),
            params,
            next(self._arrivals),
        )
        if params.beam_search:
            group.beam_search = BeamSearch(params, num_forced_tokens(prompt_token_ids, params.forced_bos_token_id))
        return group

    def inputs(self, prompt: Prompt | EncoderDecoderInputs) -> EncoderDecoderInputs:
        """A prompt of any form, preprocessed. Raises PromptError, MediaError, RequestFailedError."""
        if isinstance(prompt, EncoderDecoderInputs):
            return prompt
        try:
            return self.preprocess(prompt)
        except TranseptError:
            raise
        except Exception as error:  # any kind: a plugin's mapper may raise anything
            raise RequestFailedError.of(error) from error

    def check(
        self, sampling_params: SamplingParams, generation_config: Any | None, decoder_prompt: list[int] | None
    ) -> None:
        """Raise what every request of these would raise, whatever its encoder is given: for calls that make many.

        generation_config: as a Request has it. decoder_prompt: token ids; None: the family's default.
        Raises ParameterError for parameters that contradict each other or the model, PromptError for the prompt.
        """
        prompt_token_ids = self.preprocess.decoder_inputs(decoder_prompt).token_ids
        self._params(Request("", sampling_params, generation_config), prompt_token_ids)

    def _params(self, request: Request, prompt_token_ids: list[int]) -> SamplingParams:
        """The request's parameters with nothing left open, and possible with this model."""
        shape, tokenizer = self.shape, self.preprocess.tokenizer
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
            self.ignored_settings.tell(request.generation_config)
        if params.stop and tokenizer is None:
            raise ParameterError("stop strings need a tokenizer, which this checkpoint lacks; pass stop_token_ids")
        params = tokenize_bad_words(params, tokenizer)
        if params.prompt_probe is not None:
            num_heads = shape.num_heads or shape.num_kv_heads
            params.prompt_probe.check(len(prompt_token_ids), shape.vocab_size, shape.num_decoder_layers, num_heads)
        return params


def _check_generation_config(generation_config: Any | None) -> None:
    """Raise ParameterError, naming the setting, for a user's with a value of a wrong type."""
    settings = {} if generation_config is None else vars(generation_config)
    try:
        check_generation_settings(settings, Path("generation_config"))
    except CheckpointError as error:
        raise ParameterError(str(error)) from None
