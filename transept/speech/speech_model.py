"""SpeechModel: the loaded model for transcription, with everything specific to its family, from its SpeechSpec.

The Transcriber makes one. It has the model's sizes, languages and tokenizer, and makes features and requests.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from transept.core.engine import Engine
from transept.core.request.preprocess import content_key
from transept.core.request.prompts import MultiModalPrompt, Prompt, Request, TokensPrompt
from transept.core.request.sampling_params import SamplingParams
from transept.errors import CheckpointError, ParameterError, PluginFailedError, UnsupportedModelError, suggest
from transept.options import refusal
from transept.registry.diarizers import Diarizer, find_diarizer
from transept.registry.name_finders import NameFinder, find_name_finder
from transept.registry.plugin_calls import call_declared
from transept.registry.plugins import discover
from transept.registry.voice_embedders import VoiceEmbedder
from transept.registry.word_aligners import WordAligner, find_word_aligner
from transept.speech.calibration import calibrated_margin
from transept.speech.language_names import LANGUAGES
from transept.speech.live_options import AGREEMENT, ATTENTION
from transept.speech.options import BEAMS, DEFAULT_BEST_OF, TRANSLATES_TO, TranscriptionOptions
from transept.speech.tokenizer import SpeechTokenizer
from transept.speech.voices.heard import installed_embedder

if TYPE_CHECKING:
    from torch import Tensor

    from transept.multimodal.waveforms import Waveform

LANGUAGE_TAG = re.compile(r"([a-z]{2,3})(?:[-_](?:[a-z]{4}|[a-z]{2}|[0-9]{3}))+")  # language, then script and region
ONLY_LANGUAGE = "en"  # language of a model that names none
UNKNOWN_LANGUAGE = "und"  # ISO 639's code for an undetermined language
LONGEST_TOKEN = 64  # characters; so a long text is not tokenized whole
UNBOUNDED_POSITIONS = 448  # used for a decoder with unbounded positions; Whisper's number


@dataclass
class ShortContexts:
    """Numbers of windows of which the encoder read a part. again: those that were decoded again as a whole."""

    decoded: int = 0
    again: int = 0


class SpeechModel:
    """A speech model.

    family: its ModelSpec. spec: its SpeechSpec. device: the engine's. languages: languages of speech, code to token id
    or None; empty for a model of one language. language_tokens: those with a token. detects: True if it detects the
    spoken language. target_languages: codes of the languages that it translates to, from its SpeechSpec.
    fps: frames of its features per second. window_frames: frames of one window.
    short_contexts: number of windows that the encoder read in part. num_temperature_retries: number of times that a
    window was decoded again at a higher temperature.
    max_positions: decoder positions, for prompt and output together. max_num_seqs: the engine's.
    Raises UnsupportedModelError for a model that is not a speech model, CheckpointError without a tokenizer or with
    invalid alignment heads.
    """

    def __init__(self, engine: Engine) -> None:
        if engine.spec.speech is None:
            raise UnsupportedModelError(
                f'"{engine.config.model}" is a "{engine.spec.name}" model; it does not transcribe speech', param="model"
            )
        if engine.tokenizer is None:
            raise CheckpointError(
                f'"{engine.config.model}" has no tokenizer; put its tokenizer.json beside the weights'
            )
        self.family, self.spec = engine.spec, engine.spec.speech
        self.view, self.adapters = engine.view, engine.adapters
        self.device = engine.config.device
        self._name = str(engine.config.model)
        self.max_num_seqs = engine.config.max_num_seqs
        self.tokenizer = SpeechTokenizer(self.family, self.view)
        self.languages = dict(self.ask("languages", self.view))
        self.language_tokens = {code: token for code, token in self.languages.items() if token is not None}
        self.detects = self.spec.language_prompt is not None and len(self.language_tokens) > 1
        self.target_languages = list(self.ask("target_languages", self.view))
        self.fps = self.spec.frames_per_second
        self.window_frames = round(self.ask("window_seconds", self.view) * self.fps)
        self.vocab_size = engine.shape.vocab_size
        self.num_decoder_layers = engine.shape.num_decoder_layers
        self.max_positions = engine.shape.max_target_positions or UNBOUNDED_POSITIONS
        self.alignment_heads = self._alignment_heads(engine)
        self.check_form = engine.inputs.check_form
        self.short_contexts = ShortContexts()
        self.num_temperature_retries = 0
        self._names: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()  # of windows' features

    def ask(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a function of the family's SpeechSpec. Raises its errors, PluginFailedError for unexpected ones."""
        return call_declared(self.family, f"speech.{name}", *arguments, **keywords)

    def _alignment_heads(self, engine: Engine) -> tuple[tuple[int, int], ...]:
        """Return the alignment heads. Raises CheckpointError for heads that the decoder does not have."""
        layers, heads = engine.shape.num_decoder_layers, engine.shape.num_heads or engine.shape.num_kv_heads
        given = getattr(engine.generation_config, "alignment_heads", None)
        try:
            named = [(layer, head) for layer, head in self.ask("alignment_heads", self.view)]
            if all(layer in range(layers) and head in range(heads) for layer, head in named):
                return tuple(named)
        except (TypeError, ValueError):  # no pairs
            pass
        except PluginFailedError as error:
            if given is None or not isinstance(error.__cause__, TypeError | ValueError):
                raise
        raise CheckpointError(
            f'"{engine.config.model}": alignment_heads must be (layer, head) pairs of a decoder with {layers} layers '
            f"of {heads} heads, not {given!r}"
        )

    def options(self, given: Mapping[str, Any]) -> TranscriptionOptions:
        """Return the options, with a default best_of and quality that fit into the engine's batch.

        lora will always mean the adapter that it means now. Raises ParameterError.
        """
        defaults: dict[str, Any] = {"best_of": min(DEFAULT_BEST_OF, self.max_num_seqs)}
        if self.max_num_seqs < BEAMS["balanced"]:
            defaults["quality"] = "fast"
        options = TranscriptionOptions(**{**defaults, **given})
        return options if options.lora is None else replace(options, lora=self.adapters.lasting(options.lora))

    @cached_property
    def live_policy(self) -> str:
        """The better commit policy for live streams, see LiveOptions. Raises CheckpointError for an unknown one."""
        if not self.alignment_heads:
            return AGREEMENT
        policy: str = self.ask("live_policy", self.view)
        if policy not in (ATTENTION, AGREEMENT):
            raise CheckpointError(f'"{self._name}": live_policy must be attention or agreement, not {policy!r}')
        return policy

    @property
    def max_prompt_tokens(self) -> int:
        """Maximum number of tokens of earlier text: half of the positions, without the token before it."""
        return self.max_positions // 2 - 1

    def hotword_tokens(self, hotwords: str) -> list[int]:
        """Return the tokens of hotwords, at most as many as a prompt has room for."""
        room = self.max_prompt_tokens
        return self.tokenizer.encode_prompt(hotwords[: room * LONGEST_TOKEN])[:room]

    @property
    def is_english_only(self) -> bool:
        """True if the model transcribes English, and has no choice of languages."""
        return not self.languages and not self.target_languages

    @property
    def why_it_detects_none(self) -> str:
        """The reason why the model does not detect languages, if it does not."""
        if len(self.languages) < 2:
            return "this model knows one language only"
        return "this model does not detect which language is spoken"

    @property
    def undetected_language(self) -> str:
        """The language if none is given and the model does not detect it: its only one, or UNKNOWN_LANGUAGE."""
        return next(iter(self.languages), ONLY_LANGUAGE) if len(self.languages) < 2 else UNKNOWN_LANGUAGE

    def opening_tokens(self, language: str | None, options: TranscriptionOptions, *, timestamps: bool) -> list[int]:
        """Return the control tokens that open a transcript, for the options' task and target_language.

        language: code of the spoken language; None or UNKNOWN_LANGUAGE if it is not known.
        Raises ParameterError for a language or a task that the model does not have.
        """
        spoken = None if language == UNKNOWN_LANGUAGE else language
        target = self._target_language(spoken, options)
        if not self.target_languages:
            return self.tokenizer.opening_tokens(spoken, options.task or "transcribe", timestamps=timestamps)
        task = "transcribe" if target is None else "translate"
        return self.tokenizer.opening_tokens(spoken, task, timestamps=timestamps, target_language=target)

    def task(self, spoken: str, options: TranscriptionOptions) -> str:
        """Return ``"translate"`` if the text is not in the spoken language, otherwise the options' task."""
        return "translate" if self._target_language(spoken, options) else options.task or "transcribe"

    def _target_language(self, spoken: str | None, options: TranscriptionOptions) -> str | None:
        """Return the code of the language to translate to; None: the text is in the spoken language.

        Raises ParameterError for a language that the model does not translate to, and for one that contradicts the task
        "transcribe".
        """
        asked, is_translation = options.target_language, options.task == "translate"
        if asked is None and not (is_translation and self.target_languages):
            return None
        target = self._code(asked or TRANSLATES_TO, self.target_languages)
        heard = spoken if spoken is not None or self.detects else self.undetected_language
        if target in self.target_languages and (target != heard or is_translation):
            if options.task == "transcribe":
                message = "{task=} writes the language that is spoken, and {target_language=} asks for another one; "
                raise refusal(options, message + "leave one of them out", "target_language")
            return target
        if target == heard and not is_translation:
            return None
        if not self.target_languages:
            self.tokenizer.opening_tokens(
                spoken, "transcribe", timestamps=False
            )  # refuses an unknown spoken language first
            message = (
                "this model has no target languages, so {target_language!} is not one; leave {target_language} out"
            )
            raise refusal(options, message)
        known = ", ".join(self.target_languages)
        raise refusal(
            options,
            f"this model does not translate to {asked or target!r}; {{target_language}} may be {known}, or the spoken "
            "language if {language} names it",
        )

    @cached_property
    def voice_embedder(self) -> VoiceEmbedder:
        """The installed voice embedder. Raises ParameterError unless exactly one is installed."""
        return installed_embedder()

    @cached_property
    def diarizer(self) -> Diarizer:
        """The installed diarizer. Raises ParameterError unless exactly one is installed."""
        return find_diarizer(discover())

    @cached_property
    def name_finder(self) -> NameFinder:
        """The installed finder of names. Raises ParameterError unless exactly one is installed."""
        return find_name_finder(discover())

    @cached_property
    def word_aligner(self) -> WordAligner | None:
        """The installed word aligner, or None. Raises ParameterError if several are installed."""
        return find_word_aligner(discover())

    @cached_property
    def diarizes(self) -> bool:
        """True if there is a diarizer."""
        try:
            return bool(self.diarizer)
        except ParameterError:
            return False

    def chunk_frames(self, options: TranscriptionOptions) -> int:
        """Return the largest number of frames of a window with these options."""
        return self.window_frames if options.chunk_length is None else int(options.chunk_length * self.fps)

    def language_code(self, language: str | None) -> str | None:
        """Return the code of a language given by its code or its English name, in any case; None for None.

        A tag with a script or a region, such as ``"pt-BR"`` or ``"zh_Hant_TW"``, stands for its language.
        Raises ParameterError, with the nearest name, for a language that the family does not know; a family without
        languages accepts any text.
        """
        if language is None:
            return None
        name, code = language.strip().lower(), self._code(language, self.languages)
        if self.languages and code not in self.languages:
            if (meant := LANGUAGES.get(name)) in self.languages:
                message = f"this model has no {{language}} {{language!}}. Did you mean {meant!r}?"
                raise ParameterError(message, param="language", value=language)
            names = (known for known, code in self.spec.language_names.items() if code in self.languages)
            known = names if len(name) > 3 else self.languages
            message = f"this model has no {{language}} {{language!}}.{suggest(name, known)}"
            raise ParameterError(message, param="language", value=language)
        return code

    def _code(self, language: str, known: Container[str]) -> str:
        """Return the code of a language in a user's spelling; it may be unknown."""
        names, name = self.spec.language_names, language.strip().lower()
        code = names.get(name, name)
        if code not in known and (tag := LANGUAGE_TAG.fullmatch(name)):
            code = names.get(tag[1], tag[1])
        return code

    def features(self, waveform: Waveform) -> Tensor:
        """Return the features of a whole recording, float32 [channels, frames]."""
        features: Tensor = self.ask("features", waveform, self.view, self.device)
        return features

    def window_features(self, waveform: Waveform) -> Tensor:
        """Return the features of one window, float32 [channels, frames].

        On a GPU they are named by the hash of the audio; hashing the features would wait for the GPU.
        """
        features = self.features(waveform)
        if self.device != "cpu":
            key = content_key({"waveform": waveform})
            assert key is not None  # a NumPy array has one
            self._names[features] = key.hex()
        return features

    def short_context(self, features: Tensor, options: TranscriptionOptions) -> int | None:
        """Return the number of frames of one window that the encoder reads, by encoder_context; None: the whole window.

        features: [channels, up to window_frames]. Raises ParameterError for "auto" without a calibration.
        """
        if options.encoder_context is None or self.spec.short_features_modality is None:
            return None
        frames = features.shape[1] + round(self.encoder_margin(options) * self.fps)
        return frames if frames < self.window_frames else None

    def encoder_margin(self, options: TranscriptionOptions) -> float:
        """Return the seconds of silence that the encoder reads after a window's audio. Raises like `short_context`."""
        asked = options.encoder_context
        assert asked is not None
        return self._calibrated_margin if isinstance(asked, str) else asked

    @cached_property
    def _calibrated_margin(self) -> float:
        return calibrated_margin(self.view.path, self._name)

    def request(
        self,
        features: Tensor,
        decoder_prompt: Sequence[int],
        params: SamplingParams,
        context: int | None = None,
        lora: str | None = None,
    ) -> Request:
        """Return a request for one window.

        features: [channels, up to window_frames]. context: see short_context. lora: see Request.
        """
        modality, name = self.spec.features_modality, self._names.get(features)
        if context is not None:
            assert self.spec.short_features_modality is not None
            modality = self.spec.short_features_modality
            features = pad(features, (0, context - features.shape[1]))
        sound: MultiModalPrompt = {"multi_modal_data": {modality: features}}
        if name is not None:
            sound["multi_modal_uuids"] = {modality: name}
        tokens: TokensPrompt = {"prompt_tokens": list(decoder_prompt)}
        prompt: Prompt = {"encoder_prompt": sound, "decoder_prompt": tokens if decoder_prompt else None}
        return Request(prompt, params, lora=lora)
