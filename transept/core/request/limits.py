"""Limits: maximum sizes of one request, for the library, the command line and the server.

Audio is measured while it is read and decoded (`transept.multimodal.audio_limits`), text before it is tokenized.
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
    """Maximum sizes of one request. The defaults refuse files made to exhaust the memory; None: no limit.

    Raises ParameterError for an unknown limit, and for values other than numbers above 0 and None.
    """

    max_text_characters: Annotated[
        int | None, limit("refuse longer documents", "Also longer prompts.", default="33554432")
    ] = MAX_TEXT_CHARACTERS
    max_queue_length: Annotated[int | None, limit("requests that may wait in the queue", default="any number")] = None

    def audio(self) -> dict[str, Any]:
        """Return the keywords of `load_audio`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(AudioLimits)}

    def load_audio(
        self, data: Any, sample_rate: int, channel: str = "mix", audio_track: int | str | None = None
    ) -> Waveform:
        """Call `transept.multimodal.audio.load_audio` with these limits. Raises MediaError if they are exceeded."""
        return self.load_recording(data, sample_rate, channel, audio_track).waveforms[0]

    def load_recording(
        self, data: Any, sample_rate: int, channel: str, audio_track: int | str | None = None
    ) -> LoadedAudio:
        """Call `transept.multimodal.audio.load_recording` with these limits. Raises MediaError, like `load_audio`."""
        from transept.multimodal.audio import load_recording

        return load_recording(data, sample_rate, channel=channel, audio_track=audio_track, **self.audio())

    def check_text(self, text: str, what: str = "the text") -> None:
        """Raise PromptError for more than max_text_characters, or invalid Unicode. what: subject of the message."""
        limit = self.max_text_characters
        if limit is not None and len(text) > limit:
            raise PromptError(
                f"{what} has {len(text)} characters, more than the {limit} of {{max_text_characters}}: split it, or "
                "raise that limit",
                others=["max_text_characters"],
            )
        if found := LONE_SURROGATE.search(text):
            raise PromptError(
                f"{what} holds half a surrogate pair at character {found.start()}, which is not valid text: decode it "
                'with errors="replace"'
            )


DEFAULT_LIMITS = Limits()
