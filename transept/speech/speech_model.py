"""SpeechModel: the loaded model as transcription sees it, all that is a family's own read through its SpeechSpec.

Made once by the Transcriber; the algorithms of both modes ask it for features, tokens and requests.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.utils.weak import WeakTensorKeyDictionary

from transept.core.engine import Engine
from transept.core.input_processor import Request
from transept.core.request.preprocess import content_key
from transept.core.request.prompts import TokensPrompt
from transept.core.request.sampling_params import SamplingParams
from transept.errors import CheckpointError, ParameterError, UnsupportedModelError, suggest
from transept.registry.spec import resolve
from transept.speech.options import TranscriptionOptions

if TYPE_CHECKING:
    from torch import Tensor

    from transept.multimodal.audio import Waveform

UNBOUNDED_POSITIONS = 448  # reckoned with where the decoder's positions have no bound; Whisper's own
UNSPOKEN = -1  # in suppress_tokens: the family's unspoken_tokens


class SpeechModel:
    """What is known of the model.

    spec: its SpeechSpec. device: the engine's. tokens: its control tokens. text_tokens: the ids of text. languages:
    code to token id, empty for a model of one language. fps: frames of its features in a second. window_frames: of one
    window.
    max_positions: decoder positions, for prompt and output together.
    Raises UnsupportedModelError for a model that is not a speech model, CheckpointError for one without a tokenizer or
    with alignment heads that it does not have.
    """

    def __init__(self, engine: Engine) -> None:
        if engine.spec.speech is None:
            raise UnsupportedModelError(
                f'"{engine.config.model}" is a "{engine.spec.name}" model; it does not transcribe speech'
            )
        if engine.tokenizer is None:
            raise CheckpointError(
                f'"{engine.config.model}" has no tokenizer; put its tokenizer.json beside the weights'
            )
        self.spec = engine.spec.speech
        self.config: Any = engine.model_config
        self.device = engine.config.device
        self.generation_config: Any = engine.generation_config
        self.tokenizer: Any = engine.tokenizer
        self.tokens = self.spec.tokens(self.config)
        self.text_tokens = range(self.tokens.end_of_text) if self.tokens.text is None else self.tokens.text
        self.languages = dict(self.spec.languages(self.config))
        self.fps = self.spec.frames_per_second
        self.window_frames = round(self.spec.window_seconds(self.config) * self.fps)
        self.vocab_size = engine.shape.vocab_size
        self.max_positions = engine.shape.max_target_positions or UNBOUNDED_POSITIONS
        self.alignment_heads = self._alignment_heads(engine)
        self._names: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()  # of windows' features

    def _alignment_heads(self, engine: Engine) -> tuple[tuple[int, int], ...]:
        """Raises CheckpointError for heads that the checkpoint names and its decoder does not have."""
        layers, heads = engine.shape.num_decoder_layers, engine.shape.num_heads or engine.shape.num_kv_heads
        try:
            named = [(layer, head) for layer, head in self.spec.alignment_heads(self.config, self.generation_config)]
            if all(layer in range(layers) and head in range(heads) for layer, head in named):
                return tuple(named)
        except (TypeError, ValueError):  # no pairs
            pass
        given = getattr(self.generation_config, "alignment_heads", None)
        raise CheckpointError(
            f'"{engine.config.model}": alignment_heads must be (layer, head) pairs of a decoder with {layers} layers '
            f"of {heads} heads, not {given!r}"
        )

    def check(self, options: TranscriptionOptions) -> None:
        """Raise ParameterError for a language, a task, times, tokens or a prompt that this model does not have."""
        self.opening_tokens(self.language_code(options.language), options)
        if options.word_timestamps and not self.alignment_heads:
            raise ParameterError("this model tells no times of words; leave word_timestamps=True out")
        if options.multilingual and not self.languages:
            raise ParameterError("this model knows one language only; leave multilingual=True out")
        for name in ("initial_prompt", "hotwords"):
            if getattr(options, name) and self.tokens.start_of_previous is None:
                raise ParameterError(f"this model takes no text before a window; leave {name} out, or try prefix")
        prompt = () if isinstance(options.initial_prompt, str) else options.initial_prompt or ()
        for name, tokens in (("initial_prompt", prompt), ("suppress_tokens", options.suppress_tokens)):
            if max(tokens, default=0) >= self.vocab_size:
                raise ParameterError(f"{name} holds {max(tokens)}; this model's token ids end at {self.vocab_size - 1}")

    def language_code(self, language: str | None) -> str | None:
        """The code of a language given by its code or its English name, in any case; None for None.

        What is unknown is returned as it is, for the family to judge. Raises ParameterError, with the nearest one, for
        what the family knows by neither.
        """
        if language is None:
            return None
        name = language.strip().lower()
        code = self.spec.language_names.get(name, name)
        if self.languages and code not in self.languages:
            names = (known for known, code in self.spec.language_names.items() if code in self.languages)
            known = names if len(name) > 3 else self.languages
            raise ParameterError(f"this model has no language {language!r}.{suggest(name, known)}")
        return code

    def opening_tokens(self, language: str | None, options: TranscriptionOptions) -> list[int]:
        """The control tokens that open a transcript."""
        timestamps = not options.without_timestamps and self.tokens.first_timestamp is not None
        return self.spec.decoder_prompt(self.config, language=language, task=options.task, timestamps=timestamps)

    def features(self, waveform: Waveform) -> Tensor:
        """Features of a whole recording, float32 [channels, frames]."""
        features: Tensor = resolve(self.spec.features)(waveform, self.config, self.device)
        return features

    def window_features(self, waveform: Waveform) -> Tensor:
        """Features of one window, float32 [channels, frames].

        On a GPU they get the sound's name: to find out what they hold, each request would wait for the GPU.
        """
        features = self.features(waveform)
        if self.device != "cpu":
            key = content_key({"waveform": waveform})
            assert key is not None  # which NumPy holds
            self._names[features] = key.hex()
        return features

    def request(self, features: Tensor, decoder_prompt: Sequence[int], params: SamplingParams) -> Request:
        """A request about one window; features: [channels, up to window_frames]."""
        prompt: TokensPrompt = {
            "prompt_tokens": list(decoder_prompt),
            "multi_modal_data": {self.spec.features_modality: features},
        }
        if features in self._names:
            prompt["multi_modal_uuids"] = {self.spec.features_modality: self._names[features]}
        return Request(prompt, params)

    def encode(self, text: str) -> list[int]:
        """The text's tokens, without special ones around it."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def encode_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """Tokens of text that stands beside a transcript, as it would be written there: after a blank."""
        if not isinstance(prompt, str):
            return list(prompt)
        return self.encode(prompt.strip() if self._opening_word else f" {prompt.strip()}")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, with the blank before its first word; timestamps and other control tokens have none."""
        text = [token for token in tokens if token in self.text_tokens]
        return self._decoded([*self._opening_word, *text])[len(self._decoded(self._opening_word)) :]

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @cached_property
    def _opening_word(self) -> list[int]:
        """A word to decode before any other, where the tokenizer gives the first word of a text its blank by itself."""
        word = self.encode("a")
        return [] if self._decoded([*word, *word]) == 2 * self._decoded(word) else word

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a time."""
        return self.tokens.first_timestamp is not None and token >= self.tokens.first_timestamp

    def suppressed_tokens(self, options: TranscriptionOptions) -> tuple[int, ...]:
        """The tokens that never come, control tokens of prompts among them unless options suppress nothing at all."""
        if not options.suppress_tokens:
            return ()
        unspoken = self._unspoken_tokens if UNSPOKEN in options.suppress_tokens else ()
        given = (token for token in options.suppress_tokens if token != UNSPOKEN)
        return tuple(sorted({*given, *unspoken, *self.tokens.prompt_only}))

    @cached_property
    def blank_tokens(self) -> tuple[int, ...]:
        """The tokens with which a transcript is blank: a blank, and the end of the text.

        None for a family without a token for silence, which has no other way to say that nobody speaks.
        """
        return () if self.tokens.no_speech is None else (*self.encode(" "), self.tokens.end_of_text)

    @cached_property
    def _unspoken_tokens(self) -> tuple[int, ...]:
        if self.spec.unspoken_tokens is None:
            return ()
        return tuple(resolve(self.spec.unspoken_tokens)(self.config, self.generation_config, self.tokenizer))
