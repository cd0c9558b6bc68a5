"""Limits: how much one request may hold, for the library, the command line and a server alike.

Audio is measured as it is read and decoded (`transept.multimodal.audio_limits`), text before it is tokenized.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from transept.errors import PromptError
from transept.multimodal.audio_limits import (
    MAX_BYTES,
    MAX_DECODED_BYTES,
    MAX_SECONDS,
    MAX_STREAM_BYTES,
    AudioLimits,
    check_limit,
)
from transept.option_names import refuses_unknown
from transept.options import LONE_SURROGATE

if TYPE_CHECKING:
    from transept.multimodal.audio import LoadedAudio
    from transept.multimodal.waveforms import Waveform

MAX_TEXT_CHARACTERS = 32 << 20  # 33.6 million: seven times the Bible in English


@refuses_unknown("there is no limit")
@dataclass(frozen=True)
class Limits:
    """What is refused. The defaults stop files made to fill the memory, and no work; None: no limit.

    max_audio_seconds: of a recording, in seconds; by default 24 hours.
    max_audio_bytes: of a recording before it is decoded; by default 64 GiB.
    max_stream_bytes: of one that comes through a pipe or as an open file, all held in memory; by default 4 GiB.
    max_decoded_bytes: of its samples as float32, of all its channels at its own sample rate, or mono at the model's;
        by default 64 GiB. They are counted on the way; only those of the model's are kept.
    max_text_characters: of a prompt or a document; by default 32 x 2^20.
    max_queue_length: requests that wait for others; by default any number.

    Raises ParameterError for an unknown limit, and for what is no number above 0.
    """

    max_audio_seconds: float | None = MAX_SECONDS
    max_audio_bytes: int | None = MAX_BYTES
    max_stream_bytes: int | None = MAX_STREAM_BYTES
    max_decoded_bytes: int | None = MAX_DECODED_BYTES
    max_text_characters: int | None = MAX_TEXT_CHARACTERS
    max_queue_length: int | None = None

    def __post_init__(self) -> None:
        AudioLimits(**self.audio())
        check_limit("max_text_characters", self.max_text_characters, Integral)
        check_limit("max_queue_length", self.max_queue_length, Integral)

    def audio(self) -> dict[str, Any]:
        """The keywords of `load_audio`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(AudioLimits)}

    def load_audio(
        self, data: Any, sample_rate: int, channel: str = "mix", audio_track: int | str | None = None
    ) -> Waveform:
        """`transept.multimodal.audio.load_audio` within these limits. Raises MediaError for what is beyond them."""
        return self.load_recording(data, sample_rate, channel, audio_track).waveforms[0]

    def load_recording(
        self, data: Any, sample_rate: int, channel: str, audio_track: int | str | None = None
    ) -> LoadedAudio:
        """`transept.multimodal.audio.load_recording` within these limits. Raises MediaError as `load_audio`."""
        from transept.multimodal.audio import load_recording

        return load_recording(data, sample_rate, channel=channel, audio_track=audio_track, **self.audio())

    def check_text(self, text: str, what: str = "the text") -> None:
        """Raise PromptError for more than max_text_characters, and for what is no Unicode. what: begins the message."""
        limit = self.max_text_characters
        if limit is not None and len(text) > limit:
            raise PromptError(
                f"{what} has {len(text)} characters, more than the {limit} of max_text_characters: split it, or raise "
                "that limit"
            )
        if found := LONE_SURROGATE.search(text):
            raise PromptError(
                f"{what} holds half a surrogate pair at character {found.start()}, which is no text: decode it with "
                'errors="replace"'
            )


DEFAULT_LIMITS = Limits()
