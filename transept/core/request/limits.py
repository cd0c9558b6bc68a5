"""Limits: how much one request may hold, for the library, the command line and a server alike.

Audio is measured as it is read and decoded (`transept.multimodal.audio_limits`), text before it is tokenized.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from transept.errors import PromptError
from transept.multimodal.audio_limits import AudioLimits, limit
from transept.options import LONE_SURROGATE, declares_options

if TYPE_CHECKING:
    from transept.multimodal.audio import LoadedAudio
    from transept.multimodal.waveforms import Waveform

MAX_TEXT_CHARACTERS = 32 << 20  # 33.6 million: seven times the Bible in English


@declares_options("there is no limit")
@dataclass(frozen=True)
class Limits(AudioLimits):
    """How much one request may hold. The defaults refuse files made to fill the memory; None means no limit.

    Raises ParameterError for an unknown limit, and for anything but a number above 0 and None.
    """

    max_text_characters: Annotated[
        int | None, limit("refuse longer documents", "Also longer prompts.", default="33554432")
    ] = MAX_TEXT_CHARACTERS
    max_queue_length: Annotated[int | None, limit("requests that may wait in the queue", default="any number")] = None

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
                f"{what} has {len(text)} characters, more than the {limit} of {{max_text_characters}}: split it, or "
                "raise that limit",
                others=["max_text_characters"],
            )
        if found := LONE_SURROGATE.search(text):
            raise PromptError(
                f"{what} holds half a surrogate pair at character {found.start()}, which is no text: decode it with "
                'errors="replace"'
            )


DEFAULT_LIMITS = Limits()
