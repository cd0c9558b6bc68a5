"""``POST /v1/format``: a transcript, perhaps edited, as a file that editors and players open. No model is needed."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from typing_extensions import TypedDict

from transept.errors import ParameterError
from transept.multimodal.suffixes import split_suffix
from transept.options import Option
from transept.serving.errors import ApiError, api_error
from transept.serving.http import bodies
from transept.serving.http.fields import JSON, Body
from transept.serving.models import ServedModels
from transept.speech.output.subtitles import SubtitleLayout, make_cues
from transept.speech.output.writers import FORMATS, MEDIA_TYPES, SUBTITLES
from transept.speech.segments import Segment
from transept.speech.transcript import Transcript

router = APIRouter(tags=["speech"])

MAX_BYTES = 16 << 20  # of a body: some 18 hours of speech with the times of words
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
    """A segment, perhaps with its words and its speaker."""

    text: str
    speaker: NotRequired[str]
    words: NotRequired[list[FileWord]]


@dataclass(frozen=True)
class FileFields:
    """What the file is, and the fields of a transcript that it is made of."""

    format: Annotated[Literal["txt", "vtt", "srt", "tsv", "json", "lrc", "csv", "ass"], Option("of the file")]
    segments: Annotated[
        list[FileSegment] | None, Option("those of verbose_json, or of a stream's events", wanted="a list of segments")
    ] = None
    language: Annotated[str, Option("a code such as en, or an English name; json shows its code")] = ""
    file_name: Annotated[str, Option("of the recording, such as talk.mp3; the file is then talk.srt")] = ""


TranscriptFields = make_dataclass(
    "TranscriptFields", [(name, Annotated[Any, Option("as verbose_json has it")], None) for name in OF_TRANSCRIPTS]
)
BODY = Body(JSON, FileFields, SubtitleLayout, TranscriptFields)


FILE: dict[str, Any] = {
    "description": "the file, whose name is in Content-Disposition",
    "content": {media_type: {"schema": {"type": "string"}} for media_type in MEDIA_TYPES.values()},
}


async def upload_place(request: Request) -> AsyncGenerator[None, None]:
    """Hold a place among the uploads. Raises ApiError: 503 while the server drains, 429 if there is no free place."""
    models: ServedModels = request.app.state.models
    models.check_open()
    with models.uploads.place(request.client.host if request.client is not None else ""):
        yield


@router.post(
    "/v1/format",
    dependencies=[Depends(upload_place)],
    openapi_extra=BODY.documented(),
    responses={200: FILE},
    response_class=Response,
)
async def format_transcript(
    request: Request, body: Annotated[dict[str, Any], Depends(bodies.json_of(BODY, MAX_BYTES, "transcript"))]
) -> Response:
    """A transcript as a file: text, subtitles, a table, lyrics, karaoke or openai-whisper's JSON.

    The body is what `/v1/audio/transcriptions` answers as `verbose_json`, perhaps edited, with `format` added, and
    options of subtitles if you like.
    """
    models: ServedModels = request.app.state.models
    format_name, name = _named_in(body)
    request.state.log = {"format": format_name}
    async with models.formatting:
        text = await run_in_threadpool(_written, body, format_name, models)
    return Response(
        text,
        media_type=f"{MEDIA_TYPES[format_name]}; charset=utf-8",
        headers={"Content-Disposition": f"attachment; filename*=utf-8''{quote(f'{name}.{format_name}', safe='')}"},
    )


def _named_in(body: dict[str, Any]) -> tuple[str, str]:
    """Return the format, and the answer's file name without a suffix. Raises ApiError."""
    fields = BODY.made(
        FileFields, {name: value for name, value in body.items() if name not in ("segments", "language")}
    )
    return fields.format, split_suffix(fields.file_name)[0] or "transcript"


def _written(body: dict[str, Any], format_name: str, models: ServedModels) -> str:
    """Return the file's text. Raises ApiError, which names the field at fault."""
    layout = BODY.made(SubtitleLayout, body)
    try:
        transcript = Transcript.from_dict(body)
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
