"""Completions over HTTP with OpenAI's own client: what the engine gives for the same prompt and parameters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from serve_process import PATIENCE, ServeProcess
from text.small_checkpoints import TEXTS

from transept import Engine, SamplingParams, TextGenerator
from transept.serving.http.completion_jobs import Piece
from transept.serving.http.token_logprobs import logprobs_of

PROMPTS = TEXTS[:3]
PERSON = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def t5(t5_dir: Path) -> Iterator[Engine]:
    engine = Engine(t5_dir, kv_cache_bytes=1 << 24)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def bart(bart_dir: Path) -> Iterator[Engine]:
    engine = Engine(bart_dir, kv_cache_bytes=1 << 24)
    yield engine
    engine.close()


def streamed(chunks: Any) -> tuple[list[str], list[str | None], Any]:
    """Of each choice its text and its finish_reason; and the usage."""
    texts: dict[int, str] = {}
    reasons: dict[int, str | None] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.usage
        for choice in chunk.choices:
            assert reasons.get(choice.index) is None  # nothing comes after the end
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            reasons[choice.index] = choice.finish_reason
    return [texts[index] for index in sorted(texts)], [reasons[index] for index in sorted(reasons)], usage


def test_a_completion_is_what_the_engine_gives(openai_client: openai.OpenAI, t5: Engine) -> None:
    (expected,) = t5.generate(PROMPTS[0], SamplingParams(max_tokens=12))
    answer = openai_client.completions.create(model="t5", prompt=PROMPTS[0], max_tokens=12)
    assert (answer.object, answer.model) == ("text_completion", "t5")
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == (expected.outputs[0].text, "length", 0)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(expected.encoder_prompt_token_ids)
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"top_p": 0.9}, {"top_p": 0.9, "temperature": 1.0}),
        ({"extra_body": {"min_p": 0.1}}, {"min_p": 0.1, "temperature": 1.0}),
        ({"top_p": 0.9, "n": 2}, {"top_p": 0.9, "n": 2, "temperature": 1.0}),
        ({"temperature": 0, "top_p": 0.9}, {"temperature": 0}),
        ({"top_p": 1}, {}),
    ],
    ids=str,
)
def test_filters_of_samples_are_openais(
    sent: dict[str, Any], meant: dict[str, Any], openai_client: openai.OpenAI, t5: Engine
) -> None:
    (expected,) = t5.generate(PROMPTS[0], SamplingParams(max_tokens=12, seed=5, **meant))
    answer = openai_client.completions.create(model="t5", prompt=PROMPTS[0], max_tokens=12, seed=5, **sent)
    assert [choice.text for choice in answer.choices] == [each.text for each in expected.outputs]


def test_several_prompts_are_answered_in_their_order(openai_client: openai.OpenAI, t5: Engine) -> None:
    expected = [output.outputs[0].text for output in t5.generate(PROMPTS, SamplingParams(max_tokens=8))]
    answer = openai_client.completions.create(model="t5", prompt=PROMPTS, max_tokens=8)
    assert [choice.text for choice in answer.choices] == expected
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


@pytest.mark.parametrize("several", [False, True])
def test_prompts_may_be_token_ids(several: bool, openai_client: openai.OpenAI, t5: Engine) -> None:
    tokens = [5, 6, 7, 1]
    (expected,) = t5.generate({"prompt_tokens": tokens}, SamplingParams(max_tokens=8))
    answer = openai_client.completions.create(model="t5", prompt=[tokens] if several else tokens, max_tokens=8)
    assert [choice.text for choice in answer.choices] == [expected.outputs[0].text]


def test_the_decoder_may_have_a_prompt(openai_client: openai.OpenAI, t5: Engine) -> None:
    prompt = {"encoder_prompt": PROMPTS[0], "decoder_prompt": {"prompt_tokens": [0, 9, 11]}}
    (expected,) = t5.generate(prompt, SamplingParams(max_tokens=8))
    answer = openai_client.completions.create(
        model="t5", prompt=PROMPTS[0], max_tokens=8, extra_body={"decoder_prompt": [0, 9, 11]}
    )
    assert answer.choices[0].text == expected.outputs[0].text


def test_samples_are_those_of_their_seed(openai_client: openai.OpenAI, t5: Engine) -> None:
    params = SamplingParams(n=3, max_tokens=8, temperature=1.0, top_p=0.9, seed=7)
    (expected,) = t5.generate(PROMPTS[0], params)
    options: dict[str, Any] = {"model": "t5", "prompt": PROMPTS[0], "max_tokens": 8, "top_p": 0.9, "seed": 7}
    answer = openai_client.completions.create(**options, n=3)  # several are drawn at OpenAI's temperature, 1
    assert [choice.text for choice in answer.choices] == [each.text for each in expected.outputs]
    best = max(expected.outputs, key=lambda each: each.cumulative_logprob / len(each.token_ids))
    answer = openai_client.completions.create(**options, best_of=3)
    assert [choice.text for choice in answer.choices] == [best.text]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == sum(len(each.token_ids) for each in expected.outputs)


def test_beams_are_hypotheses_best_first(openai_client: openai.OpenAI, bart: Engine) -> None:
    rules = {"sequence_bias": [[[5], 2.0], [[9, 5], -1.0]], "renormalize_logits": True, "max_time": 1e6}
    params = SamplingParams(num_beams=4, num_return_sequences=3, length_penalty=2.0, max_tokens=10, **rules)
    (expected,) = bart.generate(PROMPTS[0], params)
    for count in ({"n": 3}, {"extra_body": {"num_return_sequences": 3}}):
        beams = {"num_beams": 4, "length_penalty": 2.0, **rules, **count.get("extra_body", {})}
        answer = openai_client.completions.create(
            model="bart", prompt=PROMPTS[0], max_tokens=10, **{**count, "extra_body": beams}
        )
        assert [choice.text for choice in answer.choices] == [each.text for each in expected.outputs]


def test_hypotheses_are_those_of_the_checkpoint_s_search(openai_client: openai.OpenAI, bart: Engine) -> None:
    asked = {"prompt": PROMPTS[0], "max_tokens": 10, "extra_body": {"num_return_sequences": 2}}
    (expected,) = bart.generate(PROMPTS[0], SamplingParams(num_return_sequences=2, max_tokens=10))
    answer = openai_client.completions.create(model="bart", **asked)
    assert [choice.text for choice in answer.choices] == [each.text for each in expected.outputs]
    with pytest.raises(openai.BadRequestError, match="num_return_sequences=2 needs a beam search"):
        openai_client.completions.create(model="t5", **asked)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("t5", {}),
        ("t5", {"stop": ["e", "zz"]}),
        ("t5", {"n": 2, "seed": 3}),
        ("t5", {"logprobs": 2, "n": 2, "seed": 4}),
        ("bart", {}),  # which searches with beams
        ("bart", {"n": 2, "extra_body": {"num_beams": 3}}),
    ],
    ids=str,
)
def test_a_stream_joins_to_the_whole(model: str, options: dict[str, Any], openai_client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": PROMPTS[:2], "max_tokens": 9, **options}
    whole = openai_client.completions.create(**asked)
    texts, reasons, usage = streamed(
        openai_client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"n": 2, "seed": 3}, {"extra_body": {"num_beams": 3}}], ids=str
)
@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_text_that_is_cut_by_a_forced_end_says_so(
    max_tokens: int, options: dict[str, Any], openai_client: openai.OpenAI
) -> None:
    asked: dict[str, Any] = {"model": "bart", "prompt": PROMPTS[0], "max_tokens": max_tokens, **options}
    whole = openai_client.completions.create(**asked)
    reasons = [choice.finish_reason for choice in whole.choices]
    assert set(reasons) == {"length"}
    assert streamed(openai_client.completions.create(**asked, stream=True))[1] == reasons


def test_without_include_usage_a_stream_has_none(openai_client: openai.OpenAI) -> None:
    chunks = openai_client.completions.create(model="t5", prompt="a", max_tokens=4, stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_logprobs_are_the_engines(openai_client: openai.OpenAI, t5: Engine) -> None:
    (expected,) = t5.generate(PROMPTS[0], SamplingParams(max_tokens=8, logprobs=3))
    answer = openai_client.completions.create(model="t5", prompt=PROMPTS[0], max_tokens=8, logprobs=3)
    told = answer.choices[0].logprobs
    output = expected.outputs[0]
    assert told is not None
    assert output.logprobs is not None
    drawn = [logprobs[token] for token, logprobs in zip(output.token_ids, output.logprobs, strict=True)]
    assert told.token_logprobs == pytest.approx(drawn, abs=1e-4)
    assert told.top_logprobs is not None
    for alternatives, logprobs in zip(told.top_logprobs, output.logprobs, strict=True):
        assert sorted(alternatives.values()) == pytest.approx(sorted(logprobs.values())[-3:], abs=1e-4)
    assert told.tokens is not None
    in_text = [token for token in told.tokens if token != "<pad>"]  # which a random model may choose, too
    assert "".join(in_text) == answer.choices[0].text
    assert told.text_offset is not None
    for offset, token in zip(told.text_offset, told.tokens, strict=True):
        assert token not in in_text or answer.choices[0].text[offset:].startswith(token)


def test_parts_of_characters_are_told_apart_in_logprobs(openai_client: openai.OpenAI, bart: Engine) -> None:
    names = bart.tokenizer.get_vocab()
    parts = {r"bytes:\xe2": names["â"], r"bytes:\x80": names["Ģ"], r"bytes:\x94": names["Ķ"]}
    asked: dict[str, Any] = {"model": "bart", "prompt": PROMPTS[0], "max_tokens": 4, "logprobs": 3}
    options = {"logit_bias": {str(token): 80 for token in parts.values()}}
    options |= {"num_beams": 1, "min_tokens": 4, "decoder_prompt": [2, 0]}
    told = openai_client.completions.create(**asked, extra_body=options).choices[0].logprobs
    assert told is not None
    assert set(told.tokens[:3]) <= set(parts)
    for token, value, top in zip(told.tokens[:3], told.token_logprobs, told.top_logprobs, strict=False):
        assert set(top) == set(parts)
        assert top[token] == value == max(top.values())


def test_tokens_of_one_text_are_told_apart_in_logprobs(t5: Engine) -> None:
    vocabulary = len(t5.tokenizer.get_vocab())
    logprobs = [{vocabulary + 1: -1.0, vocabulary: -2.0, 5: -3.0}]  # rows of a padded table have no text
    piece = Piece(0, 0, "", [vocabulary], None, logprobs, None, 0.0, 1)
    told, _ = logprobs_of(t5.tokenizer, piece, 3, 0)
    assert told["top_logprobs"][0][""] == -2.0
    assert told["top_logprobs"][0][f"token_id:{vocabulary + 1}"] == -1.0
    assert len(told["top_logprobs"][0]) == 3


def test_logprobs_of_a_stream_are_those_of_the_whole(openai_client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "t5", "prompt": PROMPTS[0], "max_tokens": 8, "logprobs": 2}
    whole = openai_client.completions.create(**asked).choices[0].logprobs
    pieces = [chunk.choices[0].logprobs for chunk in openai_client.completions.create(**asked, stream=True)]
    assert len(pieces) > 1
    for name in ("tokens", "text_offset"):
        assert [each for piece in pieces for each in getattr(piece, name)] == getattr(whole, name)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_what_cannot_come_are_numbers(stream: bool, server: ServeProcess) -> None:
    asked = {"model": "bart", "prompt": "hello", "max_tokens": 2, "logprobs": 2, "stream": stream}  # its end is forced
    answer = httpx.post(f"{server.url}/v1/completions", json=asked, timeout=PATIENCE)
    assert answer.status_code == 200
    assert "Infinity" not in answer.text
    assert "-9999.0" in answer.text


def test_zero_logprobs_are_those_of_the_tokens_alone(openai_client: openai.OpenAI) -> None:
    told = openai_client.completions.create(model="t5", prompt="a", max_tokens=3, logprobs=0).choices[0].logprobs
    assert told is not None
    assert len(told.token_logprobs or ()) == 3
    assert told.top_logprobs == [{}, {}, {}]


def test_an_echo_scores_the_decoder_prompt(openai_client: openai.OpenAI, t5: Engine) -> None:
    text = "the rain falls"
    score = TextGenerator.from_engine(t5).score(PROMPTS[0], text)
    asked: dict[str, Any] = {
        "model": "t5",
        "prompt": PROMPTS[0],
        "logprobs": 2,
        "echo": True,
        "extra_body": {"decoder_prompt": text},
    }
    answer = openai_client.completions.create(max_tokens=0, **asked)
    (choice,) = answer.choices
    assert choice.text == text
    assert choice.logprobs is not None
    first, *others = choice.logprobs.token_logprobs or ()
    assert first is None
    assert others == pytest.approx(score.logprobs[:-1], abs=1e-3)  # all but the end of the sequence
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0

    (longer,) = openai_client.completions.create(max_tokens=4, **asked).choices
    plain = {**asked, "echo": False, "max_tokens": 4}
    (after,) = openai_client.completions.create(**plain).choices
    assert longer.text == text + after.text
    assert longer.logprobs is not None
    assert after.logprobs is not None
    assert longer.logprobs.token_logprobs == [
        *(choice.logprobs.token_logprobs or ()),
        *(after.logprobs.token_logprobs or ()),
    ]


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"prompt": None}, "prompt", "prompt is missing"),
        ({"prompt": []}, "prompt", "a list of token ids"),
        ({"prompt": 1}, "prompt", "a list of token ids"),
        ({"prompt": ["a", 1]}, "prompt[1]", "a list of token ids"),
        ({"prompt": [1, 99999]}, "prompt", "outside of the vocabulary"),
        ({"prompt": ["a", [1, 99999]]}, "prompt[1]", r"prompt\[1\]"),
        ({"prompt": ["a", "b", "word " * 500], "model": "bart"}, "prompt[2]", r"prompt\[2\].*this model reads 96"),
        ({"prompt": "word " * 500, "model": "bart"}, "prompt", "this model reads 96"),
        ({"echo": True}, "echo", "send one, or leave echo out"),
        ({"echo": True, "stream": True, "extra_body": {"decoder_prompt": "a"}}, "echo", "cannot be streamed"),
        ({"suffix": "the end"}, "suffix", "cannot insert text"),
        ({"n": 0}, "n", "at least 1 and at most 128"),
        ({"n": 129}, "n", "at least 1 and at most 128"),
        ({"n": 2, "best_of": 1}, "best_of", "less than n=2"),
        ({"best_of": 2, "stream": True}, "best_of", "cannot be streamed"),
        ({"n": 128, "prompt": ["a", "b"]}, "prompt", "more than 128"),
        ({"logprobs": 21}, "logprobs", "at least 0 and at most 20"),
        ({"temperature": -1}, "temperature", "a number of at least 0"),
        ({"temperature": 0, "top_p": 2}, "top_p", "a number above 0 and at most 1"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"stop": [1, None]}, "stop", r"a non-empty string or a list of them, not \[1, null\]"),
        ({"seed": True}, "seed", "not true$"),
        ({"extra_body": {"top_k": {"a": None}}}, "top_k", r'not \{"a": null\}$'),
        ({"temperature": "warm"}, "temperature", 'not "warm"'),
        ({"extra_body": {"stream": "yes"}}, "stream", 'stream must be true or false, not "yes"'),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token id"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream_options needs stream=true"),
        ({"extra_body": {"num_beam": 2}}, "num_beam", "Did you mean 'num_beams'"),
        ({"extra_body": {"sequence_bias": {"5": 1.0}}}, "sequence_bias", "pairs .token ids, number"),
        ({"extra_body": {"penalty_alpha": 0.6}}, "penalty_alpha", "In transformers 5 it needs a custom generate"),
        ({"extra_body": {"logits_processors": []}}, "logits_processors", "there is no field"),
        ({"extra_body": {"decoder_prompt": {"a": 1}}}, "decoder_prompt", "a text or a list of token ids"),
        ({"model": "tiny.en"}, "model", "is a speech model"),
        ({"n": 2, "temperature": 0}, "n", "greedy"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_with_its_field(
    options: dict[str, Any], param: str, message: str, openai_client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as raised:
        openai_client.completions.create(**{"model": "t5", "prompt": "a", **options})
    assert raised.value.param == param
    assert raised.value.type == "invalid_request_error"


def test_an_unknown_model_is_told_with_those_that_there_are(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"Models of this server: tiny\.en, bart, t5") as raised:
        openai_client.completions.create(model="t6", prompt="a")
    assert (raised.value.param, raised.value.code) == ("model", "model_not_found")


@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}},
        {"response_format": {"type": "json_object"}, "guided": None},
        {"guided_json": PERSON},
        {"structured_outputs": {"json": PERSON}},
    ],
    ids=lambda form: next(iter(form)),
)
def test_completions_with_a_form(openai_client: openai.OpenAI, form: dict[str, Any]) -> None:
    pytest.importorskip("llguidance", reason="needs the extra guided")
    answer = openai_client.completions.create(
        model="bart", prompt=PROMPTS[0], n=3, temperature=1.0, seed=4, max_tokens=90, extra_body=form
    )
    complete = [json.loads(choice.text) for choice in answer.choices if choice.finish_reason == "stop"]
    assert all(isinstance(each, dict) for each in complete)
    if "json_object" not in str(form):
        assert len(complete) == 3
        assert all(isinstance(each["age"], int) for each in complete)


@pytest.mark.parametrize(
    ("form", "field", "message"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format", "must be an object with the type"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be an object with the type"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "response_format", "send one of them"),
        ({"guided_regex": "("}, "guided_regex", "is not valid"),
    ],
)
def test_invalid_forms_are_told_with_their_field(
    openai_client: openai.OpenAI, form: dict[str, Any], field: str, message: str
) -> None:
    pytest.importorskip("llguidance", reason="needs the extra guided")
    with pytest.raises(openai.BadRequestError, match=message) as raised:
        openai_client.completions.create(model="bart", prompt=PROMPTS[0], extra_body=form)
    assert raised.value.param == field
