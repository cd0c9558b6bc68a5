"""Errors of requests: each names its field as the client sent it, and its value in JSON, also while models load."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from transept.errors import CapacityError
from transept.serving.http import completions
from transept.serving.http.app import build_app
from transept.serving.http.bodies import MAX_VALUES, num_separators
from transept.serving.settings import ModelSource, ServerSettings

SPEECH, TEXT, SUMMARIZE, TRANSLATE, READ = (
    *("/v1/audio/transcriptions", "/v1/completions"),
    *("/v1/summarize", "/v1/translate", "/v1/read"),
)
FILE = {"file": ("a.wav", b"no sound")}
SEGMENT = {"start": 1.0, "end": 2.0, "text": " One."}


@pytest.fixture(scope="module")
def loading() -> TestClient:
    """A server whose models are loading: without its lifespan, they never end."""
    return TestClient(build_app(ServerSettings((ModelSource("a", "none"), ModelSource("b", "none")))))


def post(client: TestClient, path: str, sent: dict[str, Any], files: dict[str, Any] | None = FILE) -> httpx.Response:
    if path in (SPEECH, READ):
        # A form is multipart even without a file.
        return client.post(path, data=sent, files=files or {"model": (None, "")})
    return client.post(path, json=sent)


@pytest.mark.parametrize(
    ("path", "sent", "param", "message"),
    [
        (SPEECH, {"num_beams": "0"}, "num_beams", "num_beams must be an integer of at least 1, not 0"),
        (SPEECH, {"vad_filter": "maybe"}, "vad_filter", 'vad_filter must be true or false, not "maybe"'),
        (SPEECH, {"temperature": "-1"}, "temperature", "temperature must be"),
        (SPEECH, {"vad_options[threshold]": "3"}, "vad_options.threshold", "vad_options.threshold must be"),
        (SPEECH, {"multilingual": "true", "language": "de"}, "language", 'language="de"'),
        (READ, {"num_beams": "0"}, "num_beams", "num_beams must be"),
        (READ, {"beam_size": "0"}, "beam_size", "beam_size must be"),
        (READ, {"page": "0"}, "page", "page must be"),
        (TEXT, {"prompt": "a", "max_new_tokens": -1}, "max_new_tokens", "max_new_tokens must be"),
        (TEXT, {"prompt": "a", "stop": [True, None]}, "stop", "not [true, null]"),
        (TEXT, {"prompt": "a", "stop_token_ids": {"a": None}}, "stop_token_ids", 'not {"a": null}'),
        (SUMMARIZE, {"input": "a", "max_new_tokens": 0}, "max_new_tokens", "max_new_tokens must be"),
        (SUMMARIZE, {"input": "a", "truncation": "yes"}, "truncation", 'truncation must be true or false, not "yes"'),
        (SUMMARIZE, {"input": "a", "truncate": True, "chunk": True}, "truncate", "truncate and chunk"),
        (SUMMARIZE, {"input": "a", "temperature": "hot"}, "temperature", 'not "hot"'),
        (TRANSLATE, {"input": "a", "src_lang": 3}, "src_lang", "src_lang must be"),
        (SPEECH, {"timestamp_granularities[]": "x"}, "timestamp_granularities[]", "timestamp_granularities[] may hold"),
        (SPEECH, {"progress": "true"}, "progress", "progress needs stream=true"),
        (
            SPEECH,
            {"style": "netflix"},
            "style",
            "style lays out subtitles, and response_format is json: leave style out",
        ),
        (SPEECH, {"max_line_count": "2"}, "max_line_count", "needs the width of a line; set max_line_width"),
        (
            "/v1/format",
            {"format": "srt", "segments": [SEGMENT | {"text": 5}]},
            "segments[0].text",
            "must be text, not 5",
        ),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_as_it_was_sent(
    loading: TestClient, path: str, sent: dict[str, Any], param: str, message: str
) -> None:
    answer = post(loading, path, sent)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (TEXT, {"prompt": "a", "max_tokens": 1, "max_new_tokens": 2}),
        (SUMMARIZE, {"input": "a", "truncate": True, "truncation": True}),
        (SPEECH, {"beam_size": "1", "num_beams": "2"}),
    ],
    ids=str,
)
def test_a_field_under_two_names_is_sent_once(loading: TestClient, path: str, sent: dict[str, Any]) -> None:
    answer = post(loading, path, sent)
    assert answer.status_code == 400
    first, second = [*sent][-2:]
    assert answer.json()["error"]["message"] == f"{first} and {second} are the same field: send one of them"


@pytest.mark.parametrize("path", [SPEECH, READ])
def test_a_form_needs_its_file_while_models_load(loading: TestClient, path: str) -> None:
    answer = post(loading, path, {}, files=None)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "file"


def test_a_files_name_sent_as_text_is_recognized(loading: TestClient) -> None:
    error = post(loading, SPEECH, {"file": "talk.flac"}, files={"model": (None, "")}).json()["error"]
    assert error["param"] == "file"
    assert error["message"].startswith(
        'file is the text "talk.flac": send the recording itself, with curl as -F file=@'
    )


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/audio/transcription", "/v1/audio/transcriptions"),
        ("/audio/translations", "/v1/audio/translations"),
        ("/v1/sumarize", "/v1/summarize"),
        ("/v1/moderations", None),
    ],
)
def test_an_unknown_path_is_told_the_nearest(loading: TestClient, path: str, meant: str | None) -> None:
    answer = loading.post(path)
    assert answer.status_code == 404
    near = f" Did you mean {meant}?" if meant else ""
    assert answer.json()["error"]["message"] == f"there is no {path}.{near} /docs lists all paths."


@pytest.mark.parametrize("name", ["best_of", "n"])
def test_an_error_of_the_engine_names_the_field_and_what_the_client_can_change(name: str) -> None:
    asked = completions._asked(completions.BODY.given({"prompt": "a", name: 65, "num_beams": 1}))
    with pytest.raises(CapacityError) as raised:
        asked.params.check_width(64)
    answer = asked.body.error(raised.value, "prompt")
    assert answer.param == name
    assert answer.message == (
        f"the request needs 65 sequences at a time, but the server's max_num_seqs is 64. Lower {name}, or raise the "
        "server's max_num_seqs to 65."
    )


@pytest.mark.parametrize(
    ("path", "sent"),
    [(SPEECH, {}), (READ, {}), (TEXT, {"prompt": "a"}), (SUMMARIZE, {"input": "a"}), (TRANSLATE, {"input": ["a"]})],
)
def test_a_good_request_waits_for_the_models(loading: TestClient, path: str, sent: dict[str, Any]) -> None:
    answer = post(loading, path, sent)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "loading"


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        (SUMMARIZE, "text", "Did you mean 'input'?"),
        (SUMMARIZE, "prompt", "Did you mean 'input'?"),
        (TEXT, "input", "Did you mean 'prompt'?"),
        (TRANSLATE, "from", "Did you mean 'source'?"),
        (SPEECH, "max_completion_tokens", "Did you mean 'max_new_tokens'?"),
        (SPEECH, "src_lang", "Did you mean 'language'?"),
        (SPEECH, "fp16", "a setting of the server"),
        (TEXT, "compute_type", "a setting of the server"),
        (SPEECH, "vad_threshold", "Here that is 'vad_options'. Its value is such as 'threshold=0.5"),
        (SPEECH, "max_audio_seconds", "a setting of the server"),
        (READ, "image", "Did you mean 'file'?"),
        ("/v1/format", "output_format", "Did you mean 'format'?"),
    ],
)
def test_a_name_of_another_api_is_told_ours(loading: TestClient, path: str, name: str, message: str) -> None:
    error = post(loading, path, {name: "a"}).json()["error"]
    assert error["code"] == "unknown_field"
    assert error["param"] == name
    assert message in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"end": 0.5}, "segments[0].end"),
        ({"words": [{"start": 1.5, "end": 1.2, "word": " One."}]}, "segments[0].words[0].end"),
        ({"words": [{"start": 0.1, "end": 0.2, "word": " One."}]}, "segments[0].words[0].start"),
        ({"words": [{"start": 2.1, "end": 2.2, "word": " One."}]}, "segments[0].words[0].start"),
    ],
    ids=str,
)
def test_times_that_cannot_be_are_refused(loading: TestClient, fields: dict[str, Any], param: str) -> None:
    answer = post(loading, "/v1/format", {"format": "srt", "segments": [SEGMENT | fields]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


HOSTILE = SEGMENT | {"text": " a [00:10.00]b\nc\td\x1b[2Je\x00 --> f", "speaker": "Ann\nB\x07 -->"}


@pytest.mark.parametrize("with_words", [False, True])
@pytest.mark.parametrize("name", ["txt", "srt", "vtt", "tsv", "csv", "lrc", "ass", "ttml"])
def test_text_cannot_break_its_file(loading: TestClient, name: str, with_words: bool) -> None:
    segment = HOSTILE | ({"words": [{"start": 1.0, "end": 2.0, "word": HOSTILE["text"]}]} if with_words else {})
    written = post(loading, "/v1/format", {"format": name, "segments": [segment]})
    plain = post(loading, "/v1/format", {"format": name, "segments": [SEGMENT | {"text": " a\nb", "speaker": "Ann"}]})
    assert written.status_code == plain.status_code == 200
    assert not set(written.text) & {chr(code) for code in range(32) if chr(code) not in "\t\n"}
    if name not in ("txt", "csv", "srt", "vtt"):  # in which a text may have several lines
        assert written.text.count("\n") == plain.text.count("\n")
    if name in ("srt", "vtt"):
        assert written.text.count("-->") == 1
        assert "\n\n" not in written.text.removeprefix("WEBVTT\n\n").strip()
    if name == "vtt":
        assert "<v Ann B  --&gt;>" in written.text
    if name == "tsv":
        assert all(line.count("\t") == 3 for line in written.text.splitlines())
    if name == "lrc":
        assert written.text.count("[0") == 1


def values_of(value: Any) -> int:
    """The separators of a JSON text: an opening bracket for each list and object, and commas between their entries."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(values_of, inner))


LEAVES = st.none() | st.integers() | st.text(st.sampled_from('a,[{"\\\n'))


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_separators_are_counted_outside_strings(value: Any) -> None:
    assert num_separators(json.dumps(value).encode()) == values_of(value)


@pytest.mark.parametrize("value", ["[]", "{}", "0", '""'])
def test_a_body_of_too_many_values_is_not_parsed(loading: TestClient, value: str) -> None:
    body = '{"prompt": [' + ",".join([value] * MAX_VALUES) + "]}"
    answer = loading.post(TEXT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


def test_commas_in_a_text_are_no_values(loading: TestClient) -> None:
    assert post(loading, SUMMARIZE, {"input": '[{"a": 1, "b": [2]}], \\"' * (MAX_VALUES // 4)}).status_code == 503
