"""The description of the API: valid, and its fields are the declared ones, which each endpoint accepts."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import validate
from serve_process import ServeProcess

from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.page_options import PageOptions
from transept.options import declared
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.text.options import EmbeddingOptions, TextOptions, TranslationOptions
from transept.vision.options import ReadingOptions

FORM, JSON, EVENTS = "multipart/form-data", "application/json", "text/event-stream"
SPEECH = ("/v1/audio/transcriptions", "/v1/audio/translations")
# Fields of the wire format, which are options of no library call, and the declarations of all the others.
OF_SPEECH = {"file", "model", "prompt", "response_format", "timestamp_granularities", "stream", "include"}
OF_SPEECH |= {
    "chunking_strategy",
    "keywords",
    "languages",
    "progress",
    "known_speaker_names",
    "known_speaker_references",
}
OF_TEXT = {"model", "input", "stream"}
OF_COMPLETIONS = {
    "model",
    "prompt",
    "decoder_prompt",
    "best_of",
    "stream",
    "stream_options",
    "response_format",
    "echo",
    "suffix",
    "user",
}
ENDPOINTS: dict[str, tuple[str, set[str], tuple[type[Any], ...]]] = {
    **dict.fromkeys(SPEECH, (FORM, OF_SPEECH, (TranscriptionOptions, SubtitleLayout))),
    "/v1/completions": (JSON, OF_COMPLETIONS, (SamplingParams,)),
    "/v1/embeddings": (JSON, {"model", "input", "encoding_format", "dimensions", "user"}, (EmbeddingOptions,)),
    "/v1/summarize": (JSON, OF_TEXT, (TextOptions, SamplingParams)),
    "/v1/translate": (JSON, OF_TEXT, (TranslationOptions, SamplingParams)),
    "/v1/read": (FORM, {"file", "model"}, (ReadingOptions, PageOptions, SamplingParams)),
}
OF_SEVERAL = {"same_speakers", "add_voices"}  # recordings, and a request has one
IN_PYTHON_ALONE = {"logits_processors", "allowed_next_tokens", "prompt_probe", "detokenize", *OF_SEVERAL}
NUMBERS_ALONE = "/v1/read"  # of the SamplingParams it has those that are numbers
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


@pytest.fixture(scope="module")
def document(server: ServeProcess) -> dict[str, Any]:
    return server.client.get("/openapi.json").json()


def properties(document: dict[str, Any], path: str) -> dict[str, Any]:
    content = document["paths"][path]["post"]["requestBody"]["content"]
    (schema,) = [each["schema"] for each in content.values()]
    assert not schema["additionalProperties"]
    return schema["properties"]


def test_it_is_valid(document: dict[str, Any]) -> None:
    validate(document)
    posts = {path for path, methods in document["paths"].items() if "post" in methods}
    assert set(ENDPOINTS) <= posts


@pytest.mark.parametrize("path", ENDPOINTS)
def test_no_endpoint_has_a_field_of_its_own(path: str, document: dict[str, Any]) -> None:
    media_type, of_the_format, kinds = ENDPOINTS[path]
    assert [*document["paths"][path]["post"]["requestBody"]["content"]] == [media_type]
    options = {name for kind in kinds for name in declared(kind)} - IN_PYTHON_ALONE
    found = set(properties(document, path))
    assert found <= of_the_format | options
    missing = (of_the_format | options) - found - ({"chunk", "decoder_prompt"} if EmbeddingOptions in kinds else set())
    assert not missing if path != NUMBERS_ALONE else missing < set(declared(SamplingParams))


@pytest.mark.parametrize("path", ENDPOINTS)
def test_each_field_says_what_its_option_does(path: str, document: dict[str, Any]) -> None:
    _, of_the_format, kinds = ENDPOINTS[path]
    num_bounds = num_defaults = 0
    for name, schema in properties(document, path).items():
        assert schema["description"].strip(".")
        option = next((declared(kind)[name] for kind in kinds if name in declared(kind)), None)
        if option is None or name in of_the_format or (path, name) in OPENAI_COUNTS:
            continue
        assert "--" not in schema["description"]
        branches = schema.get("anyOf", [schema])
        for ours, theirs in BOUNDS.items():
            bound = getattr(option.option, ours)
            numbers = [each for each in branches if each.get("type") in ("integer", "number")]
            assert all(each.get(theirs) == (bound and float(bound)) for each in numbers), name
            num_bounds += bound is not None
        if isinstance(option.default, str | bool | int | float):
            assert schema["default"] == option.default
            num_defaults += 1
        if option.choices and not option.is_flag:
            words = {word for each in branches for word in each.get("enum", [each.get("const")])}
            assert words - {None} == {*option.choices}
    assert num_bounds > 1
    assert num_defaults or path == NUMBERS_ALONE


OPENAI_COUNTS = {("/v1/completions", name) for name in ("n", "num_return_sequences", "logprobs")}


def sample(schema: dict[str, Any]) -> Any:
    """A value that a schema allows, as text where it is one of a form."""
    if "default" in schema:
        return schema["default"]
    if "anyOf" in schema:
        return sample(schema["anyOf"][0])
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    at_least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 0.5)
    made = {"boolean": True, "integer": max(1, int(at_least)), "number": at_least, "string": "a", "array": []}
    return made.get(schema["type"], {name: sample(each) for name, each in schema.get("properties", {}).items()})


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_field_of_the_schema_is_accepted_and_no_other(
    path: str, document: dict[str, Any], server: ServeProcess
) -> None:
    """The model's name is wrong, so that nothing is computed; it is looked for once the fields are read."""
    media_type, schemas = ENDPOINTS[path][0], properties(document, path)

    def code_for(name: str, value: Any) -> str:
        fields = {"model": "none", name: value}
        if media_type == JSON:
            needed = {"prompt": "a"} if "prompt" in schemas else {"input": "a"}
            answer = server.client.post(path, json=needed | fields)
        else:
            texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in fields.items()}
            answer = server.client.post(path, data=texts, files={"file": ("a.wav", b"no sound")})
        assert answer.status_code in (400, 404)
        return answer.json()["error"]["code"]

    for name, schema in schemas.items():
        if name != "file":
            assert code_for(name, sample(schema)) in ("model_not_found", "unsupported", "invalid_value"), name
    for option in (each for kind in ENDPOINTS[path][2] for each in declared(kind).values() if each.name in schemas):
        for alias in option.aliases:
            assert alias.name in schemas or f"`{alias.name}`" in schemas[option.name]["description"]
            value = next(iter(alias.values)) if alias.values else sample(schemas[option.name])
            assert code_for(alias.name, value) in ("model_not_found", "unsupported", "invalid_value"), alias
    assert code_for("colour", "blue") == "unknown_field"


