"""Chapters: where a long transcript is cut."""

from hypothesis import given
from hypothesis import strategies as st

from transept import Transcript


def transcript(times: list[tuple[float, float]], text: str = " Yes.") -> Transcript:
    return Transcript.from_dict({"segments": [{"start": start, "end": end, "text": text} for start, end in times]})


def test_a_long_talk_is_cut_at_its_longest_pauses() -> None:
    times = [(10.0 * i + (30 if i >= 11 else 0) + (20 if i >= 22 else 0), 10.0 * i + 59) for i in range(33)]
    times = [(start, start + 9) for start, _ in times]
    found = transcript(times).chapters(150)
    assert [each.start for each in found] == [0.0, 140.0, 270.0]
    assert [each.end for each in found] == [109.0, 249.0, 379.0]


def test_short_talks_and_silence() -> None:
    assert len(transcript([(0, 10), (200, 210)]).chapters()) == 1
    assert transcript([]).chapters() == []
    assert transcript([(0, 10)], text=" ").chapters() == []
    assert [each.start for each in transcript([(0, 1000), (1000, 1001)]).chapters()] == [0, 1000]


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 30)), min_size=1, max_size=40))
def test_chapters_have_all_segments_and_are_not_too_long(steps: list[tuple[float, float]]) -> None:
    times, now = [], 0.0
    for pause, length in steps:
        times.append((now + pause, now + pause + length))
        now += pause + length
    talk = transcript(times)
    found = talk.chapters(60)
    assert [segment for chapter in found for segment in chapter.segments] == talk.segments
    assert all(chapter.end - chapter.start <= 60 for chapter in found)
