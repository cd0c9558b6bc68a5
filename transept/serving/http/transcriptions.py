"""``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``: OpenAI's fields, and ours beside them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import FormData
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transept.core.scheduling.growing_text import GrowingText
from transept.errors import ParameterError, shown, suggest
from transept.multimodal.channels import EACH
from transept.multimodal.decoded_memory import RESERVATION
from transept.option_names import hint
from transept.serving.async_engine import Queued, Ticket
from transept.serving.async_tasks import last
from transept.serving.audio_memory import AudioShare
from transept.serving.errors import ApiError, api_error, as_json
from transept.serving.http import forms
from transept.serving.http.places import Place
from transept.serving.http.streams import EventStream, attended
from transept.serving.http.transcription_answers import (
    diarized_answer,
    info_fields,
    segment_event,
    segment_logprobs,
    usage,
    verbose_answer,
)
from transept.serving.models import ServedModel, translates_to
from transept.speech.events import Found, Opened
from transept.speech.options import FALLBACK_TEMPERATURES, TRANSLATES_TO, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import FORMATS, SUBTITLES
from transept.speech.segments import has_speakers
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Transcript, TranscriptionInfo

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
}
FILES = set(MEDIA_TYPES) & set(FORMATS) - {"json"}  # formats of the command line's files; OpenAI's json is another
GRANULARITIES = ("segment", "word")
INCLUDED = ("logprobs",)
OWN_FIELDS = (
    *("file", "model", "prompt", "response_format", "timestamp_granularities", "stream", "include"),
    *("chunking_strategy", "keywords", "languages", "progress"),
)
LAYOUT = tuple(field.name for field in dataclasses.fields(SubtitleLayout))
OPTIONS = tuple(TranscriptionOptions.names())
FIELDS = (*OWN_FIELDS, *OPTIONS, *LAYOUT)
# Option -> OpenAI's field for it.
OPENAI_NAMES = {
    "initial_prompt": "prompt",
    "hotwords": "keywords",
    "language": "languages",
    "vad_options": "chunking_strategy",
    "word_timestamps": "timestamp_granularities",
    "token_logprobs": "include",
}
OPENAI_PARTS = {"min_silence_duration_ms": "silence_duration_ms", "speech_pad_ms": "prefix_padding_ms"}
OBJECTS, PART = ("chunking_strategy", "vad_options"), re.compile(r"\w+\]")
REFUSED = {
    "known_speaker_names": "this server gives speakers no names of yours",
    "known_speaker_references": "this server gives speakers no names of yours",
}


@dataclass(frozen=True)
class Asked:
    """What a client asks for. granularities: of times. progress: whether a stream tells it."""

    response_format: str
    granularities: tuple[str, ...]
    logprobs: bool
    stream: bool
    progress: bool
    layout: SubtitleLayout
    options: dict[str, Any]


@router.post("/v1/audio/transcriptions")
async def transcriptions(request: Request) -> Response:
    """Speech to text, in the language that is spoken."""
    return await _respond(request, "transcribe")


@router.post("/v1/audio/translations")
async def translations(request: Request) -> Response:
    """Speech in any language to English text."""
    return await _respond(request, "translate")


async def _respond(request: Request, task: str) -> Response:
    async with contextlib.AsyncExitStack() as stack:
        place = Place(request, "speech", stack)
        place.take_early()  # reports a full queue before reading anything
        form = await stack.enter_async_context(forms.read_form(request))
        asked = _asked(form, task)
        target = target_of(asked.options.get("task"), asked.options.get("target_language"))
        model, ticket = await place.take(forms.text(form, "model"), translates_to(target))
        assert model.speech is not None
        upload = await stack.enter_async_context(forms.upload(form, "file"))
        field_of = partial(_as_sent, form)
        try:
            job = model.speech.job(upload.data, **asked.options)
        except ParameterError as error:
            raise api_error(error, field_of=field_of) from error
        share = request.app.state.models.audio_memory.share()
        stack.callback(share.release)
        RESERVATION.set(share)  # for the job, which runs in this context
        events = _events(ticket, job, upload, request, model, share, field_of)
        if asked.stream:
            return EventStream(_stream(model.speech.transcriber.model, events, asked), owned=stack.pop_all())
        return await attended(request, _whole(model.speech.transcriber.model, events, asked))


def target_of(task: str | None, target_language: str | None) -> str | None:
    """Return the language that the task translates to; None for any other task."""
    return (target_language or TRANSLATES_TO) if task == "translate" else None


def _asked(form: FormData, task: str) -> Asked:
    """What the form says. Raises ApiError for what it cannot mean."""
    for name in form:
        plain, _, part = name.partition("[")  # OpenAI's client writes lists as name[], and objects as name[part]
        if plain in REFUSED:
            raise ApiError(400, f"{plain}: {REFUSED[plain]}; leave it out", param=plain, code="unsupported")
        if part not in ("", "]") and plain in FIELDS and not (plain in OBJECTS and PART.fullmatch(part)):
            message = f"{plain} has no parts, so there is no field {name[:100]!r}"
            raise ApiError(400, message, param=plain, code="unknown_field")
        if plain not in FIELDS:
            meant = hint(plain[:100], FIELDS) or suggest(plain[:100], FIELDS)
            message = f"there is no field {plain[:100]!r}.{meant}"
            raise ApiError(400, message, param=plain[:100], code="unknown_field")
    granularities = tuple(forms.words(form, "timestamp_granularities"))
    included = forms.words(form, "include")
    for name, values, known in (
        ("timestamp_granularities", granularities, GRANULARITIES),
        ("include", included, INCLUDED),
    ):
        for value in values:
            if value not in known:
                message = f"{name} may hold {' and '.join(known)}, not {as_json(value)}"
                raise ApiError(400, message, param=name, code="invalid_value")
    options = forms.options(form, TranscriptionOptions)
    if task == "translate":
        if options.get("task", task) != task:
            message = f"task is {shown(options['task'])}, but /v1/audio/translations translates. Leave task out, or use"
            raise ApiError(400, f"{message} /v1/audio/transcriptions", param="task", code="invalid_value")
        options["task"] = task
    options |= _openai_options(form, options)
    if "word" in granularities:
        options["word_timestamps"] = True
    if included:
        options["token_logprobs"] = True
    laid_out = forms.options(form, SubtitleLayout)
    try:
        layout = SubtitleLayout(**laid_out)
    except ParameterError as error:
        raise api_error(error) from error
    response_format = forms.choice(form, "response_format", MEDIA_TYPES, "json")
    if layout.needs_words and response_format in SUBTITLES:
        options.setdefault("word_timestamps", True)
    stream = forms.truth(form, "stream")
    if response_format == "diarized_json" and options.get("channel") != EACH:
        options["diarize"] = True
    if stream and response_format not in ("json", "verbose_json", "diarized_json", "text"):
        raise ApiError(
            400, f"a stream has events, not {response_format}; leave stream out", param="stream", code="invalid_value"
        )
    return Asked(response_format, granularities, bool(included), stream, forms.truth(form, "progress"), layout, options)


def _as_sent(form: FormData, name: str) -> str:
    """Return the field that the client sent for an option."""
    option, dot, part = name.partition(".")
    if option not in OPENAI_NAMES or any(field.partition("[")[0] == option for field in form):
        return name
    return OPENAI_NAMES[option] + dot + OPENAI_PARTS.get(part, part)


def _openai_options(form: FormData, options: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's fields that have another name or another meaning here."""
    found: dict[str, Any] = {}
    if prompt := forms.text(form, "prompt"):
        if "initial_prompt" in options:
            raise ApiError(
                400, "prompt and initial_prompt are the same; send one", param="prompt", code="invalid_value"
            )
        found["initial_prompt"] = prompt
    if keywords := forms.texts(form, "keywords"):
        found["hotwords"] = ", ".join(keywords)
    if languages := forms.texts(form, "languages"):
        if len(languages) > 1:
            message = "this server takes one language, or detects it; send language, or leave languages out"
            raise ApiError(400, message, param="languages", code="unsupported")
        found["language"] = languages[0]
    increment = "temperature_increment_on_fallback"
    never = increment in options and options[increment] is None  # as on the command line
    if never or "temperature" in options:
        with contextlib.suppress(ValueError):
            temperature = float(str(options.get("temperature", 0)))  # of several, the options say what is wrong
            found["temperature"] = temperature if temperature or never else FALLBACK_TEMPERATURES
    strategy = forms.text(form, "chunking_strategy") or forms.parts(form, "chunking_strategy")
    return found | (_chunking(strategy) if strategy else {})


