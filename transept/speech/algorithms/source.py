"""Source: the audio to decode, with all that determines its text. Every step of a transcription takes one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transept.multimodal.waveforms import NO_SAMPLES, Waveform
from transept.registry.word_aligners import WordAligner
from transept.speech.options import TranscriptionOptions
from transept.speech.speech_model import UNKNOWN_LANGUAGE, SpeechModel
from transept.speech.vad.spans import Span

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Window:
    """A stretch of the features that one request decodes. start, size: frames; size excludes the padding."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The frame after the last one."""
        return self.start + self.size


@dataclass(frozen=True)
class Source:
    """A recording, a part of one, or a window.

    features: [channels, frames]. waveform: float32 [samples], at the model's rate; empty if only features are known.
    language: code of the spoken language. speech: spans of speech, in samples of the waveform; None if they are not
    known. cuts: seconds, ascending, at which silence was cut out of the waveform; segments are divided there.
    """

    model: SpeechModel
    options: TranscriptionOptions
    features: Tensor
    waveform: Waveform = field(default_factory=lambda: NO_SAMPLES)
    language: str = UNKNOWN_LANGUAGE
    speech: Sequence[Span] | None = None
    cuts: tuple[float, ...] = ()

    @property
    def num_frames(self) -> int:
        """Number of frames of the features."""
        return self.features.shape[1]

    @property
    def seconds(self) -> float:
        """Length of the features."""
        return self.num_frames / self.model.fps

    @property
    def chunk(self) -> int:
        """Number of frames of a full window."""
        return self.model.chunk_frames(self.options)

    @property
    def times_words(self) -> bool:
        """True if the words of each window are timed.

        Either the user wants word times, or `speech` is known and the model can time words: its own timestamps may
        cover speech that its text leaves out.
        """
        return self.options.word_timestamps or (self.speech is not None and bool(self.model.alignment_heads))

    @property
    def aligner(self) -> WordAligner | None:
        """The plugin that times words, if there is one and the user wants word times that are refined."""
        wanted = self.options.word_timestamps and self.options.refine_word_times
        return self.model.word_aligner if wanted else None

    def window(self, window: Window) -> Source:
        """Return the part of the source in a window."""
        samples = self.model.spec.sample_rate // self.model.fps  # of a frame
        return dataclasses.replace(
            self,
            features=self.features[:, window.start : window.end].contiguous(),
            waveform=self.waveform[window.start * samples : window.end * samples],
        )
