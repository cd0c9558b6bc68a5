"""Chunks of long documents: the chunks of a plain search, from few calls of the tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_checkpoints import TEXTS, bart_tokenizer, m2m100_tokenizer, nllb_tokenizer, t5_tokenizer

from transept.authoring import TextTask
from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.text.encoding import DocumentEncoder
from transept.text.splitting import pieces as pieces_of


def list_of_pieces(document, fits):
    return list(pieces_of(document, fits))


TASK = TextTask(prefix="Tell: ")
SENTENCES = [f"{sentence.strip()}. " for text in TEXTS for sentence in text.split(". ")]
PAGE = "".join(random.Random(0).choices([*SENTENCES, "No. ", "A line of a table | 3 | 4\n\n"], k=900))
WORDS = [
    *" ".join(TEXTS).split(),
    "End.",
    "Why?",
    "long" * 9,
    "好。文字",
    "é🦉",
    "\n\n",
    "   \n  \n",
    "\t \t",
    "...",
    "| a | b |",
]


class Counted:
    """A real tokenizer that counts its calls and the characters that it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.num_calls = self.num_characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: str, **options: Any) -> Any:
        self.num_calls += 1
        self.num_characters += len(text)
        return self._tokenizer(text, **options)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, tiny_en_dir: Path) -> dict[str, Any]:
    """The last two, without transformers and without the places of tokens."""
    return {
        "t5": t5_tokenizer(),
        "bart": bart_tokenizer(),
        "nllb": nllb_tokenizer(),
        "plain": load_tokenizer(tiny_en_dir),
        "slow": m2m100_tokenizer(tmp_path_factory.mktemp("m2m100")),
    }


NAMES = ["t5", "bart", "nllb", "plain", "slow"]


def searched(encode: Callable[[str], list[int]], document: str, limit: int) -> list[list[int]]:
    """The chunks by doubling and halving alone."""
    pieces = list_of_pieces(document, lambda piece: len(encode(piece.strip())) <= limit)
    return [encode(piece.strip()) for piece in pieces if piece.strip()]


def compare(tokenizer: Any, document: str, limit: int) -> tuple[int, Counted]:
    """Assert that a search finds the same chunks. Returns their number, and the tokenizer with its counts."""
    counted = Counted(tokenizer)
    task = TextTask(TASK.name, TASK.prefix, special_tokens=([0], [2]))
    encoder = DocumentEncoder(counted, task, limit, chunk=True)
    counted.num_calls = counted.num_characters = 0
    chunks = encoder(document).prompts
    found = Counted(None)
    found.num_calls, found.num_characters = counted.num_calls, counted.num_characters
    if len(chunks) > 1:
        assert chunks == searched(encoder._encode, document, limit)
    return len(chunks), found


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(document=st.lists(st.sampled_from(WORDS), min_size=1, max_size=300).map(" ".join), limit=st.integers(20, 90))
@example(document="a. " * 300, limit=20)
@example(document="x" + " " * 500 + "y. " * 100, limit=30)
def test_chunks_are_those_of_a_search(tokenizers: dict[str, Any], name: str, document: str, limit: int) -> None:
    compare(tokenizers[name], f"{document} end", limit)


@pytest.mark.parametrize(("name", "most"), [("t5", 1.6), ("bart", 1.6), ("nllb", 1.6), ("plain", 1.6), ("slow", 3.0)])
def test_a_page_takes_about_one_call_a_chunk(tokenizers: dict[str, Any], name: str, most: float) -> None:
    num_chunks, counted = compare(tokenizers[name], PAGE, 300)
    assert num_chunks > 30
    assert counted.num_calls < most * num_chunks
    assert counted.num_characters < (most + 2) * len(PAGE)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "document",
    [
        "!" * 3000 + "x",
        "\n x" * 1500,
        "a\n" * 2000,
        "a" * 4000,
        "今天下雨。我们走吧。文字很多没有空格" * 150,
        "word " * 500 + "w" * 2000 + ". 今天下雨。" * 100,
        "é🦉ß " * 400 + ("aaaa\n\n" + " " * 400) * 40,
    ],
    ids=lambda document: repr(f"{document[:3]}..{document[-3:]}"),
)
@pytest.mark.parametrize("name", NAMES)
def test_no_document_is_read_often(tokenizers: dict[str, Any], name: str, document: str) -> None:
    """However its tokens lie. A word of thousands of characters is cut by doubling and halving."""
    _, counted = compare(tokenizers[name], document, 60)
    assert counted.num_characters < 25 * len(document)
