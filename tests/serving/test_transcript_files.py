"""``POST /v1/format``: the files that the command line writes, from what the server has answered before."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy
import pytest
import soundfile
from patience import PATIENCE
from serve_process import ServeProcess

import transept
from transept.options import declared
from transept.serving.http.transcript_files import MAX_BYTES, MAX_CHARACTERS, OF_TRANSCRIPTS
from transept.speech.output.writers import BINARY, FORMATS, MEDIA_TYPES

SEGMENT = {"start": 0.0, "end": 1.5, "text": " Hello."}
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"highlight_words": True},
    {"max_line_width": 20, "max_line_count": 2},
    {"max_words_per_line": 3},
    {"style": "netflix", "max_line_width": 20},
]


@pytest.fixture(scope="module")
def transcript(tiny_en_dir: Path, clip: Path) -> transept.Transcript:
    """What the clip gives without a server."""
    return transept.transcribe(clip, model=tiny_en_dir, word_timestamps=True)


@pytest.fixture(scope="module")
def answers(server: ServeProcess, clip: Path) -> dict[str, dict[str, Any]]:
    """What the server has answered for the clip, by response format; `events` are those of a stream."""
    both = io.BytesIO()
    samples, rate = soundfile.read(clip)
    soundfile.write(both, numpy.stack([samples, 0 * samples], 1), rate, format="FLAC")

    def ask(file: bytes, **fields: str) -> httpx.Response:
        data = {"model": "tiny.en", "word_timestamps": "true", **fields}
        return server.client.post("/v1/audio/transcriptions", files={"file": ("a.flac", file)}, data=data)

    answers: dict[str, dict[str, Any]] = {
        "verbose_json": ask(clip.read_bytes(), response_format="verbose_json").json(),
        "diarized_json": ask(both.getvalue(), response_format="diarized_json", channel="each").json(),
    }
    streamed = ask(clip.read_bytes(), stream="true").text
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.split("\n\n") if line.startswith("data: {")]
    segments = [event for event in events if event["type"] == "transcript.text.segment"]
    answers["events"] = {"segments": segments, "language": events[-1]["language"]}
    return answers


def post(server: ServeProcess, body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/format", json=body, timeout=PATIENCE)


def written(transcript: transept.Transcript, file: Path, **layout: Any) -> bytes:
    """What the command line writes."""
    transcript.write(file, **layout)
    return file.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("source", ["verbose_json", "events"])
def test_files_are_those_of_the_command_line(
    server: ServeProcess,
    answers: dict[str, dict[str, Any]],
    transcript: transept.Transcript,
    source: str,
    layout: dict[str, Any],
    tmp_path: Path,
) -> None:
    for name in FORMATS:
        answer = post(server, {**answers[source], "format": name, **layout})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == f"{MEDIA_TYPES[name]}; charset=utf-8"
        assert answer.headers["content-disposition"] == f"attachment; filename*=utf-8''transcript.{name}"
        assert answer.content == written(transcript, tmp_path / f"expected.{name}", **layout), name


def test_a_document_of_word_is_a_file_of_bytes(server: ServeProcess, answers: dict[str, dict[str, Any]]) -> None:
    docx = pytest.importorskip("docx")
    answer = post(server, {**answers["verbose_json"], "format": "docx"})
    assert answer.headers["content-type"] == MEDIA_TYPES["docx"]
    text = "".join(each.text for each in docx.Document(io.BytesIO(answer.content)).paragraphs)
    assert all(each["text"].strip() in text for each in answers["verbose_json"]["segments"])


def test_edits_and_speakers_are_in_the_file(server: ServeProcess, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers["diarized_json"]
    [first, *_] = answer["segments"]
    assert first["speaker"]
    edited = {**answer, "segments": [{**first, "text": " Edited -->", "words": None, "start": 1, "end": 2}]}
    told = post(server, {**edited, "format": "srt", "file_name": "Grüße: 日本.mp3"})
    assert told.text == f"1\n00:00:01,000 --> 00:00:02,000\n{first['speaker']}: Edited ->\n\n"
    assert told.headers["content-disposition"].endswith("''Gr%C3%BC%C3%9Fe%3A%20%E6%97%A5%E6%9C%AC.srt")


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("talk.mp3", "talk.txt"),
        ("Vol. 2", "Vol.%202.txt"),
        ("../../a.wav", "a.txt"),
        ("", "transcript.txt"),
        ("a\r\nb", "a%0D%0Ab.txt"),
    ],
)
def test_the_file_is_called_as_the_recording(server: ServeProcess, file_name: str, expected: str) -> None:
    answer = post(server, {"segments": [SEGMENT], "format": "txt", "file_name": file_name})
    assert (answer.text, answer.headers["content-disposition"]) == (
        "Hello.\n",
        f"attachment; filename*=utf-8''{expected}",
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"format": None}, "format"),
        ({"format": "doc"}, "format"),
        ({"format": ["srt"]}, "format"),
        ({"file_name": 1}, "file_name"),
        ({"segments": None}, "segments"),
        ({"segments": [{"start": 0, "end": 1}]}, "segments[0].text"),
        ({"segments": [{**SEGMENT, "words": [{"word": "a", "start": 0, "end": "1"}]}]}, "segments[0].words[0].end"),
        ({"max_line_width": 0}, "max_line_width"),
        ({"max_line_width": "42"}, "max_line_width"),
        ({"linger": 1e308}, "linger"),
        ({"max_chars_per_second": 1e-320}, "max_chars_per_second"),
        ({"highlight_words": 1}, "highlight_words"),
        ({"max_line_count": 2}, "max_line_count"),  # without a width
        ({"max_words_per_line": 3}, "max_words_per_line"),  # there are no words
        ({"max_line_with": 3}, "max_line_with"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_field_is_named(server: ServeProcess, change: dict[str, Any], param: str) -> None:
    body = {"segments": [SEGMENT], "format": "srt", **change}
    answer = httpx.post(
        f"{server.url}/v1/format", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert param in error["message"]


def test_sizes_are_bounded(server: ServeProcess) -> None:
    whole = post(server, {"segments": [{**SEGMENT, "text": "a" * MAX_BYTES}], "format": "txt"})
    assert (whole.status_code, whole.json()["error"]["code"]) == (413, "too_large")
    text = " " + "a" * (MAX_BYTES // 8000)
    long = {"word": text, "start": 0, "end": 1}
    assert 500 * 500 * len(text) > 4 * MAX_CHARACTERS  # of one subtitle, again for each of its words
    repeated = {"segments": [{**SEGMENT, "words": [long] * 500}], "format": "vtt", "highlight_words": True}
    answer = post(server, repeated)
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "highlight_words")
    assert post(server, {**repeated, "max_words_per_line": 5}).status_code == 200
    assert post(server, {**repeated, "format": "ass"}).status_code == 200  # karaoke has every word once
    speaker = {"segments": [{**SEGMENT, "speaker": "a" * 100_000, "words": [{**long, "word": " a"}] * 1000}]}
    answer = post(server, {**speaker, "format": "ass", "max_words_per_line": 1})
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "segments")


def test_the_description_of_the_api_has_all_fields(server: ServeProcess) -> None:
    described = server.client.get("/openapi.json").json()["paths"]["/v1/format"]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["format"]["enum"] == [*FORMATS, *BINARY]
    layout = declared(transept.SubtitleLayout)
    assert {"format", "file_name", "segments", "language", *layout, *OF_TRANSCRIPTS} == set(schema["properties"])
    assert set(described["responses"]["200"]["content"]) == set(MEDIA_TYPES.values())
