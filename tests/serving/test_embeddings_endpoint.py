"""``/v1/embeddings`` by OpenAI's own client: the library's embeddings, in OpenAI's format."""

from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from serve_process import ServeProcess
from text.small_checkpoints import TEXTS

from transept import TextEmbedding, TextGenerator


@pytest.fixture(scope="module")
def expected(t5_dir: Path) -> list[TextEmbedding]:
    with TextGenerator(t5_dir, kv_cache_bytes=1 << 24) as generator:
        return generator.encode(TEXTS[:2], normalize=True)


@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
@pytest.mark.parametrize("as_tokens", [False, True], ids=["texts", "tokens"])
def test_embeddings_are_the_librarys(
    openai_client: openai.OpenAI, expected: list[TextEmbedding], encoding_format: Any, as_tokens: bool
) -> None:
    inputs: Any = [each.token_ids for each in expected] if as_tokens else TEXTS[:2]
    given = {} if encoding_format is None else {"encoding_format": encoding_format}
    answer = openai_client.embeddings.create(model="t5", input=inputs, extra_body={"normalize": True}, **given)
    num_tokens = sum(len(each.token_ids) for each in expected)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (num_tokens, num_tokens)
    assert [each.index for each in answer.data] == [0, 1]
    for ours, theirs in zip(answer.data, expected, strict=True):
        if encoding_format == "base64":  # the client decodes only what it asked for itself
            assert isinstance(ours.embedding, str)
            continue
        np.testing.assert_allclose(ours.embedding, theirs.embedding, atol=1e-6)
    alone = openai_client.embeddings.create(model="t5", input=inputs[0], extra_body={"normalize": True})
    np.testing.assert_allclose(alone.data[0].embedding, expected[0].embedding, atol=1e-6)


def test_a_vector_for_each_token(server: ServeProcess, expected: list[TextEmbedding]) -> None:
    body = {"input": TEXTS[0], "model": "t5", "pooling": "none", "normalize": True, "dimensions": 0}
    size = len(expected[0].embedding)
    answer = server.client.post("/v1/embeddings", json={**body, "dimensions": size}).json()
    (data,) = answer["data"]
    assert np.shape(data["embedding"]) == (len(expected[0].token_ids), size)


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"input": ""}, "input", "the document is empty"),
        ({"input": []}, "input", "input must be a text, a list of texts"),
        ({"input": ["a", 1.5]}, "input[1]", "must be a text or a list of token ids"),
        ({"input": ["a", " "]}, "input[1]", r"input\[1\]: the document is empty"),
        ({"input": [[1, 99999]]}, "input", "token id 99999 is outside of the vocabulary"),
        ({"input": "word " * 500, "model": "bart"}, "input", "this model reads 96.*truncate=true"),
        ({"input": ["a"] * 2049}, "input", "more than 2048"),
        ({"dimensions": 3}, "dimensions", "leave dimensions out"),
        ({"encoding_format": "int8"}, "encoding_format", "int8"),
        ({"extra_body": {"pooling": "none"}, "encoding_format": "base64"}, "encoding_format", "pooling none"),
        ({"extra_body": {"pooling": "median"}}, "pooling", "median"),
        ({"extra_body": {"chunk": True}}, "chunk", "chunk: an embedding is of a whole document"),
        ({"extra_body": {"temperature": 1}}, "temperature", "there is no field 'temperature'"),
    ],
)
def test_bad_requests_are_told(openai_client: openai.OpenAI, options: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as raised:
        openai_client.embeddings.create(**{"model": "t5", "input": "a", "encoding_format": "float", **options})
    assert raised.value.param == param


def test_only_text_models_embed(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="speech"):
        openai_client.embeddings.create(model="tiny.en", input="a")


def test_embeddings_are_counted(openai_client: openai.OpenAI, server: ServeProcess) -> None:
    before = server.metrics()["transept_embeddings_total", "t5"]
    openai_client.embeddings.create(model="t5", input=TEXTS[:3])
    assert server.metrics()["transept_embeddings_total", "t5"] == before + 3
