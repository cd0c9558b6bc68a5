"""Words and turns: whose a word is, and how a segment is cut where the speaker changes."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept.registry.diarizers import Turn
from transept.speech.segments import Segment, Word
from transept.speech.timing.turns import Turns

AB = Turns([Turn(0.0, 2.0, "A"), Turn(1.5, 4.0, "B"), Turn(6.0, 7.0, "A")])


@pytest.mark.parametrize(
    ("start", "end", "speaker"),
    [
        (0.0, 1.0, "A"),
        (1.0, 2.0, "A"),  # a second against a half
        (1.8, 3.0, "B"),
        (1.5, 2.0, "A"),  # both speak equally long: the one whose turn began first
        (4.2, 4.8, "B"),  # no turn: the nearest
        (5.3, 5.9, "A"),
        (9.0, 9.5, "A"),
        (3.0, 3.0, "B"),  # a word of no length
        (1.0, 6.9, "B"),  # 2.5 s against 1.9 in two turns
        (0.0, 7.0, "A"),  # 3 s in two turns against 2.5
    ],
)
def test_the_speaker_is_who_speaks_longest_or_is_nearest(start: float, end: float, speaker: str) -> None:
    assert AB.speaker(start, end) == speaker


def test_a_voice_that_joins_does_not_take_over() -> None:
    """Words within both turns stay with the turn that began first, and not with the speaker who spoke first."""
    turns = Turns([Turn(0.0, 1.0, "A"), Turn(2.0, 5.0, "B"), Turn(3.0, 7.0, "A")])
    assert [turns.speaker(start, start + 0.5) for start in (2.5, 3.0, 4.5, 5.0)] == ["B", "B", "B", "A"]
    assert turns.speaker(4.8, 5.3) == "A"  # most of it


def test_without_turns_nobody_speaks() -> None:
    assert Turns([]).speaker(0.0, 1.0) is None


def characters(tokens: list[int]) -> str:
    """Tokens are bytes of UTF-8 here, as byte-level tokenizers have them; those from 256 on are timestamps."""
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


def segment(words: list[Word] | None, text: str) -> Segment:
    tokens = [300, *text.encode(), 301]
    return Segment(7, 0, 1.0, 9.0, text, tokens, 0.0, -0.5, 1.5, 0.1, words, [float(each) for each in tokens])


def timed(*texts: str) -> list[Word]:
    """Words of a second each."""
    return [Word(float(index), index + 1.0, text, 0.9) for index, text in enumerate(texts)]


def test_a_segment_is_cut_between_words_of_different_speakers() -> None:
    words = timed(" Guten", " Tag,", " Ünal.", " Grüß", " Gott!")
    turns = Turns([Turn(0.0, 2.9, "A"), Turn(3.1, 5.0, "B")])
    first, second = turns.cut(segment(words, " Guten Tag, Ünal. Grüß Gott!"), characters)
    assert (first.speaker, first.text, first.start, first.end) == ("A", " Guten Tag, Ünal.", 0.0, 3.0)
    assert (second.speaker, second.text, second.start, second.end) == ("B", " Grüß Gott!", 3.0, 5.0)
    assert characters(first.tokens) == first.text
    assert characters(second.tokens) == second.text
    assert (first.tokens[0], second.tokens[-1]) == (300, 301)
    for part in (first, second):
        assert part.token_logprobs == [float(each) for each in part.tokens]
        assert (part.avg_logprob, part.temperature) == (-0.5, 0.0)


def test_a_segment_of_one_speaker_stays_whole_and_so_does_one_without_times() -> None:
    said = segment(timed(" a", " b"), " a b")
    assert AB.cut(said, characters) == [dataclasses.replace(said, speaker="A")]
    untimed = segment(None, " a b")
    assert AB.cut(untimed, characters) == [dataclasses.replace(untimed, speaker="B")]  # from 1 s to 9 s


def test_a_word_of_several_parts_has_one_speaker() -> None:
    words = timed(" a", " cold", "-hearted", " man", "字", "幕")
    turns = Turns([Turn(0.0, 1.2, "A"), Turn(1.2, 3.0, "B"), Turn(3.0, 5.0, "A"), Turn(5.0, 6.0, "B")])
    parts = turns.cut(segment(words, " a cold-hearted man字幕"), characters)
    assert [(part.speaker, part.text) for part in parts] == [
        ("A", " a"),
        ("B", " cold-hearted"),
        ("A", " man字"),
        ("B", "幕"),
    ]


@given(
    st.lists(st.tuples(st.sampled_from([" a", " né", "字", " 👩🏽‍🚀", "'s"]), st.booleans()), min_size=1, max_size=8)
)
def test_no_token_and_no_word_is_lost(said: list[tuple[str, bool]]) -> None:
    words = timed(*(text for text, _ in said))
    turns = Turns([Turn(word.start, word.end, "AB"[who]) for word, (_, who) in zip(words, said, strict=True)])
    whole = segment(words, "".join(word.word for word in words))
    parts = turns.cut(whole, characters)
    assert [word for part in parts for word in part.words or ()] == words
    assert [token for part in parts for token in part.tokens] == whole.tokens
    assert [characters(part.tokens) for part in parts] == [part.text for part in parts]
    assert all(a.speaker != b.speaker for a, b in pairwise(parts))
