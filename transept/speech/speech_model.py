"""SpeechModel: the loaded model as transcription sees it, all that is a family's own read through its SpeechSpec.

Made once by the Transcriber: its sizes, its languages, its tokenizer, features of audio, and requests about them.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from torch.utils.weak import WeakTensorKeyDictionary

from transept.core.engine import Engine
from transept.core.input_processor import Request
from transept.core.request.preprocess import content_key
from transept.core.request.prompts import TokensPrompt
from transept.core.request.sampling_params import SamplingParams
from transept.errors import CheckpointError, ParameterError, UnsupportedModelError, suggest
from transept.names_elsewhere import LANGUAGES
from transept.registry.diarizers import Diarizer, find_diarizer
from transept.registry.plugins import discover
from transept.registry.spec import resolve
from transept.speech.options import TranscriptionOptions
from transept.speech.tokenizer import SpeechTokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from transept.multimodal.waveforms import Waveform

LANGUAGE_TAG = re.compile(r"([a-z]{2,3})(?:[-_](?:[a-z]{4}|[a-z]{2}|[0-9]{3}))+")  # language, then script and region
UNBOUNDED_POSITIONS = 448  # reckoned with where the decoder's positions have no bound; Whisper's own


class SpeechModel:
    """What is known of the model.

    spec: its SpeechSpec. device: the engine's. languages: code to token id, empty for a model of one language.
    fps: frames of its features in a second. window_frames: of one window.
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
        self.view = engine.view
        self.device = engine.config.device
        self.tokenizer = SpeechTokenizer(self.spec, self.view)
        self.languages = dict(self.spec.languages(self.view))
        self.fps = self.spec.frames_per_second
        self.window_frames = round(self.spec.window_seconds(self.view) * self.fps)
        self.vocab_size = engine.shape.vocab_size
        self.max_positions = engine.shape.max_target_positions or UNBOUNDED_POSITIONS
        self.alignment_heads = self._alignment_heads(engine)
        self._names: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()  # of windows' features

    def _alignment_heads(self, engine: Engine) -> tuple[tuple[int, int], ...]:
        """Raises CheckpointError for heads that the checkpoint names and its decoder does not have."""
        layers, heads = engine.shape.num_decoder_layers, engine.shape.num_heads or engine.shape.num_kv_heads
        try:
            named = [(layer, head) for layer, head in self.spec.alignment_heads(self.view)]
            if all(layer in range(layers) and head in range(heads) for layer, head in named):
                return tuple(named)
        except (TypeError, ValueError):  # no pairs
            pass
        given = getattr(engine.generation_config, "alignment_heads", None)
        raise CheckpointError(
            f'"{engine.config.model}": alignment_heads must be (layer, head) pairs of a decoder with {layers} layers '
            f"of {heads} heads, not {given!r}"
        )

    def check(self, options: TranscriptionOptions) -> None:
        """Raise ParameterError for a language, a task, times, tokens or a prompt that this model does not have.

        And for diarize where no plugin tells speakers apart.
        """
        if options.diarize:
            _ = self.diarizer
        language, timestamps = self.language_code(options.language), not options.without_timestamps
        self.tokenizer.opening_tokens(language, options.task, timestamps=timestamps)
        if options.word_timestamps and not self.alignment_heads:
            raise ParameterError("this model tells no times of words; leave word_timestamps=True out")
        if options.multilingual and not self.languages:
            raise ParameterError("this model knows one language only; leave multilingual=True out")
        window = self.window_frames / self.fps
        if options.chunk_length is not None and options.chunk_length > window:
            raise ParameterError(
                f"chunk_length is {options.chunk_length:g} seconds; this model hears {window:g} seconds at most"
            )
        for name in ("initial_prompt", "hotwords"):
            if getattr(options, name) and self.tokenizer.control.start_of_previous is None:
                raise ParameterError(f"this model takes no text before a window; leave {name} out, or try prefix")
        prompt = () if isinstance(options.initial_prompt, str) else options.initial_prompt or ()
        for name, tokens in (("initial_prompt", prompt), ("suppress_tokens", options.suppress_tokens)):
            if max(tokens, default=0) >= self.vocab_size:
                raise ParameterError(f"{name} holds {max(tokens)}; this model's token ids end at {self.vocab_size - 1}")

    @cached_property
    def diarizer(self) -> Diarizer:
        """Tells speakers apart. Raises ParameterError where no plugin does, or two do."""
        return find_diarizer(discover())

    @cached_property
    def diarizes(self) -> bool:
        """Whether there is a diarizer."""
        try:
            return bool(self.diarizer)
        except ParameterError:
            return False

    def chunk_frames(self, options: TranscriptionOptions) -> int:
        """Frames of a window at most, as the options ask."""
        return self.window_frames if options.chunk_length is None else int(options.chunk_length * self.fps)

    def language_code(self, language: str | None) -> str | None:
        """The code of a language given by its code or its English name, in any case; None for None.

        A tag with a script or a region, such as ``"pt-BR"`` or ``"zh_Hant_TW"``, is the language before them. What is
        unknown is returned as it is, for the family to judge.
        Raises ParameterError, with the nearest one, for what the family knows by neither.
        """
        if language is None:
            return None
        name = language.strip().lower()
        code = self.spec.language_names.get(name, name)
        if code not in self.languages and (tag := LANGUAGE_TAG.fullmatch(name)):
            code = self.spec.language_names.get(tag[1], tag[1])
        if self.languages and code not in self.languages:
            if (meant := LANGUAGES.get(name)) in self.languages:
                raise ParameterError(f"this model has no language {language!r}. Did you mean {meant!r}?")
            names = (known for known, code in self.spec.language_names.items() if code in self.languages)
            known = names if len(name) > 3 else self.languages
            raise ParameterError(f"this model has no language {language!r}.{suggest(name, known)}")
        return code

    def features(self, waveform: Waveform) -> Tensor:
        """Features of a whole recording, float32 [channels, frames]."""
        features: Tensor = resolve(self.spec.features)(waveform, self.view, self.device)
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
