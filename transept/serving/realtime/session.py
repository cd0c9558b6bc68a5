"""RealtimeSession: the state of one client's session. It handles the client's events and sends the server's.

    append ─▶ decode ─▶ LiveJob ─▶ its events ─▶ items ─▶ OpenAI's events

With turn detection, one live job serves all utterances, and each one becomes an item. Without it, each commit of the
client ends a live job, whose text is one item. The next job may start while earlier ones finish their text. The
session answers an invalid event with an `error`, and stays unchanged. `http.realtime` makes sessions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.types import Scope

from transept.errors import ParameterError, nearest
from transept.serving.errors import ApiError, answer_to, api_error
from transept.serving.metrics import Metrics
from transept.serving.models import ServedModel, ServedModels
from transept.serving.realtime.audio import decoded
from transept.serving.realtime.events import error_event, event, item_events, new_id
from transept.serving.realtime.items import Item
from transept.serving.realtime.live_job import FIELDS, LiveJob
from transept.serving.realtime.session_options import TENTATIVE, TranscriptionSession
from transept.speech.live.events import (
    Committed,
    Lagging,
    LanguageDetected,
    SpeechStarted,
    SpeechStopped,
    Tentative,
    UtteranceEnded,
)

LARGE_TEXT = 256 << 10  # characters of an event, which is then decoded in another thread
MOST_FINISHING = 8  # jobs that finish their text; with more, a commit waits for one of them
OTHER_EVENTS = (
    *("response.create", "response.cancel", "output_audio_buffer.clear", "conversation.item.create"),
    *("conversation.item.delete", "conversation.item.retrieve", "conversation.item.truncate"),
)


class RealtimeSession:
    """One client's session; see the module's docstring.

    scope: of the connection. settings: the initial ones; `session.update` changes them. send: sends an event to the
    client. expires_at: Unix time at which the server ends the session. model: the model's name, set by `open`.
    num_seconds: length of the appended audio. is_broken: set once the engine has ended, so the session must end.
    """

    def __init__(
        self,
        scope: Scope,
        settings: TranscriptionSession,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        expires_at: int,
    ) -> None:
        self._scope, self._send = scope, send
        self._models: ServedModels = scope["app"].state.models
        self._metrics: Metrics = scope["app"].state.metrics
        self.settings = settings
        self.model = ""
        self.id, self._expires_at = new_id("sess"), expires_at
        self.num_seconds = 0.0
        self.is_broken = asyncio.Event()
        self._job: LiveJob | None = None  # to which audio is appended
        self._finishing: set[LiveJob] = set()  # jobs whose audio is complete
        self._last_item: str | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
        }

    async def open(self) -> None:
        """Announce the session. Raises ApiError if its model is unknown or not ready."""
        self.model = self._model_of(self.settings).name
        await self._send(event("session.created", session=self._described()))

    async def take(self, text: str | None) -> None:
        """Handle one event of the client. text: its JSON; None for a binary message."""
        event_id: str | None = None
        try:
            given = _parsed(text)
            event_id = given.get("event_id") if isinstance(given.get("event_id"), str) else None
            await self._handler(given.get("type"))(given)
        except Exception as error:
            await self._send(error_event(answer_to(self._scope, error), event_id))

    async def finish(self) -> None:
        """End the audio, and wait until its text has been sent."""
        self._let_finish()
        for job in tuple(self._finishing):
            await job.wait()

    async def close(self) -> None:
        """Drop all audio, and stop the work on it."""
        jobs = [*self._finishing, *([self._job] if self._job is not None else [])]
        self._job = None
        for job in jobs:
            await self._drop(job)
        self._finishing.clear()

    def _described(self) -> dict[str, Any]:
        about = {"id": self.id, "object": "realtime.transcription_session", "expires_at": self._expires_at}
        described = self.settings.described()
        described["audio"]["input"]["transcription"]["model"] = self.model
        return {**about, **described}

    def _model_of(self, settings: TranscriptionSession) -> ServedModel:
        """Return the model of a session. Raises ApiError; see ServedModels.get."""
        try:
            return self._models.get(settings.input.transcription.model, "speech")
        except ApiError as error:
            error.param = error.param and "session.audio.input.transcription.model"
            raise

    def _handler(self, kind: Any) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
        if isinstance(kind, str) and kind in self._handlers:
            return self._handlers[kind]
        if kind in OTHER_EVENTS:
            message = f"{kind} is an event of conversations, and this session only transcribes. Leave it out"
            raise ApiError(400, message, param="type", code="unsupported")
        known = ", ".join(self._handlers)
        if not isinstance(kind, str):
            raise ApiError(400, f"type is missing. Send one of {known}", param="type", code="invalid_value")
        near = nearest(kind, self._handlers)
        meant = f"Did you mean {near}?" if near else f"Send one of {known}"
        raise ApiError(400, f"there is no event {kind[:100]!r}. {meant}", param="type", code="invalid_value")

    async def _update(self, given: Mapping[str, Any]) -> None:
        settings = self.settings.merged(given.get("session"))
        model = self._model_of(settings)
        old, new = self.settings.input, settings.input
        if old != new:
            self._new_job(model, settings)  # raises for options that the model does not take
            is_other_audio = old.format != new.format or old.turn_detection != new.turn_detection
            if self._job is not None and (self._job.detects_turns or is_other_audio):
                await self._end_buffer()
        self.settings, self.model = settings, model.name
        await self._send(event("session.updated", session=self._described()))

    async def _append(self, given: Mapping[str, Any]) -> None:
        text, form = given.get("audio"), self.settings.input.format
        if not isinstance(text, str):
            message = f"audio must be a text, the bytes of {form.type} in base64"
            raise ApiError(400, message, param="audio", code="invalid_value")
        try:
            data = decoded(text, form) if len(text) < LARGE_TEXT else await asyncio.to_thread(decoded, text, form)
        except Exception as error:
            raise api_error(error, "audio") from None
        if not data:
            return
        if self._job is None:
            self._job = self._new_job(self._model_of(self.settings), self.settings)
            self._start(self._job)
        job = self._job
        seconds = job.push(data)
        self.num_seconds += seconds
        self._metrics.audio(job.model.name, seconds)
        await job.wait_for_room()

    async def _commit(self, given: Mapping[str, Any]) -> None:
        if self._job is None:
            message = "the buffer has no audio: append some before a commit"
            raise ApiError(400, message, code="input_audio_buffer_commit_empty")
        await self._end_buffer(by_client=True)
        while len(self._finishing) > MOST_FINISHING:
            await next(iter(self._finishing)).wait()

    async def _clear(self, given: Mapping[str, Any]) -> None:
        job, self._job = self._job, None
        if job is not None:
            await self._drop(job)
        await self._send(event("input_audio_buffer.cleared"))

    async def _drop(self, job: LiveJob) -> None:
        """End a job at once, and count its passes."""
        await job.abort()
        self._metrics.live_passes(job.model.name, job.num_passes)

    def _new_job(self, model: ServedModel, settings: TranscriptionSession) -> LiveJob:
        try:
            return LiveJob(self._models, model, settings.input, self.num_seconds)
        except ParameterError as error:
            raise error.renamed(lambda name: FIELDS.get(name, name)) from None

    def _start(self, job: LiveJob) -> None:
        async def on_event(live_event: Any) -> None:
            await self._on_event(job, live_event)

        async def ended(failure: Exception | None) -> None:
            await self._ended(job, failure)

        job.start(on_event, ended)

    async def _end_buffer(self, *, by_client: bool = False) -> None:
        """End the current job's audio. Without turn detection, or by the client, that audio becomes an item at once."""
        job = self._job
        assert job is not None
        self._let_finish()
        if by_client or not job.detects_turns:
            job.is_committed = True
            job.end = self.num_seconds
            await self._commit_item(self._item_of(job))

    def _let_finish(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            self._finishing.add(job)
            job.finish()

    def _item_of(self, job: LiveJob) -> Item:
        """Return the current item of a job, or a new one."""
        if job.item is None:
            job.item = Item(job.offset)
        return job.item

    async def _commit_item(self, item: Item) -> None:
        """Announce an item, whose audio is complete."""
        if item.is_committed:
            return
        item.is_committed = True
        previous, self._last_item = self._last_item, item.id
        for each in item_events(item.id, previous):
            await self._send(each)

    async def _complete_item(self, job: LiveJob) -> None:
        """Send the transcript of an item, if there is one."""
        item, job.item = job.item, None
        if item is None:
            return
        await self._commit_item(item)
        end = self.num_seconds if job.end is None else job.end
        language = job.language or job.settings.transcription.spoken
        await self._send(item.completed(end - item.begin, language, self.settings.include))
        job.end = None

    async def _on_event(self, job: LiveJob, live_event: Any) -> None:
        """Turn an event of a job into events for the client."""
        is_turn = job.detects_turns and not job.is_committed
        if isinstance(live_event, Committed):
            self._metrics.live_words(job.model.name, live_event.lag)
            delta = self._item_of(job).delta(live_event.words, self.settings.include, job.offset)
            if delta is not None:
                await self._send(delta)
        elif isinstance(live_event, Tentative):
            if TENTATIVE in self.settings.include:
                await self._send(self._item_of(job).tentative(live_event.text))
        elif isinstance(live_event, LanguageDetected):
            job.language = live_event.language
        elif isinstance(live_event, Lagging):
            self._metrics.live_lagging(job.model.name)
        elif isinstance(live_event, UtteranceEnded):
            if is_turn:
                await self._complete_item(job)
            elif job.item is not None:
                job.item.begins_anew = True
        elif isinstance(live_event, SpeechStarted) and is_turn:
            begin = job.offset + live_event.start
            job.item = Item(begin)
            fields = {"audio_start_ms": round(1000 * begin), "item_id": job.item.id}
            await self._send(event("input_audio_buffer.speech_started", **fields))
        elif isinstance(live_event, SpeechStopped) and is_turn and job.item is not None:
            turns = job.settings.turn_detection
            assert turns is not None
            job.end = min(job.offset + live_event.end + turns.silence_duration_ms / 1000, self.num_seconds)
            fields = {"audio_end_ms": round(1000 * job.end), "item_id": job.item.id}
            await self._send(event("input_audio_buffer.speech_stopped", **fields))
            await self._commit_item(job.item)

    async def _ended(self, job: LiveJob, failure: Exception | None) -> None:
        """Send the end of a job: the transcript of its item, or the failure."""
        if self._job is job:
            self._job = None
        self._finishing.discard(job)
        self._metrics.live_passes(job.model.name, job.num_passes)
        if failure is None:
            await self._complete_item(job)
            return
        answer = answer_to(self._scope, failure)
        if job.item is None:
            await self._send(error_event(answer))
        else:
            await self._commit_item(job.item)
            await self._send(job.item.failed(answer.body()["error"]))
        if answer.status == 503:
            self.is_broken.set()


def _parsed(text: str | None) -> dict[str, Any]:
    """Parse an event. Raises ApiError."""
    if text is None:
        message = "an event is a text message with a JSON object: send audio in base64, in input_audio_buffer.append"
        raise ApiError(400, message, code="invalid_event")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ApiError(400, "the event is not valid JSON: send one JSON object", code="invalid_event") from None
    if not isinstance(given, dict):
        raise ApiError(400, "the event must be a JSON object with a type", code="invalid_event")
    return given
