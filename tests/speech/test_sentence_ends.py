"""Ends of sentences in a text, and abbreviations, which do not end one."""

from itertools import pairwise

import pytest

from transept.speech.forced_alignment import known_words
from transept.speech.sentences import ends_sentence, sentence_ends


@pytest.mark.parametrize(
    "sentences",
    [
        ["And Mr. Dashwood left. ", "Mrs. J. R. Smith stayed."],
        ['"Why?" ', "He asked. ", "It cost 3.50 euros!"],
        ["He came… and went. ", "Press 1. ", "Then wait."],
        ["Vino el Sr. García. ", "¿Y la Dra. López?"],
        ["Das ist z.B. ein Satz. ", "Noch einer."],
        ["Это я. ", "Кто там?"],
        ["本当ですか！？", "はい。", "「そうです。」"],  # noqa: RUF001
        ["no mark at all"],
        [""],
    ],
)
def test_sentences_of_a_text(sentences: list[str]) -> None:
    text = "".join(sentences)
    borders = [0, *sentence_ends(text), len(text)]
    assert [text[one:other] for one, other in pairwise(borders)] == sentences


@pytest.mark.parametrize("text", ["Left.", 'he said."', "वह गया।", "はい。」", " wait … ", "at 5 p.m. He left."])
def test_a_text_that_ends_with_a_sentence(text: str) -> None:
    assert ends_sentence(text)


@pytest.mark.parametrize("text", ["", "left,", "And Mr.", " J.", "e.g.", "(Dr.", "U.S. "])
def test_a_text_that_does_not(text: str) -> None:
    assert not ends_sentence(text)


def test_a_line_of_known_text_is_not_cut_after_a_title() -> None:
    words = known_words("And Mr. Dashwood left. She stayed.", "en")
    assert [word.unit for word in words] == [0, 0, 0, 0, 1, 1]