def _chunking(strategy: str | dict[str, str]) -> dict[str, Any]:
    """Parse OpenAI's chunking by voice activity, which auto mode does anyway. strategy: JSON, or its parts."""
    if strategy == "auto":
        return {}
    try:
        parts = strategy if isinstance(strategy, dict) else json.loads(strategy)
        given = {name: value if name == "type" else float(value) for name, value in parts.items()}
        if given.pop("type") != "server_vad":
            raise ValueError(strategy)
        names = {"threshold": "threshold", **{theirs: ours for ours, theirs in OPENAI_PARTS.items()}}
        return {"vad_options": {names[name]: value for name, value in given.items()}}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ApiError(
            400,
            'chunking_strategy must be auto, or {"type": "server_vad"} with threshold, silence_duration_ms and '
            f"prefix_padding_ms if you like, not {shown(strategy)}",
            param="chunking_strategy",
            code="invalid_value",
        ) from None


async def _events(
    ticket: Ticket,
    job: Any,
    upload: forms.Upload,
    request: Request,
    model: ServedModel,
    share: AudioShare,
    field_of: Callable[[str], str],
) -> AsyncGenerator[Any, None]:
    """What comes of the job. Raises ApiError for what it raises."""
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
        told = api_error(error, "file", field_of)
        if told.status >= 500 and told.status != 503:
            raise  # to be logged with its traceback
        told.message = upload.in_message(told.message)
        raise told from error


