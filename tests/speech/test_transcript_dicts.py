"""Transcripts as plain dicts and back: nothing is lost on the way, and what is wrong is named by its place."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept import ParameterError, Segment, Transcript, Word
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import FORMATS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LONGEST = 1e6  # seconds
TIMES = st.floats(0.0, LONGEST)
COUNTS = st.integers(0, 1 << 40)
WORDS = st.builds(Word, TIMES, TIMES, TEXTS, NUMBERS)


def segments(words: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Segment]]:
    numbers = (NUMBERS, NUMBERS, NUMBERS, NUMBERS)
    segment = st.builds(
        Segment,
        *(COUNTS, COUNTS, TIMES, TIMES, TEXTS, st.lists(COUNTS, max_size=3), *numbers),
        words=words,
        token_logprobs=st.none() | st.lists(NUMBERS, max_size=3),
        language=st.none() | st.just("de"),
        speaker=st.sampled_from([None, "left", 'Jo & <b>Al</b>, "{K}\\ -']),
    )
    return st.lists(segment.map(with_times_in_order), max_size=4)


def with_times_in_order(segment: Segment) -> Segment:
    """Return the segment with its times in order, and its words within them."""
    start, end = sorted((segment.start, segment.end))

    def within(word: Word) -> Word:
        first, last = sorted(min(start + (end - start) * time / LONGEST, end) for time in (word.start, word.end))
        return replace(word, start=first, end=last)

    words = None if segment.words is None else [within(word) for word in segment.words]
    return replace(segment, start=start, end=end, words=words)


TRANSCRIPTS = st.builds(
    Transcript,
    text=TEXTS,
    language=TEXTS,
    language_probability=st.none() | NUMBERS,
    language_probabilities=st.dictionaries(TEXTS, NUMBERS, max_size=2),
    duration=TIMES,
    duration_after_vad=TIMES,
    segments=segments(st.none()) | segments(st.lists(WORDS, max_size=4)),
    options=st.just(TranscriptionOptions()),
    missed_speech=st.lists(st.tuples(TIMES, TIMES), max_size=2),
    warnings=st.lists(TEXTS, max_size=2),
    reason=st.none() | TEXTS.filter(bool),
)
SEGMENT = {"start": 0.0, "end": 1.0, "text": " Hello."}
WORD = {"start": 0.0, "end": 1.0, "word": " Hello."}


@given(TRANSCRIPTS)
def test_a_transcript_comes_back_from_its_dict(transcript: Transcript) -> None:
    told = transcript.to_dict()
    again = Transcript.from_dict(json.loads(json.dumps(told)))
    assert again.to_dict() == told
    for write in FORMATS.values():
        files = [write(each.segments, each.language, SubtitleLayout()) for each in (transcript, again)]
        assert files[0] == files[1]


def test_only_times_and_texts_are_needed() -> None:
    given = {"segments": [SEGMENT, {**SEGMENT, "start": 1, "end": 3, "text": " You.", "words": [{**WORD, "start": 1}]}]}
    transcript = Transcript.from_dict(given)
    first, second = transcript.segments
    assert (transcript.text, transcript.duration, transcript.duration_after_vad) == ("Hello. You.", 3.0, 3.0)
    assert (transcript.language, transcript.language_probability, transcript.reason) == ("", None, None)
    assert (first.id, first.words, first.speaker, second.id, second.words) == (
        0,
        None,
        None,
        1,
        [Word(1, 1, " Hello.", 1)],
    )
    assert FORMATS["json"](transcript.segments, "", SubtitleLayout()).count('"start": 1.0') == 2  # as floats


def test_events_of_a_stream_are_segments() -> None:
    events = [{**SEGMENT, "type": "transcript.text.segment", "id": f"seg_{number}", "speaker": ""} for number in (7, 9)]
    assert [(each.id, each.speaker) for each in Transcript.from_dict({"segments": events}).segments] == [
        (0, None),
        (1, None),
    ]


def test_a_translation_was_spoken_in_another_language() -> None:
    assert (
        Transcript.from_dict({"segments": [], "language": "english", "spoken_language": "german"}).language == "german"
    )


def of_segment(**fields: Any) -> dict[str, Any]:
    return {"segments": [SEGMENT, {**SEGMENT, **fields}]}


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ([], "transcript", "transcript must be an object, not []"),
        ({}, "segments", "segments is missing"),
        ({"segments": None}, "segments", "segments is missing"),
        ({"segments": {"0": SEGMENT}}, "segments", "segments must be a list, not {'0': "),
        ({"segments": [SEGMENT, 3]}, "segments[1]", "segments[1] must be an object, not 3"),
        (of_segment(start=None), "segments[1].start", "segments[1].start is missing"),
        (of_segment(start="1"), "segments[1].start", "must be a number of seconds from 0 to 1000000000, not '1'"),
        (of_segment(end=-0.1), "segments[1].end", "must be a number of seconds from 0 to 1000000000, not -0.1"),
        (of_segment(end=math.inf), "segments[1].end", "must be a number of seconds from 0 to 1000000000, not inf"),
        (of_segment(end=math.nan), "segments[1].end", "must be a number of seconds from 0 to 1000000000, not nan"),
        (of_segment(end=10**400), "segments[1].end", "must be a number of seconds from 0 to 1000000000, not 1000"),
        (of_segment(end=True), "segments[1].end", "must be a number of seconds from 0 to 1000000000, not True"),
        (of_segment(text=3), "segments[1].text", "must be text, not 3"),
        (
            of_segment(text="\ud800"),
            "segments[1].text",
            "holds half a surrogate pair, which is not valid text: '\\ud800'",
        ),
        (of_segment(speaker=["a"]), "segments[1].speaker", "must be text"),
        (of_segment(language=1), "segments[1].language", "must be text"),
        (of_segment(id=-1), "segments[1].id", "must be an integer of at least 0, not -1"),
        (of_segment(seek=0.5), "segments[1].seek", "must be an integer of at least 0, not 0.5"),
        (of_segment(tokens=[1, "a"]), "segments[1].tokens[1]", "must be an integer of at least 0, not 'a'"),
        (of_segment(avg_logprob="-1"), "segments[1].avg_logprob", "must be a number, not '-1'"),
        (of_segment(token_logprobs=0), "segments[1].token_logprobs", "must be a list, not 0"),
        (of_segment(words=0), "segments[1].words", "must be a list, not 0"),
        (of_segment(words=[WORD, {"word": "a"}]), "segments[1].words[1].start", "is missing"),
        (of_segment(words=[{**WORD, "word": 1}]), "segments[1].words[0].word", "must be text"),
        ({"segments": [], "language": 1}, "language", "must be text"),
        ({"segments": [], "text": 1}, "text", "must be text"),
        ({"segments": [], "duration": -1}, "duration", "must be a number of seconds"),
        ({"segments": [], "language_probability": "a"}, "language_probability", "must be a number"),
        ({"segments": [], "language_probabilities": [1]}, "language_probabilities", "must be an object"),
        ({"segments": [], "language_probabilities": {"en": "a"}}, "language_probabilities.en", "must be a number"),
        ({"segments": [], "missed_speech": [[1]]}, "missed_speech[0]", "must be a list of two times, not [1]"),
        ({"segments": [], "warnings": "damaged"}, "warnings", "must be a list"),
        ({"segments": [], "warnings": [1]}, "warnings[0]", "must be text"),
        ({"segments": [], "reason": 1}, "reason", "must be text"),
    ],
)
def test_a_wrong_field_is_named_by_its_place(given: Any, place: str, message: str) -> None:
    with pytest.raises(ParameterError) as raised:
        Transcript.from_dict(given)
    assert raised.value.param == place
    assert message in str(raised.value)
    assert place in str(raised.value)
