"""Summaries and translations over HTTP: what TextGenerator gives for the same documents and options."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_process import PATIENCE, Serve, ServeProcess
from text.small_checkpoints import TEXTS, save_nllb

from transept import GeneratedText, TextGenerator

TO_GERMAN = {"source": "en", "target": "de"}
LONG = " ".join(TEXTS)


@pytest.fixture(scope="module")
def t5(t5_dir: Path) -> Iterator[TextGenerator]:
    generator = TextGenerator(t5_dir, kv_cache_bytes=1 << 24)
    yield generator
    generator.engine.close()


@pytest.fixture(scope="module")
def bart(bart_dir: Path) -> Iterator[TextGenerator]:
    generator = TextGenerator(bart_dir, kv_cache_bytes=1 << 24)
    yield generator
    generator.engine.close()


def post(server: ServeProcess, task: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{task}", json=body, timeout=PATIENCE)


def told(text: GeneratedText, index: int = 0) -> dict[str, Any]:
    named = text.to_dict()
    for each in (named, *named["alternatives"]):
        del each["cumulative_logprob"]
    return {"index": index, **named}


def done_event(text: GeneratedText, index: int) -> dict[str, Any]:
    named = told(text, index)
    del named["error"]  # which would be an event of its own
    return {"type": "text.done", **named}


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_summary_is_what_the_library_writes(server: ServeProcess, bart: TextGenerator) -> None:
    expected = bart.summarize(TEXTS[0])
    answer = post(server, "summarize", model="bart", input=TEXTS[0]).json()
    assert (answer["object"], answer["model"], answer["data"]) == ("summary", "bart", [told(expected)])
    tokens = {"prompt_tokens": expected.num_source_tokens, "completion_tokens": expected.num_tokens}
    assert answer["usage"] == {**tokens, "total_tokens": sum(tokens.values())}


def test_several_texts_that_continue_a_prompt(server: ServeProcess, bart: TextGenerator) -> None:
    options = {"num_beams": 3, "num_return_sequences": 3, "decoder_prompt": "The rain", "max_tokens": 9}
    expected = bart.summarize(TEXTS[0], **options)
    answer = post(server, "summarize", model="bart", input=TEXTS[0], **options).json()
    assert answer["data"] == [told(expected)]
    assert len(expected.alternatives) == 2
    assert answer["usage"]["completion_tokens"] == expected.num_all_tokens


def test_several_documents_keep_their_order(server: ServeProcess, t5: TextGenerator) -> None:
    expected = t5.translate(TEXTS, **TO_GERMAN)
    answer = post(server, "translate", model="t5", input=TEXTS, **TO_GERMAN).json()
    assert answer["object"] == "translation"
    assert answer["data"] == [told(text, index) for index, text in enumerate(expected)]
    assert answer["usage"]["completion_tokens"] == sum(text.num_tokens for text in expected)


@pytest.mark.parametrize("options", [{"chunk": True}, {"truncate": True}, {"chunk": True, "max_source_tokens": 40}])
def test_long_documents(options: dict[str, Any], server: ServeProcess, bart: TextGenerator) -> None:
    expected = bart.summarize(LONG, **options)
    answer = post(server, "summarize", model="bart", input=LONG, **options).json()
    assert answer["data"] == [told(expected)]


@pytest.mark.parametrize("options", [{"num_beams": 1}, {}], ids=["greedy", "beams"])
def test_a_stream_tells_document_after_document(
    options: dict[str, Any], server: ServeProcess, t5: TextGenerator
) -> None:
    expected = t5.translate(TEXTS, **TO_GERMAN, **options)
    events = events_of(post(server, "translate", model="t5", input=TEXTS, stream=True, **TO_GERMAN, **options))
    deltas = [event for event in events if event["type"] == "text.delta"]
    for index, text in enumerate(expected):
        assert "".join(event["delta"] for event in deltas if event["index"] == index) == text.text
    done = [event for event in events if event["type"] == "text.done"]
    assert done == [done_event(text, index) for index, text in enumerate(expected)]
    assert events[-1]["type"] == "text.usage"
    assert events[-1]["usage"]["completion_tokens"] == sum(text.num_tokens for text in expected)
    assert [event["index"] for event in events[:-1]] == sorted(event["index"] for event in events[:-1])
    if options:
        assert len(deltas) > 3 * len(TEXTS)


def test_a_model_is_listed_with_what_it_can_do(serve: Serve, tmp_path: Path) -> None:
    save_nllb(tmp_path)
    server = serve(f"nllb={tmp_path}").wait_until_ready()
    (listed,) = httpx.get(f"{server.url}/v1/models", timeout=PATIENCE).json()["data"]
    assert listed["tasks"] == ["translate", "generate"]
    answer = post(server, "summarize", input=TEXTS[0])
    assert answer.status_code == 400
    assert "this model translates, and does not summarize" in answer.json()["error"]["message"]
    assert post(server, "translate", input=TEXTS[0], source="eng", target="deu").status_code == 200


def test_without_a_name_the_first_model_that_does_the_task_answers(server: ServeProcess, t5: TextGenerator) -> None:
    answer = post(server, "translate", input=TEXTS[0], **TO_GERMAN).json()  # bart, which is first, only summarizes
    assert (answer["model"], answer["data"]) == ("t5", [told(t5.translate(TEXTS[0], **TO_GERMAN))])
    assert post(server, "summarize", input=TEXTS[0]).json()["model"] == "bart"


def test_a_text_that_is_cut_by_a_forced_end_says_so(server: ServeProcess) -> None:
    asked = {"model": "bart", "input": TEXTS[0], "max_tokens": 1, "min_tokens": 0}
    (whole,) = post(server, "summarize", **asked).json()["data"]
    assert (whole["text"], whole["num_tokens"], whole["finish_reason"]) == ("", 1, "length")
    events = events_of(post(server, "summarize", **asked, stream=True))
    assert [event["finish_reason"] for event in events if event["type"] == "text.done"] == ["length"]


def test_in_a_stream_one_bad_document_fails_alone(server: ServeProcess, t5: TextGenerator) -> None:
    first, last = t5.translate([TEXTS[0], TEXTS[1]], **TO_GERMAN)
    refused = ("transept_requests_refused_total", "invalid_prompt")
    before = server.metrics().get(refused, 0)
    events = events_of(post(server, "translate", model="t5", input=[TEXTS[0], "", TEXTS[1]], stream=True, **TO_GERMAN))
    assert server.metrics()[refused] == before + 1
    done = [event for event in events if event.get("type") == "text.done"]
    assert [event["text"] for event in done] == [first.text, last.text]
    (failed,) = [event for event in events if "error" in event]
    assert failed["index"] == 1
    assert failed["error"]["param"] == "input"
    assert "empty" in failed["error"]["message"]


def test_without_a_stream_each_document_has_its_text_or_its_error(server: ServeProcess, t5: TextGenerator) -> None:
    refused = ("transept_requests_refused_total", "invalid_prompt")
    before = server.metrics().get(refused, 0)
    answer = post(server, "translate", model="t5", input=[TEXTS[0], "", TEXTS[1]], **TO_GERMAN)
    assert answer.status_code == 200
    first, failed, last = answer.json()["data"]
    expected = t5.translate([TEXTS[0], TEXTS[1]], **TO_GERMAN)
    assert [first, last] == [told(expected[0], 0), told(expected[1], 2)]
    error = failed.pop("error")
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "input", "invalid_prompt")
    assert failed == {
        "index": 1,
        "text": "",
        "finish_reason": "error",
        "num_source_tokens": 0,
        "num_tokens": 0,
        "num_chunks": 0,
        "truncated": False,
        "alternatives": [],
    }
    assert answer.json()["usage"]["completion_tokens"] == sum(text.num_tokens for text in expected)
    assert server.metrics()[refused] == before + 1


def test_a_document_alone_fails_with_a_status(server: ServeProcess) -> None:
    answer = post(server, "translate", model="t5", input="", **TO_GERMAN)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the document is empty")
    in_a_list = post(server, "translate", model="t5", input=[""], **TO_GERMAN)
    assert (in_a_list.status_code, in_a_list.json()["data"][0]["error"]) == (200, answer.json()["error"])


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"top_p": 0.9}, {"top_p": 0.9, "temperature": 1.0}),
        ({"top_k": 5}, {"top_k": 5, "temperature": 1.0}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0}),
        ({"top_p": 1}, {}),
    ],
    ids=str,
)
def test_filters_of_samples_are_openais(
    sent: dict[str, Any], meant: dict[str, Any], server: ServeProcess, t5: TextGenerator
) -> None:
    expected = t5.summarize(TEXTS[0], seed=5, max_tokens=20, **meant)
    answer = post(server, "summarize", model="t5", input=TEXTS[0], seed=5, max_tokens=20, **sent)
    assert answer.json()["data"] == [told(expected)]


def test_without_a_model_the_first_for_text_answers(server: ServeProcess, bart: TextGenerator) -> None:
    answer = post(server, "summarize", input=TEXTS[1]).json()
    assert (answer["model"], answer["data"]) == ("bart", [told(bart.summarize(TEXTS[1]))])


@pytest.mark.parametrize(
    ("task", "body", "param", "message"),
    [
        ("summarize", {}, "input", "input is missing"),
        ("summarize", {"input": 1}, "input", "a text or a list"),
        ("summarize", {"input": []}, "input", "a text or a list"),
        ("summarize", {"input": [None]}, "input", "a text or a list"),
        ("summarize", {"input": ["a", None]}, "input[1]", "input[1] must be a text, not null"),
        ("summarize", {"input": ["a"] * 1025}, "input", "more than 1024"),
        ("summarize", {"input": "word " * 500, "model": "bart"}, "input", "96"),
        ("summarize", {"input": "a", "source": "en"}, "source", "there is no field"),
        ("summarize", {"input": "a", "stream": "yes"}, "stream", "true or false"),
        ("summarize", {"input": "a", "chunk": 1}, "chunk", "chunk must be true or false, not 1"),
        ("summarize", {"input": "a", "n": 2, "temperature": 0}, "n", "n=2 has no meaning"),
        ("summarize", {"input": "a", "decoder_prompt": 5}, "decoder_prompt", "must be"),
        ("summarize", {"input": "a", "logprobs": 3}, "logprobs", "logprobs has no effect here"),
        ("summarize", {"input": "a", "temperature": 0, "top_p": 2}, "top_p", "above 0 and at most 1"),
        ("summarize", {"input": "a", "num_beans": 2}, "num_beans", "Did you mean 'num_beams'"),
        ("summarize", {"input": "a", "model": 5}, "model", "must be text"),
        ("summarize", {"input": "a", "model": "tiny.en"}, "model", "speech model"),
        ("translate", {"input": "a", "model": "t5", "source": "xx", "target": "de"}, "source", "xx"),
        ("translate", {"input": "a", "model": "t5", "source": 5}, "source", "a language"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_with_its_field(
    task: str, body: dict[str, Any], param: str | None, message: str, server: ServeProcess
) -> None:
    answer = post(server, task, **body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert message in error["message"]