def strict(schema: Any) -> Any:
    """The schema, which allows no further properties."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**closed, **{key: strict(value) for key, value in schema.items()}}


def schema_of_answer(document: dict[str, Any], path: str, media_type: str = JSON) -> Any:
    return strict(document["paths"][path]["post"]["responses"]["200"]["content"][media_type]["schema"])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"include": "logprobs"},
        {"response_format": "verbose_json", "timestamp_granularities": "word,segment"},
        {"response_format": "verbose_json", "token_logprobs": "true", "word_timestamps": "true"},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_answers_about_speech_have_their_schema(
    stream: bool, fields: dict[str, str], document: dict[str, Any], server: ServeProcess, clip: Path
) -> None:
    data = {**fields, "temperature": "0", "stream": str(stream), "progress": str(stream)}
    answer = server.client.post(SPEECH[0], data=data, files={"file": clip.read_bytes()})
    assert answer.status_code == 200
    if not stream:
        jsonschema.validate(answer.json(), schema_of_answer(document, SPEECH[0]))
        return
    events = [
        json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")
    ]
    assert len({event["type"] for event in events}) == 6
    for event in events:
        jsonschema.validate(event, schema_of_answer(document, SPEECH[0], EVENTS))


@pytest.mark.parametrize("response_format", ["text", "srt", "vtt", "tsv", "csv", "lrc", "ass", "ttml"])
def test_texts_have_a_media_type_of_the_description(
    response_format: str, document: dict[str, Any], server: ServeProcess, clip: Path
) -> None:
    data = {"response_format": response_format, "temperature": "0"}
    answer = server.client.post(SPEECH[0], data=data, files={"file": clip.read_bytes()})
    media_type = answer.headers["content-type"].partition(";")[0]
    assert answer.status_code == 200
    assert schema_of_answer(document, SPEECH[0], media_type) == {"type": "string"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/summarize", {"input": ["a text", ""]}),
        ("/v1/translate", {"input": "a text", "source": "en", "target": "de"}),
        ("/v1/completions", {"prompt": ["a", "b"], "logprobs": 2, "n": 2, "seed": 1}),
    ],
)
def test_answers_about_texts_have_their_schema(
    path: str, body: dict[str, Any], stream: bool, document: dict[str, Any], server: ServeProcess
) -> None:
    answer = server.client.post(path, json={"model": "t5", "max_tokens": 5, "stream": stream, **body})
    assert answer.status_code == 200
    if not stream:
        jsonschema.validate(answer.json(), schema_of_answer(document, path))
        return
    events = [
        json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")
    ]
    assert len(events) > 2
    for event in events:
        jsonschema.validate(event, schema_of_answer(document, path, EVENTS))


def test_errors_have_their_schema(document: dict[str, Any], server: ServeProcess) -> None:
    answer = server.client.post("/v1/summarize", json={"colour": "blue"})
    told = document["paths"]["/v1/summarize"]["post"]["responses"]["default"]["content"][JSON]["schema"]
    assert told == {"$ref": "#/components/schemas/ErrorAnswer"}
    assert set(answer.json()["error"]) == set(document["components"]["schemas"]["ErrorDetails"]["properties"])
