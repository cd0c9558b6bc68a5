"""Splitting: nothing lost or doubled, every piece fits, and cuts come where a reader would make them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_checkpoints import TEXTS, bart_tokenizer

from transept.errors import PromptError
from transept.text.splitting import pieces as pieces_of


def list_of_pieces(document, fits):
    return list(pieces_of(document, fits))


WORDS = st.sampled_from(
    ["a", "Dr.", "word", "Why?", "end.", '"So."', "long" * 9, "好。", "文字", "é", "\n\n", "\t", "…"]
)
DOCUMENTS = st.one_of(st.text(), st.lists(WORDS, max_size=80).map(" ".join), st.lists(WORDS, max_size=80).map("".join))
TOKENIZER = bart_tokenizer()
LONGEST_CHARACTER = 4  # tokens of a character that the byte-level vocabulary knows by its bytes only


@given(document=DOCUMENTS, limit=st.integers(LONGEST_CHARACTER, 40))
def test_pieces_are_the_document_and_each_fits(document: str, limit: int) -> None:
    def fits(piece: str) -> bool:
        return len(TOKENIZER(piece.strip(), add_special_tokens=False).input_ids) <= limit

    pieces = list_of_pieces(document, fits)
    assert "".join(pieces) == document
    assert all(piece and fits(piece) for piece in pieces)


@given(
    sentences=st.lists(st.text("abc ", min_size=1).map(lambda text: f"A{text}x. "), min_size=1), limit=st.integers(60)
)
def test_no_sentence_is_cut_that_fits_and_pieces_are_as_long_as_they_can_be(sentences: list[str], limit: int) -> None:
    limit = max(limit, *map(len, sentences), 0)
    pieces = list_of_pieces("".join(sentences), lambda piece: len(piece.strip()) <= limit)
    rest = list(sentences)
    for piece in pieces:
        taken = ""
        while rest and len((taken + rest[0]).strip()) <= limit:
            taken += rest.pop(0)
        assert piece == taken
    assert not rest


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ('He said "No." Then he left.', ['He said "No." ', "Then he left."]),
        ("It is 3.14 e.g. here, and www.a.org too. End.", ["It is 3.14 e.g. here, and www.a.org too. ", "End."]),
        ("A title\n\nthe text. More.\n", ["A title\n\n", "the text. ", "More.\n"]),
        ("今天下雨。我们走吧。好", ["今天下雨。", "我们走吧。", "好"]),
        ("هل هذا صحيح؟ نعم. यह सच है। हाँ", ["هل هذا صحيح؟ ", "نعم. ", "यह सच है। ", "हाँ"]),
        ("Wait... what? … Yes", ["Wait... what? ", "… ", "Yes"]),
    ],
)
def test_sentences(document: str, sentences: list[str]) -> None:
    assert list_of_pieces(document, lambda piece: piece in sentences) == sentences


def test_sentences_share_a_piece_as_long_as_they_fit() -> None:
    document = " ".join(TEXTS)
    pieces = list_of_pieces(document, lambda piece: len(piece.strip()) <= 200)
    assert len(pieces) < 8
    assert all(piece.rstrip()[-1] in ".?!" for piece in pieces)


def test_a_long_sentence_is_cut_between_words_and_a_long_word_between_characters() -> None:
    assert list_of_pieces("aa bb cc. dd", lambda piece: len(piece.strip()) <= 5) == ["aa bb ", "cc. ", "dd"]
    assert list_of_pieces("abcdefgh. ij", lambda piece: len(piece.strip()) <= 4) == ["abcd", "efgh", ". ij"]


def test_a_character_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(PromptError, match="allow for more encoder tokens"):
        list_of_pieces("abc", lambda piece: False)


@pytest.mark.parametrize(
    "document",
    [
        "!" * 200_000 + "x",
        "!)" * 100_000 + "x",
        "!" + ")" * 200_000 + "x",
        "。" * 200_000 + "x",
        "\n" + " " * 200_000 + "x",
        "\n x" * 66_000,
        "x" + " " * 200_000,
        " " * 200_000 + "x",
        "a " * 100_000,
        "a\n" * 100_000,
        "a. " * 66_000,
        "a" * 200_000,
    ],
    ids=lambda document: repr(f"{document[:3]}..{document[-3:]}"),
)
@pytest.mark.parametrize("stripped", [True, False])
def test_no_document_takes_long(document: str, stripped: bool) -> None:
    begin = time.thread_time()
    pieces = list_of_pieces(document, lambda piece: len(piece.strip() if stripped else piece) <= 100)
    assert time.thread_time() - begin < 5.0
    assert "".join(pieces) == document


def test_a_sentence_that_does_not_fit_is_not_asked_for_again_and_again() -> None:
    asked = 0

    def fits(piece: str) -> bool:
        nonlocal asked
        asked += len(piece)
        return len(piece) <= 100

    document = "word " * 20_000 + "w" * 100_000
    assert "".join(list_of_pieces(document, fits)) == document
    assert asked < 20 * len(document)
