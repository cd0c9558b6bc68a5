"""Where a word ends among the timed pieces of a text."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept.speech.segments import Word
from transept.speech.word_breaks import LINE_BREAKS, whole_words

LONGEST = 2.0  # seconds of processor time


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([" a", " cold", "-hearted", " man."], [" a", " cold-hearted", " man."]),
        (["J", "'ai", " aujourd", "'hui", " l", "’eau"], ["J'ai", " aujourd'hui", " l’eau"]),  # noqa: RUF001
        ([" example.", "com", " 3.", "5", " 9:", "30"], [" example.com", " 3.5", " 9:30"]),
        ([" $", "5", " AT", "&T", " and/", "or"], [" $5", " AT&T", " and/or"]),
        (["한국", "어", " 말"], ["한국어", " 말"]),
        (["ご", "視聴", "ありがとう", "。"], ["ご", "視聴", "ありがとう。"]),
        (["キャ", "ット", "、", "「", "猫", "」", "人々", "々"], ["キャット、", "「猫」", "人々々"]),
        (["用", "Open", "AI", "的", "模型"], ["用", "OpenAI", "的", "模型"]),
        (["ก", "า", "เ", "ป็", "น"], ["ก", "า", "เป็", "น"]),
        (["", " ", "a", "", " b", " ", ""], [" a", " b"]),
        (["a ", "b ", "c"], ["a", " b", " c"]),
        (["a\n", "\nb"], ["a", " b"]),
        ([" ", ""], []),
        ([], []),
    ],
)
def test_pieces_without_a_break_are_one_word(pieces: list[str], expected: list[str]) -> None:
    words = [Word(float(index), index + 1.0, piece, 0.5) for index, piece in enumerate(pieces)]
    whole = whole_words(words)
    assert [word.word for word in whole] == expected
    assert all(word.end > word.start for word in whole)


def test_a_whole_word_lasts_from_its_first_part_to_its_last() -> None:
    words = [Word(1.0, 1.5, " cold", 0.5), Word(1.7, 2.0, "-hearted", 0.7), Word(2.0, 2.0, "", 0.7)]
    assert whole_words(words) == [Word(1.0, 2.0, " cold-hearted", 0.5)]


@given(st.text(" \t\r\nab"))
def test_blanks_around_a_line_break_belong_to_it(text: str) -> None:
    assert LINE_BREAKS.sub("|", text) == re.sub(r"[ \t\r\n]*[\r\n][ \t\r\n]*", "|", text)


@pytest.mark.parametrize(
    "pieces", [["a" + " " * (1 << 18) + "a"], [" a", *["a"] * (1 << 18)]], ids=["blanks", "pieces"]
)
def test_a_long_word_takes_no_longer_than_it_is(pieces: list[str]) -> None:
    words = [Word(0.0, 1.0, piece, 0.5) for piece in pieces]
    begin = time.process_time()
    assert len(whole_words(words)) == 1
    assert time.process_time() - begin < LONGEST
