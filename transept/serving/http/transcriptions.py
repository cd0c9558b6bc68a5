"""``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``: OpenAI's fields and Transept's options."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transept.core.jobs.job import Job, Offload
from transept.core.scheduling.growing_text import GrowingText
from transept.errors import MediaError, ParameterError, shown
from transept.multimodal.audio_limits import RESERVATION
from transept.multimodal.channels import EACH
from transept.serving.async_engine import Queued, Ticket
from transept.serving.async_tasks import AsyncTranscriber, last
from transept.serving.audio_memory import AudioShare
from transept.serving.errors import ApiError
from transept.serving.http import forms
from transept.serving.http.answers import answers
from transept.serving.http.fields import Given
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended, event_stream
from transept.serving.http.transcription_answers import (
    DiarizedTranscription,
    Event,
    Transcription,
    VerboseTranscription,
    diarized_answer,
    info_fields,
    segment_event,
    segment_logprobs,
    usage,
    verbose_answer,
)
from transept.serving.http.transcription_fields import BODY, OPENAI_PARTS, OwnFields, ServerVad
from transept.serving.models import ServedModel, translates_to
from transept.serving.settings import ServerSettings
from transept.speech.options import FALLBACK_TEMPERATURES, TRANSLATES_TO, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import FORMATS, SUBTITLES, format_transcript
from transept.speech.segments import Found, Opened, has_speakers
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.voices.store import Voices
from transept.speech.word_breaks import joined_text

router = APIRouter(tags=["speech"])

MEDIA_TYPES = {
    "json": "application/json",
    "verbose_json": "application/json",
    "diarized_json": "application/json",
    "text": "text/plain",
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
    "tsv": "text/tab-separated-values",
    "csv": "text/csv",
    "lrc": "text/plain",
    "ass": "text/x-ssa",
    "ttml": "application/ttml+xml",
    "html": "text/html",
}
FILES = set(MEDIA_TYPES) & set(FORMATS) - {"json"}  # formats of the command's files; OpenAI's json differs from theirs
STREAMED = ("json", "verbose_json", "diarized_json", "text")
# Option -> OpenAI's field for it.
OPENAI_NAMES = {
    "initial_prompt": "prompt",
    "language": "languages",
    "vad_options": "chunking_strategy",
    "word_timestamps": "timestamp_granularities",
    "token_logprobs": "include",
}
ANSWERS = answers(
    Transcription | VerboseTranscription | DiarizedTranscription,
    events=Event,
    texts=sorted({*MEDIA_TYPES.values()} - {"application/json"}),
)
SpeechPlace = Annotated[Place, Depends(place_of("speech"))]
SpeechForm = Annotated[Given, Depends(forms.form_of(BODY))]


@dataclass(frozen=True)
class Asked:
    """A checked request."""

    form: Given
    fields: OwnFields
    layout: SubtitleLayout
    options: dict[str, Any]


@router.post("/v1/audio/transcriptions", openapi_extra=BODY.documented(), responses=ANSWERS)
async def transcriptions(request: Request, place: SpeechPlace, form: SpeechForm) -> Response:
    """Transcribe speech in the language that is spoken."""
    return await _respond(request, place, form, "transcribe")


@router.post("/v1/audio/translations", openapi_extra=BODY.documented(), responses=ANSWERS)
async def translations(request: Request, place: SpeechPlace, form: SpeechForm) -> Response:
    """Translate speech in any language to English text."""
    return await _respond(request, place, form, "translate")


async def _respond(request: Request, place: Place, form: Given, task: str) -> Response:
    asked = _asked(form, task)
    target = target_of(asked.options.get("task"), asked.options.get("target_language"))
    upload = await place.stack.enter_async_context(forms.upload(form))
    model, ticket = await place.take(asked.fields.model, translates_to(target))
    assert model.speech is not None
    try:
        if asked.options.get("voices") is None and _may_name_speakers(asked.options):
            asked.options["voices"] = await run_in_threadpool(_voices_of, request.app.state.settings)
        job = model.speech.job(upload.data, **asked.options)
        if asked.fields.known_speaker_names:
            job.close()
            job = _with_references(model.speech, upload.data, asked)
    except ParameterError as error:
        raise asked.form.error(error) from error
    share = request.app.state.models.audio_memory.share()
    place.stack.callback(share.release)
    RESERVATION.set(share)  # the job runs in this context
    events = _events(ticket, job, upload, request, model, share, asked.form)
    if asked.fields.stream:
        return await event_stream(request, _stream(model.speech.transcriber.model, events, asked), place.stack)
    return await attended(request, _whole(model.speech.transcriber.model, events, asked))


def _voices_of(settings: ServerSettings) -> Voices | None:
    """Return the server's known voices. Raises RuntimeError for a file that cannot be read, the server's fault."""
    try:
        return settings.known_voices()
    except ParameterError as error:
        raise RuntimeError(str(error)) from error


def _may_name_speakers(options: dict[str, Any]) -> bool:
    """True if speakers are told apart by their voices, and have no given names."""
    checked = TranscriptionOptions(**options)
    return checked.diarize and not checked.speaker_names


def _with_references(speech: AsyncTranscriber, audio: bytes | str, asked: Asked) -> Job:
    """A job: embed OpenAI's references of speakers, then transcribe with these voices."""

    def enrolled() -> Voices:
        voices = Voices()
        names, references = asked.fields.known_speaker_names, asked.fields.known_speaker_references
        for name, reference in zip(names, references, strict=True):
            try:
                voices = voices.enrolled(name, reference)
            except MediaError as error:
                message = f"{{known_speaker_references}}, that of {name}: {error}"
                raise ParameterError(message, param="known_speaker_references") from error
        return voices

    voices = yield Offload(enrolled)
    return (yield from speech.job(audio, **{**asked.options, "voices": voices}))


