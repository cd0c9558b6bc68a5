"""TextGenerator.encode against the output of transformers' encoders for the same texts."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_checkpoints import POSITIONS, TEXTS
from test_scores import ROWS, Row
from torch import Tensor

import transept
from transept import SamplingParams, TextEmbedding
from transept.aio import AsyncTextGenerator
from transept.core.engine import Engine
from transept.core.jobs.job import Job, Submit
from transept.core.request.pooling import Pooling
from transept.core.request.prompts import Request
from transept.errors import ParameterError, PromptError, UnsupportedTaskError

POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {  # of transformers' hidden states, [tokens, hidden]
    "mean": lambda hidden: hidden.mean(0),
    "cls": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
    "max": lambda hidden: hidden.max(0).values,
    "none": lambda hidden: hidden,
}


def hidden_states(case: Any, text: str, source: str | None = None) -> tuple[list[int], Tensor]:
    """The tokens and the encoder's output, by transformers."""
    if source is not None:
        case.tokenizer.src_lang = source
    inputs = case.tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        return inputs.input_ids[0].tolist(), case.reference.get_encoder()(**inputs).last_hidden_state[0]


def assert_close(ours: Any, theirs: Tensor) -> None:
    assert ours.dtype == np.float32
    torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_embeddings_are_those_of_transformers(cases: Callable[[str], Any], row: Row) -> None:
    case = cases(row.family)
    expected = [hidden_states(case, row.prefix + text, row.source) for text in TEXTS[:3]]
    for pooling, pool in POOLINGS.items():
        for normalize in (False, True):
            found = case.generator.encode(TEXTS[:3], pooling=pooling, normalize=normalize, **row.options)
            for each, (token_ids, hidden) in zip(found, expected, strict=True):
                vectors = pool(hidden)
                assert_close(each.embedding, torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors)
                assert each.token_ids == token_ids


def test_an_embedding_does_not_depend_on_the_batch(cases: Callable[[str], Any]) -> None:
    generator = cases("t5").generator
    engine = generator.engine
    before = engine.core.statistics.num_encoder_tokens, engine.block_manager.num_free_device_blocks
    alone = [generator.encode(text, pooling="none") for text in TEXTS]
    texts = generator.generate(TEXTS[:2], max_tokens=6)

    def both(text: str) -> Job:  # generation and embedding of one text, in one batch
        encoded, generated = yield Submit(
            [Request(text, pooling=Pooling("none")), Request(text, SamplingParams(max_tokens=6))]
        )
        return encoded, generated

    runs = dict(engine.runner.run(map(both, TEXTS), max_jobs=len(TEXTS)))
    for index, each in enumerate(alone):
        encoded, generated = runs[index]
        assert np.array_equal(encoded.embedding, each.embedding)
        assert encoded.outputs == []
        assert generated.embedding is None
        if index < len(texts):
            assert generated.outputs[0].text == texts[index].text
    assert engine.block_manager.num_free_device_blocks == before[1]  # unused tables of texts count as free
    assert engine.core.statistics.num_encoder_tokens > before[0]
    engine.block_manager.check_integrity()


def test_every_call_gives_the_same(cases: Callable[[str], Any]) -> None:
    case = cases("t5")
    expected = case.generator.encode(TEXTS[0])
    loaded = transept.embed(TEXTS[0], case.directory, kv_cache_bytes=1 << 24)
    assert np.array_equal(loaded.embedding, expected.embedding)

    async def encoded() -> TextEmbedding:
        generator = AsyncTextGenerator(case.generator)
        try:
            return await generator.encode(TEXTS[0])
        finally:
            generator.engine.stop()

    assert np.array_equal(asyncio.run(encoded()).embedding, expected.embedding)


def test_long_documents_are_truncated(cases: Callable[[str], Any]) -> None:
    generator = cases("t5").generator
    whole = generator.encode(TEXTS[0])
    assert not whole.truncated
    with pytest.raises(PromptError, match=r"this model reads 9\. Cut its end off with truncate=True$"):
        generator.encode(TEXTS[0], max_source_tokens=9)
    cut = generator.encode(TEXTS[0], max_source_tokens=9, truncate=True)
    assert cut.truncated
    assert cut.token_ids == [*whole.token_ids[:8], whole.token_ids[-1]]


def test_errors(cases: Callable[[str], Any]) -> None:
    generator = cases("bart").generator
    good, empty, number, long = generator.encode(["a", " ", 1, "word " * POSITIONS])
    assert good.error is None
    assert str(empty.error) == "the document is empty"
    assert str(number.error) == "a document is a string, not int"
    assert "this model reads 96" in str(long.error)
    assert empty.to_dict() == {
        "embedding": [],
        "token_ids": [],
        "truncated": False,
        "error": "PromptError: the document is empty",
    }
    with pytest.raises(PromptError, match="the document is empty"):
        generator.encode("")
    with pytest.raises(PromptError, match="several are a list of them, not dict"):
        generator.encode({"a": 1})
    with pytest.raises(ParameterError, match="an embedding is of a whole document"):
        generator.encode("a", chunk=True)
    with pytest.raises(ParameterError, match="pooling must be"):
        generator.encode("a", pooling="median")
    with pytest.raises(UnsupportedTaskError):
        generator.encode("a", task="translate")


@pytest.mark.parametrize(
    ("request_of", "error", "message"),
    [
        (Request("a", SamplingParams(), pooling=Pooling()), ParameterError, "only encodes, and generates no token"),
        (Request("a", pooling="mean"), ParameterError, r"pooling must be a Pooling, .* not str"),  # type: ignore[arg-type]
        (
            Request({"encoder_prompt": "a", "decoder_prompt": "b"}, pooling=Pooling()),
            PromptError,
            "has a decoder's side, and the request only encodes",
        ),
    ],
)
def test_bad_requests(cases: Callable[[str], Any], request_of: Request, error: type[Exception], message: str) -> None:
    engine: Engine = cases("t5").generator.engine
    with pytest.raises(error, match=message):
        engine.inputs(request_of)
