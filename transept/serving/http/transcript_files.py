"""``POST /v1/format``: converts a transcript, possibly edited, to a file format. It needs no model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from typing_extensions import TypedDict

from transept.errors import MissingPackageError, ParameterError
from transept.multimodal.suffixes import split_suffix
from transept.options import Option
from transept.serving.errors import ApiError
from transept.serving.http import bodies
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import place_of
from transept.serving.models import ServedModels
from transept.speech.output import writers
from transept.speech.output.subtitles import SubtitleLayout, make_cues
from transept.speech.output.writers import MEDIA_TYPES, SUBTITLES
from transept.speech.transcript import Transcript

router = APIRouter(tags=["speech"])

MAX_BYTES = 16 << 20  # of a body: some 18 hours of speech with the times of words
MAX_VALUES = 2_000_000
MAX_CHARACTERS = 64 << 20  # of a file's subtitles, which may repeat words and speakers
OF_TRANSCRIPTS = (  # further fields of verbose_json, of diarized_json and of Transcript.to_dict
    *("task", "spoken_language", "target_language", "duration", "text", "words", "usage", "language_probability"),
    *("language_probabilities", "duration_after_vad", "missed_speech", "warnings", "reason"),
)


class TimedText(TypedDict):
    """A word or a segment with its times in seconds."""

    start: float
    end: float


class FileWord(TimedText):
    """A word."""

    word: str


class FileSegment(TimedText):
    """A segment, with its words and its speaker if known."""

    text: str
    speaker: NotRequired[str]
    words: NotRequired[list[FileWord]]


@dataclass(frozen=True)
class FileFields:
    """The format and the name of the file."""

    format: Annotated[
        Literal["txt", "vtt", "srt", "tsv", "json", "lrc", "csv", "ass", "ttml", "html", "docx"], Option("of the file")
    ]
    file_name: Annotated[str, Option("of the recording, such as talk.mp3; the file is then talk.srt")] = ""


TranscriptFields = make_dataclass(
    "TranscriptFields",
    [
        (
            "segments",
            Annotated[list[FileSegment] | None, Option("segments of verbose_json, or of a stream's events")],
            None,
        ),
        ("language", Annotated[str, Option("a code such as en, or an English name; json shows its code")], ""),
        *((name, Annotated[Any, Option("as verbose_json has it")], None) for name in OF_TRANSCRIPTS),
    ],
)
BODY = Body(JSON, FileFields, SubtitleLayout, TranscriptFields)


FILE: dict[str, Any] = {
    "description": "the file, whose name is in Content-Disposition",
    "content": {
        MEDIA_TYPES[name]: {"schema": {"type": "string", **({"format": "binary"} if name in writers.BINARY else {})}}
        for name in MEDIA_TYPES
    },
}


@router.post(
    "/v1/format",
    dependencies=[Depends(place_of(None))],
    openapi_extra=BODY.documented(),
    responses={200: FILE},
    response_class=Response,
)
async def format_transcript(
    request: Request, body: Annotated[Given, Depends(bodies.json_of(BODY, MAX_BYTES, MAX_VALUES, "transcript"))]
) -> Response:
    """Convert a transcript to a file, such as text, subtitles, a table, a document or openai-whisper's JSON.

    The body is a `verbose_json` answer of `/v1/audio/transcriptions`, possibly edited, with `format` added, and any
    options of subtitles.
    """
    models: ServedModels = request.app.state.models
    fields, layout = body.made(FileFields), body.made(SubtitleLayout)
    format_name, name = fields.format, split_suffix(fields.file_name)[0] or "transcript"
    request.state.log = {"format": format_name}
    async with models.formatting:
        content = await run_in_threadpool(_written, body, format_name, layout, models)
    charset = "" if format_name in writers.BINARY else "; charset=utf-8"
    return Response(
        content,
        media_type=MEDIA_TYPES[format_name] + charset,
        headers={"Content-Disposition": f"attachment; filename*=utf-8''{quote(f'{name}.{format_name}', safe='')}"},
    )


def _written(body: Given, format_name: str, layout: SubtitleLayout, models: ServedModels) -> bytes:
    """Return the file's bytes. Raises ApiError, which names the field at fault."""
    try:
        transcript = Transcript.from_dict(body.values)
        if format_name in SUBTITLES:
            _check_size(transcript, layout, format_name)
        return writers.transcript_bytes(format_name, transcript.segments, _code(transcript.language, models), layout)
    except MissingPackageError as error:
        raise ApiError(400, str(error), param="format", code="unsupported") from error
    except ParameterError as error:
        raise body.error(error) from error


def _check_size(transcript: Transcript, layout: SubtitleLayout, format_name: str) -> None:
    """Raise ApiError for a file that would be far larger than its transcript."""
    if format_name not in ("srt", "vtt"):
        layout = dataclasses.replace(layout, highlight_words=False)  # the others never repeat words
    size = 0
    for cue in make_cues(transcript.segments, layout, transcript.language):
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
    """Return the code of a language given by its English name, as in verbose_json. Return other texts unchanged."""
    for model in models.models.values():
        if model.speech is not None and language in (names := model.speech.transcriber.model.spec.language_names):
            return names[language]
    return language