def target_of(task: str | None, target_language: str | None) -> str | None:
    """Return the language that the task translates to; None for any other task."""
    return (target_language or TRANSLATES_TO) if task == "translate" else None


def _asked(form: Given, task: str) -> Asked:
    """Check a form. Raises ApiError for fields that are invalid or contradictory."""
    fields, layout, options = form.made(OwnFields), form.made(SubtitleLayout), form.part(TranscriptionOptions)
    if task == "translate":
        if options.get("task", task) != task:
            message = f"task is {shown(options['task'])}, but /v1/audio/translations translates. Leave task out, or use"
            raise ApiError(400, f"{message} /v1/audio/transcriptions", param="task", code="invalid_value")
        options["task"] = task
    options |= _openai_options(fields, options)
    if "word" in fields.timestamp_granularities:
        options["word_timestamps"] = True
    if fields.include:
        options["token_logprobs"] = True
    if fields.voices is not None:
        options["voices"] = fields.voices
    if len(fields.known_speaker_names) != len(fields.known_speaker_references):
        message = "known_speaker_names and known_speaker_references differ in number: send one recording for each name"
        raise ApiError(400, message, param="known_speaker_references", code="invalid_value")
    if fields.known_speaker_names:
        if fields.voices is not None:
            message = "voices and known_speaker_names both name speakers by their voices: send one of them"
            raise ApiError(400, message, param="known_speaker_names", code="invalid_value")
        options["voices"] = Voices()  # until the references are embedded
    if layout.needs_words:
        _check_has_subtitles(layout, fields.response_format)
        options.setdefault("word_timestamps", True)
    sent = {option: field for option, field in OPENAI_NAMES.items() if option not in form.values}
    if fields.response_format == "diarized_json" and options.get("channel") != EACH:
        options["diarize"], sent["diarize"] = True, "response_format=diarized_json"
    if fields.known_speaker_names:
        sent["voices"] = "known_speaker_names"
    if fields.stream and fields.response_format not in STREAMED:
        message = (
            f"a stream has events, not {fields.response_format}: leave stream out, or use one of {', '.join(STREAMED)}"
        )
        raise ApiError(400, message, param="stream", code="invalid_value")
    if fields.progress and not fields.stream:
        message = "progress needs stream=true: set it, or leave progress out"
        raise ApiError(400, message, param="progress", code="invalid_value")
    if "vad_options" in sent:
        sent |= {f"vad_options.{ours}": f"chunking_strategy.{theirs}" for ours, theirs in OPENAI_PARTS.items()}
    form = dataclasses.replace(form, sent={**sent, **form.sent})
    try:
        TranscriptionOptions(**options)  # also raises while models load
    except ParameterError as error:
        raise form.error(error) from error
    return Asked(form, fields, layout, options)


def _check_has_subtitles(layout: SubtitleLayout, response_format: str) -> None:
    """Raise ApiError for options of subtitles with a format that has none."""
    if response_format not in SUBTITLES:
        plain = vars(SubtitleLayout())
        name = next(name for name, value in vars(layout).items() if value != plain[name])
        message = f"{name} lays out subtitles, and response_format is {response_format}: leave {name} out, or use"
        raise ApiError(400, f"{message} {', '.join(SUBTITLES)}", param=name, code="invalid_value")


