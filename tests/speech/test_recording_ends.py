"""No segment reaches far past the recording's end, and nothing that is said again there is kept."""

import pytest

from transept.speech.algorithms.segmentation import within
from transept.speech.segments import Segment, Word


def segment(start: float, end: float, text: str, words: list[Word] | None = None) -> Segment:
    return Segment(0, 0, start, end, text, [1], 0.0, -0.3, 1.2, 0.1, words)


FIRST = segment(24.0, 29.8, " Enter your password.")


def test_what_ends_in_time_stays_as_it_is() -> None:
    segments = [FIRST, segment(29.8, 30.3, " Thank you.")]
    assert within(segments, 30.3, before="") == segments


@pytest.mark.parametrize("before", [[FIRST], []], ids=["in one window", "in the window before"])
def test_a_sentence_said_again_after_the_end_is_left_out(before: list[Segment]) -> None:
    again = segment(30.0, 37.0, "Enter your password. ")
    assert within([*before, again], 30.3, before="" if before else FIRST.text) == before


def test_what_begins_after_the_end_is_left_out() -> None:
    assert within([FIRST, segment(60.0, 88.9, " Thank you.")], 59.9, before="") == [FIRST]


def test_a_sentence_that_is_said_twice_is_kept_twice() -> None:
    again = segment(29.8, 31.0, FIRST.text)  # as openai-whisper has it
    assert within([FIRST, again], 30.3, before="") == [FIRST, again]


def test_the_only_word_of_a_short_recording_is_kept() -> None:
    words = [Word(0.0, 0.3, " Go", 0.9), Word(0.45, 2.0, " on.", 0.8)]
    expected = segment(0.0, 0.4, " Go on.", [Word(0.0, 0.3, " Go", 0.9), Word(0.4, 0.4, " on.", 0.8)])
    assert within([segment(0.0, 2.0, " Go on.", words)], 0.4, before="") == [expected]