async def _whole(model: SpeechModel, events: AsyncGenerator[Any, None], asked: Asked) -> Response:
    """The answer, once all is done."""
    transcript: Transcript = await last(events)
    if asked.response_format == "text":
        told_apart = has_speakers(transcript.segments)
        text = FORMATS["txt"](transcript.segments, transcript.language, asked.layout)
        return PlainTextResponse(text if told_apart else transcript.text + "\n")
    if asked.response_format in FILES:
        try:
            text = FORMATS[asked.response_format](transcript.segments, transcript.language, asked.layout)
        except ParameterError as error:
            raise api_error(error) from error
        return Response(text, media_type=f"{MEDIA_TYPES[asked.response_format]}; charset=utf-8")
    if asked.response_format == "json":
        answer: dict[str, Any] = {"text": transcript.text, "usage": usage(transcript)}
        if asked.logprobs:
            answer["logprobs"] = [each for segment in transcript.segments for each in segment_logprobs(model, segment)]
        return JSONResponse(answer)
    if asked.response_format == "diarized_json":
        return JSONResponse(diarized_answer(model, transcript))
    return JSONResponse(verbose_answer(model, transcript, asked.granularities))


async def _stream(
    model: SpeechModel, events: AsyncGenerator[Any, None], asked: Asked
) -> AsyncGenerator[dict[str, Any], None]:
    """OpenAI's events; with progress ours, too."""
    tokens: list[int] = []
    told, number = "", 0
    growing, decode = GrowingText(), model.tokenizer.decode
    async with contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, Queued) and asked.progress:
                yield {"type": "transcript.queued", "position": event.position}
            elif isinstance(event, Opened) and asked.progress:
                yield {"type": "transcript.opened", "duration": event.duration}
            elif isinstance(event, TranscriptionInfo) and asked.progress:
                yield {"type": "transcript.info", **info_fields(event)}
            elif isinstance(event, Found):
                for segment in event.segments:
                    tokens += segment.tokens
                    text = growing.of(tokens, decode).strip()
                    if len(text) > len(told) and text.startswith(told):
                        logprobs = {"logprobs": segment_logprobs(model, segment)} if asked.logprobs else {}
                        yield {"type": "transcript.text.delta", "delta": text[len(told) :], **logprobs}
                        told = text
                    yield segment_event(segment, number)
                    number += 1
                if asked.progress:
                    yield {"type": "transcript.progress", "seconds": event.progress_seconds}
            elif isinstance(event, Transcript):
                if len(event.text) > len(told) and event.text.startswith(told):
                    yield {"type": "transcript.text.delta", "delta": event.text[len(told) :]}
                yield {
                    "type": "transcript.text.done",
                    "text": event.text,
                    "language": event.language,
                    "duration": event.duration,
                    "warnings": event.warnings,
                    "reason": event.reason,
                    "usage": usage(event),
                }
