"""``POST /v1/format``: a transcript, perhaps edited, as a file that editors and players open. No model is needed."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from transept.errors import ParameterError
from transept.multimodal.suffixes import split_suffix
from transept.options import declared
from transept.serving.errors import ApiError, api_error
from transept.serving.http import bodies
from transept.serving.models import ServedModels
from transept.speech.output.subtitles import SubtitleLayout, make_cues
from transept.speech.output.writers import FORMATS, MEDIA_TYPES, SUBTITLES
from transept.speech.segments import Segment
from transept.speech.transcript import Transcript

router = APIRouter(tags=["speech"])

MAX_BYTES = 16 << 20  # of a body: some 18 hours of speech with the times of words
MAX_CHARACTERS = 64 << 20  # of a file's subtitles, which may repeat words and speakers
LAYOUT = declared(SubtitleLayout)
OF_TRANSCRIPTS = (  # fields of verbose_json, of diarized_json and of Transcript.to_dict
    *("task", "language", "spoken_language", "target_language", "duration", "text", "segments", "words", "usage"),
    *("language_probability", "language_probabilities", "duration_after_vad", "missed_speech", "warnings", "reason"),
)
FIELDS = ("format", "file_name", *LAYOUT, *OF_TRANSCRIPTS)


def _schema() -> dict[str, Any]:
    """The schema of the body, for `/docs`."""
    numbers, text = {"type": "number"}, {"type": "string"}
    timed = {"start": {**numbers, "description": "seconds"}, "end": numbers}
    word = {"type": "object", "required": ["word", "start", "end"], "properties": {"word": text, **timed}}
    segment = {
        "type": "object",
        "required": ["start", "end", "text"],
        "properties": {**timed, "text": text, "speaker": text, "words": {"type": "array", "items": word}},
    }
    layout = {
        name: {"type": "boolean"} if each.is_flag else {"type": "integer", "minimum": 1}
        for name, each in LAYOUT.items()
    }
    properties = {
        "format": {"type": "string", "enum": list(FORMATS)},
        "file_name": {"type": "string", "description": "of the recording, such as talk.mp3; the file is then talk.srt"},
        "segments": {
            "type": "array",
            "items": segment,
            "description": "those of verbose_json, or of a stream's events",
        },
        "language": {"type": "string", "description": "a code such as en, or an English name; json shows its code"},
        **{name: {**schema, "description": LAYOUT[name].option.help} for name, schema in layout.items()},
    }
    schema = {"type": "object", "required": ["format", "segments"], "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


FILE: dict[str, Any] = {
    "description": "the file, whose name is in Content-Disposition",
    "content": {media_type: {"schema": {"type": "string"}} for media_type in MEDIA_TYPES.values()},
}


@router.post("/v1/format", openapi_extra=_schema(), responses={200: FILE}, response_class=Response)
async def format_transcript(request: Request) -> Response:
    """A transcript as a file: text, subtitles, a table, lyrics, karaoke or openai-whisper's JSON.

    The body is what `/v1/audio/transcriptions` answers as `verbose_json`, perhaps edited, with `format` added, and
    options of subtitles if you like.
    """
    models: ServedModels = request.app.state.models
    models.check_open()
    with models.uploads.place(request.client.host if request.client is not None else ""):
        body = await bodies.read_json(request, FIELDS, MAX_BYTES, "transcript")
        format_name, name = _format_in(body), _file_name(body)
        request.state.log = {"format": format_name}
        async with models.formatting:
            text = await run_in_threadpool(_written, body, format_name, models)
    return Response(
        text,
        media_type=f"{MEDIA_TYPES[format_name]}; charset=utf-8",
        headers={"Content-Disposition": f"attachment; filename*=utf-8''{quote(f'{name}.{format_name}', safe='')}"},
    )


def _format_in(body: dict[str, Any]) -> str:
    given = body.get("format")
    if given is None:
        message = f"format is missing; it is one of {', '.join(FORMATS)}"
        raise ApiError(400, message, param="format", code="invalid_value")
    if not isinstance(given, str) or given not in FORMATS:
        raise bodies.wrong("format", f"one of {', '.join(FORMATS)}", given)
    return given


def _file_name(body: dict[str, Any]) -> str:
    """Return the answer's file name, without a suffix."""
    name = bodies.text(body, "file_name") or ""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise bodies.wrong("file_name", "text without half a surrogate pair", name) from None
    return split_suffix(name)[0] or "transcript"


def _written(body: dict[str, Any], format_name: str, models: ServedModels) -> str:
    """Return the file's text. Raises ApiError, which names the field at fault."""
    given = {name: body[name] for name in LAYOUT if name in body}
    try:
        transcript, layout = Transcript.from_dict(body), SubtitleLayout(**given)
        if format_name in SUBTITLES:
            _check_size(transcript.segments, layout, format_name)
        return FORMATS[format_name](transcript.segments, _code(transcript.language, models), layout)
    except ParameterError as error:
        raise api_error(error) from error


def _check_size(segments: list[Segment], layout: SubtitleLayout, format_name: str) -> None:
    """Raise ApiError before a file is made that is far larger than its transcript."""
    if format_name not in ("srt", "vtt"):
        layout = dataclasses.replace(layout, highlight_words=False)  # the others never repeat words
    size = 0
    for cue in make_cues(segments, layout):
        size += len(cue.attributed)
        if size > MAX_CHARACTERS:
            raise ApiError(
                413,
                f"the file would have more than {MAX_CHARACTERS >> 20} million characters, since each subtitle repeats "
                "its speaker, and with highlight_words its text for each word: set max_words_per_line, or leave "
                "highlight_words out",
                param="highlight_words" if layout.highlight_words else "segments",
                code="too_large",
            )


def _code(language: str, models: ServedModels) -> str:
    """Return the code of a language that verbose_json calls by its English name; any other text as it is."""
    for model in models.models.values():
        if model.speech is not None and language in (names := model.speech.transcriber.model.spec.language_names):
            return names[language]
    return language