def _openai_options(fields: OwnFields, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that OpenAI's fields set, where their names or meanings differ."""
    found: dict[str, Any] = {}
    if fields.prompt:
        if "initial_prompt" in options:
            raise ApiError(
                400,
                "prompt and initial_prompt are the same field: send one of them",
                param="prompt",
                code="invalid_value",
            )
        found["initial_prompt"] = fields.prompt
    if fields.keywords:
        found["keywords"] = fields.keywords
    if fields.languages:
        if len(fields.languages) > 1:
            message = "this server accepts one language, or detects it: send one, or leave languages out"
            raise ApiError(400, message, param="languages", code="unsupported")
        found["language"] = fields.languages[0]
    if "temperature" in options:
        with contextlib.suppress(ValueError):  # of several; TranscriptionOptions parses them
            found["temperature"] = float(str(options["temperature"])) or FALLBACK_TEMPERATURES
    if isinstance(fields.chunking_strategy, ServerVad):
        found["vad_options"] = fields.chunking_strategy.vad_options()
    return found


async def _events(
    ticket: Ticket,
    job: Any,
    upload: forms.Upload,
    request: Request,
    model: ServedModel,
    share: AudioShare,
    form: Given,
) -> AsyncGenerator[Any, None]:
    """Yield the events and the result of the job. Raises its exception as ApiError."""
    log = request.state.log = {"model": model.name}
    try:
        async with contextlib.aclosing(ticket.run(job)) as events:
            async for event in events:
                if isinstance(event, Opened):
                    share.settle()
                    log["audio_seconds"] = round(event.duration, 3)
                    request.app.state.metrics.audio(model.name, event.duration)
                yield event
    except ApiError:
        raise
    except Exception as error:
        told = form.error(error, "file")
        if told.status >= 500 and told.status != 503:
            raise  # to be logged with its traceback
        told.message = upload.in_message(told.message)
        raise told from error


async def _whole(model: SpeechModel, events: AsyncGenerator[Any, None], asked: Asked) -> Response:
    """Return the whole answer."""
    transcript: Transcript = await last(events)
    if asked.fields.response_format == "text":
        with_speakers = has_speakers(transcript.segments)
        text = format_transcript("txt", transcript.segments, transcript.language, asked.layout)
        return PlainTextResponse(text if with_speakers else transcript.text + "\n")
    if asked.fields.response_format in FILES:
        try:
            text = format_transcript(
                asked.fields.response_format, transcript.segments, transcript.language, asked.layout
            )
        except ParameterError as error:
            raise asked.form.error(error) from error
        return Response(text, media_type=f"{MEDIA_TYPES[asked.fields.response_format]}; charset=utf-8")
    if asked.fields.response_format == "json":
        answer: dict[str, Any] = {"text": transcript.text, "usage": usage(transcript)}
        if asked.fields.include:
            answer["logprobs"] = [each for segment in transcript.segments for each in segment_logprobs(model, segment)]
        return JSONResponse(answer)
    if asked.fields.response_format == "diarized_json":
        return JSONResponse(diarized_answer(model, transcript))
    return JSONResponse(verbose_answer(model, transcript, asked.fields.timestamp_granularities))


async def _stream(
    model: SpeechModel, events: AsyncGenerator[Any, None], asked: Asked
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield OpenAI's events, and with progress also further ones."""
    tokens: list[int] = []
    sent, number = "", 0
    growing, decode = GrowingText(), model.tokenizer.decode
    is_edited = bool(asked.options.get("glossary") or asked.options.get("redact"))  # then tokens do not spell the text
    texts: list[str] = []
    async with contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, Queued) and asked.fields.progress:
                yield {"type": "transcript.queued", "position": event.position}
            elif isinstance(event, Opened) and asked.fields.progress:
                yield {"type": "transcript.opened", "duration": event.duration}
            elif isinstance(event, TranscriptionInfo) and asked.fields.progress:
                yield {"type": "transcript.info", **info_fields(event)}
            elif isinstance(event, Found):
                for segment in event.segments:
                    tokens += segment.tokens
                    texts += [segment.text]
                    text = (joined_text(texts) if is_edited else growing.of(tokens, decode)).strip()
                    if len(text) > len(sent) and text.startswith(sent):
                        logprobs = {"logprobs": segment_logprobs(model, segment)} if asked.fields.include else {}
                        yield {"type": "transcript.text.delta", "delta": text[len(sent) :], **logprobs}
                        sent = text
                    yield segment_event(segment, number)
                    number += 1
                if asked.fields.progress:
                    yield {"type": "transcript.progress", "seconds": event.progress_seconds}
            elif isinstance(event, Transcript):
                if len(event.text) > len(sent) and event.text.startswith(sent):
                    yield {"type": "transcript.text.delta", "delta": event.text[len(sent) :]}
                yield {
                    "type": "transcript.text.done",
                    "text": event.text,
                    "language": event.language,
                    "duration": event.duration,
                    "warnings": event.warnings,
                    "reason": event.reason,
                    "usage": usage(event),
                }
