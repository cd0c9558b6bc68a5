"""Edits of transcripts: new ones with other times, speakers, cuts and texts."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept import ParameterError, Segment, Transcript, Word
from transept.speech.retiming import with_text, words_of
from transept.speech.word_breaks import joined_text


def segment(start: float, end: float, text: str, speaker: str | None = None, *, timed: bool = True) -> Segment:
    texts = words_of(text)
    step = (end - start) / len(texts)
    words = [
        Word(round(start + i * step, 3), round(start + (i + 1) * step, 3), each, 0.5) for i, each in enumerate(texts)
    ]
    return Segment(0, 0, start, end, text, [7], 0.0, 0.0, 1.0, 0.0, words if timed else None, speaker=speaker)


def transcript(*segments: Segment) -> Transcript:
    return Transcript.from_dict({"segments": [each.to_dict() | {"id": index} for index, each in enumerate(segments)]})


TWO = transcript(segment(0.0, 2.0, " One two.", "A"), segment(3.0, 5.0, " Three four.", "B"))


def spoken(edited: Transcript) -> list[tuple[float, float, str]]:
    return [(each.start, each.end, each.text) for each in edited]


def timed(edited: Segment) -> list[tuple[str, float, float]]:
    return [(word.word, word.start, word.end) for word in edited.words or ()]


def test_shifts_move_all_times_and_drop_what_comes_before_zero() -> None:
    later = TWO.shifted(1.5)
    assert spoken(later) == [(1.5, 3.5, " One two."), (4.5, 6.5, " Three four.")]
    assert later.duration == 6.5
    assert timed(later.segments[0]) == [(" One", 1.5, 2.5), (" two.", 2.5, 3.5)]
    assert later.shifted(-1.5) == TWO
    earlier = TWO.shifted(-4.0)
    assert spoken(earlier) == [(0.0, 1.0, " Three four.")]
    assert (earlier.text, earlier.segments[0].id) == ("Three four.", 0)


def test_words_that_are_cut_at_zero_keep_a_duration() -> None:
    cut = transcript(segment(0.0, 4.0, " One two three four.")).shifted(-2.5)
    assert cut.text == "One two three four."
    assert all(word.end > word.start for word in cut.segments[0].words or ())


@pytest.mark.parametrize(
    ("call", "arguments", "named"),
    [
        *(("shifted", (wrong,), {}) for wrong in ("a", None, math.nan, math.inf, 1e308, True)),
        *(("between", wrong, {}) for wrong in (("a", 2), (0, math.nan), (5, 3))),
        *(("chapters", (wrong,), {}) for wrong in (0, math.nan, "a", -1)),
        *(("renamed", (wrong,), {}) for wrong in (None, {"A": ""}, {"A": 5}, {"A": None}, [("A", "B")])),
        *(("replaced", wrong, {}) for wrong in ((0, 5), ("0", "a"), (True, "a"), (0, None))),
        *(("split", (0,), wrong) for wrong in ({"word": "1"}, {"word": 1.0}, {"time": "1"}, {"time": math.nan})),
        *(("joined", wrong, {}) for wrong in ((0, "1"), (0.0, 1))),
        *(("merged", wrong, {}) for wrong in (({},), (TWO, "a"), (TWO, math.inf))),
        *(("read", (wrong,), {}) for wrong in (b"talk.srt", 5, None)),
    ],
)
def test_wrong_values_are_parameter_errors(call: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        getattr(TWO, call)(*arguments, **named)


def test_speakers_are_renamed() -> None:
    assert [each.speaker for each in TWO.renamed({"A": "Anna"})] == ["Anna", "B"]
    assert [each.speaker for each in TWO.renamed(["Anna"])] == ["Anna", "B"]
    assert [each.speaker for each in TWO.renamed(("Anna", "Ben"))] == ["Anna", "Ben"]
    with pytest.raises(ParameterError, match=r"no speaker 'Anna'\. Known: A, B"):
        TWO.renamed({"Anna": "A"})
    with pytest.raises(ParameterError, match="it names no speakers"):
        transcript(segment(0, 1, " One.")).renamed({"A": "Anna"})


def test_transcripts_are_merged() -> None:
    both = TWO.merged(TWO, at=1.0)
    assert [each.start for each in both] == [0.0, 1.0, 3.0, 4.0]
    assert [each.id for each in both] == [0, 1, 2, 3]
    assert both.text == "One two. One two. Three four. Three four."
    assert [each.start for each in TWO.merged(TWO)] == [0.0, 3.0, 5.0, 8.0]
    assert TWO.merged(TWO).duration == 10.0


def test_segments_are_split_and_joined() -> None:
    for cut in (TWO.split(0, word=1), TWO.split(0, time=1.2)):
        assert spoken(cut)[:2] == [(0.0, 1.0, " One"), (1.0, 2.0, " two.")]
        assert [each.id for each in cut] == [0, 1, 2]
        assert cut.text == TWO.text
        assert spoken(cut.joined(0, 1)) == spoken(TWO)
    untimed = transcript(segment(0.0, 2.0, " One two.", timed=False))
    assert spoken(untimed.split(0, time=0.9)) == [(0.0, 0.9, " One"), (0.9, 2.0, " two.")]
    assert untimed.split(0, word=1).segments[0].words is None
    for wrong in ({"word": 0}, {"word": 2}, {"time": 0.1}, {"time": 9.0}):
        with pytest.raises(ParameterError, match="must leave at least one on each side"):
            TWO.split(0, **wrong)
    with pytest.raises(ParameterError, match="index must be the index of a segment, from 0 to 1, not 2"):
        TWO.split(2, word=1)
    with pytest.raises(ParameterError, match="last is 0 and comes before first, 1; exchange them"):
        TWO.joined(1, 0)


def test_a_part_in_time_keeps_its_times() -> None:
    assert spoken(TWO.between(1.0, 4.0)) == [(1.0, 2.0, " two."), (3.0, 4.0, " Three")]
    assert TWO.between(0.0, 9.0) == TWO
    untimed = transcript(segment(0.0, 2.0, " One.", timed=False), segment(2.0, 9.0, " Two.", timed=False))
    assert spoken(untimed.between(0.0, 3.0)) == [(0.0, 2.0, " One.")]


def test_a_new_text_keeps_the_times_of_its_old_words() -> None:
    old = segment(0.0, 4.0, " He went too far.")
    edited = transcript(old).replaced(0, "He walked to my far.")
    assert timed(edited.segments[0]) == [
        *((" He", 0.0, 1.0), (" walked", 1.0, 2.2), (" to", 2.2, 2.6), (" my", 2.6, 3.0)),
        (" far.", 3.0, 4.0),
    ]
    assert edited.text == "He walked to my far."
    assert edited.segments[0].tokens == []
    one_for_one = transcript(old).replaced(0, " She came too far.")
    assert [word.start for word in one_for_one.segments[0].words or ()] == [0.0, 1.0, 2.0, 3.0]


def test_words_are_added_where_there_is_no_pause() -> None:
    edited = with_text(segment(0.0, 2.0, " One two."), " One and a two.")
    assert [word for word, *_ in timed(edited)] == [" One", " and", " a", " two."]
    assert timed(edited)[-1] == (" two.", 1.0, 2.0)
    assert all(end > start for _, start, end in timed(edited))


@given(st.text("ab c你好。", max_size=12), st.text("ab c你好。", min_size=1, max_size=12))
def test_words_spell_the_text_in_order_of_time(old: str, new: str) -> None:
    before = segment(1.0, 2.0, old) if words_of(old) else Segment(0, 0, 1.0, 2.0, old, [], 0, 0, 0, 0, [])
    edited = with_text(before, new)
    assert "".join(word for word, *_ in timed(edited)) == new.rstrip()
    times = [time for _, *both in timed(edited) for time in both]
    assert times == sorted(times)
    assert all(edited.start <= time <= edited.end for time in times)


def test_paragraphs_end_at_pauses_sentences_and_speakers() -> None:
    spoken = transcript(
        segment(0, 1, " Yes,"),
        segment(3, 4, " of course."),  # a pause within a sentence
        segment(4, 5, " No."),
        segment(7, 8, " Well."),
        segment(8, 9, " Bye.", "B"),
        segment(20, 21, " and", "B"),
    )
    found = spoken.paragraphs()
    assert [each.text for each in found] == ["Yes, of course. No.", "Well.", "Bye.", "and"]
    assert [(each.start, each.end) for each in found] == [(0, 5), (7, 8), (8, 9), (20, 21)]
    assert [each.speaker for each in found] == [None, None, "B", "B"]
    long = transcript(*(segment(i, i + 1, " It goes on and on." * 10) for i in range(9)))
    assert len(long.paragraphs()) > 1


def test_words_of_two_segments_do_not_run_together() -> None:
    assert joined_text(["One.", "Two.", " Three."]) == "One. Two. Three."
    assert joined_text(["你好。", "再见。"]) == "你好。再见。"
