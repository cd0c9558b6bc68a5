"""LiveJob: a live transcription on the engine, for one or more utterances of a session. Used by `session`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from transept.serving.async_engine import Ticket
from transept.serving.models import ServedModel, ServedModels
from transept.serving.realtime.items import Item
from transept.serving.realtime.session_options import AudioInput

MOST_UNREAD = 60.0  # seconds of audio; with more, the session stops reading its socket
LEAST_PACKET = 0.02  # seconds of audio; shorter ones are joined before they are pushed
POLL_SECONDS = 0.05  # between checks of the feed while it is full

# OpenAI's `delay` as options of live transcription; without it, their defaults.
DELAYS: dict[str, dict[str, Any]] = {
    "minimal": {"min_chunk": 0.25, "frontier": 0.2},
    "low": {"min_chunk": 0.35, "frontier": 0.3},
    "medium": {},
    "high": {"min_chunk": 0.75, "frontier": 0.8, "passes": 3},
    "xhigh": {"min_chunk": 1.0, "frontier": 1.5, "passes": 4},
}


def live_options(given: AudioInput) -> dict[str, Any]:
    """Return the options of live transcription for a session's settings."""
    transcription, turns = given.transcription, given.turn_detection
    options: dict[str, Any] = {**DELAYS[transcription.delay or "medium"], "language": transcription.spoken}
    if transcription.prompt:
        options["initial_prompt"] = transcription.prompt
    if transcription.keywords:
        options["keywords"] = transcription.keywords
    if turns is not None:
        options["vad_threshold"] = turns.threshold
        options["vad_padding_ms"] = turns.prefix_padding_ms
        options["vad_silence_ms"] = turns.silence_duration_ms
    return options


# Names of fields in errors about those options.
FIELDS = {
    "language": "session.audio.input.transcription.language",
    "initial_prompt": "session.audio.input.transcription.prompt",
    "keywords": "session.audio.input.transcription.keywords",
    "vad_threshold": "session.audio.input.turn_detection.threshold",
    "vad_padding_ms": "session.audio.input.turn_detection.prefix_padding_ms",
    "vad_silence_ms": "session.audio.input.turn_detection.silence_duration_ms",
}


class LiveJob:
    """Transcribes audio while it is appended.

    offset: seconds of the session's audio before this job's. settings: fixed for the job. num_seconds: of its audio.
    The session sets the other fields. item: the current utterance. language: the detected one. end: seconds of the
    session's audio at which the item ends. is_committed: True once the client has committed all of the audio, which
    then belongs to one item.
    """

    item: Item | None = None
    language: str | None = None
    end: float | None = None
    is_committed: bool = False

    def __init__(self, models: ServedModels, model: ServedModel, settings: AudioInput, offset: float) -> None:
        assert model.speech is not None
        self.model, self.settings, self.offset, self.num_seconds = model, settings, offset, 0.0
        options = live_options(settings)
        self.transcription = model.speech.transcriber.live_transcription(settings.format.sample_rate, **options)
        self.feed = self.transcription.feed
        self._models = models
        self._task: asyncio.Task[None] | None = None
        self._unpushed = bytearray()  # less than LEAST_PACKET

    @property
    def detects_turns(self) -> bool:
        """True if voice activity begins and ends the items; False if the client's commits do."""
        return self.settings.turn_detection is not None

    def start(
        self, on_event: Callable[[Any], Awaitable[None]], ended: Callable[[Exception | None], Awaitable[None]]
    ) -> None:
        """Start the job. on_event: called with each event. ended: called after the last one, with the job's error."""
        ticket = self._models.admit_stream(self.model)
        self._task = asyncio.create_task(self._run(ticket, on_event, ended))

    def push(self, pcm: bytes) -> float:
        """Add audio: 16-bit samples. Tiny packets are joined. Returns its seconds."""
        self._unpushed += pcm
        if self._seconds(self._unpushed) >= LEAST_PACKET:
            self._push()
        self.num_seconds += self._seconds(pcm)
        return self._seconds(pcm)

    async def wait_for_room(self) -> None:
        """Wait while more than MOST_UNREAD seconds of audio are unread, unless the job ends."""
        while self.feed.unread > MOST_UNREAD and self._task is not None and not self._task.done():
            await asyncio.sleep(POLL_SECONDS)

    @property
    def num_passes(self) -> int:
        """Number of passes of the model over the audio."""
        return self.transcription.num_passes

    def finish(self) -> None:
        """End the job after the audio so far."""
        self._push()
        self.feed.close()

    async def wait(self) -> None:
        """Wait until the job has ended and its events have been sent."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def abort(self) -> None:
        """End the job at once, without further events."""
        self.feed.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _push(self) -> None:
        self.feed.push(bytes(self._unpushed))
        self._unpushed.clear()

    def _seconds(self, pcm: bytes | bytearray) -> float:
        return len(pcm) / 2 / self.settings.format.sample_rate

    async def _run(
        self,
        ticket: Ticket,
        on_event: Callable[[Any], Awaitable[None]],
        ended: Callable[[Exception | None], Awaitable[None]],
    ) -> None:
        failure: Exception | None = None
        async with ticket:
            try:
                async with contextlib.aclosing(ticket.run(self.transcription.job())) as events:
                    async for event in events:
                        await on_event(event)
            except Exception as error:
                failure = error
        await ended(failure)
