"""Transcripts of other programs, in JSON and subtitles, and files that are not transcripts."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept import ParameterError, Segment, Transcript, Word
from transept.speech.dialects import transcript_dict

SEGMENT = {"id": 0, "start": 0.0, "end": 1.0, "text": " Hello you."}
WORDS = [{"word": "Hello", "start": 0.0, "end": 0.4}, {"word": "you.", "start": 0.5, "end": 1.0}]


def read(folder: Path, value: Any) -> Transcript:
    file = folder / "talk.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return Transcript.read(file)


def spoken(transcript: Transcript) -> list[tuple[float, float, str]]:
    return [(each.start, each.end, each.text) for each in transcript]


def timed(transcript: Transcript) -> list[tuple[str, float, float]]:
    return [(word.word, word.start, word.end) for segment in transcript for word in segment.words or ()]


def test_our_own_files_come_back(tmp_path: Path) -> None:
    words = [Word(0.0, 0.5, " Hello", 0.9), Word(0.5, 1.0, " you.", 0.8)]
    segment = Segment(0, 0, 0.0, 1.0, " Hello you.", [1, 2], 0.0, -0.5, 1.0, 0.0, words, speaker="Anna")
    transcript = Transcript.from_dict({"segments": [segment.to_dict()], "language": "en", "text": "Hello you."})
    transcript.write(tmp_path / "talk.json")
    assert Transcript.read(tmp_path / "talk.json").segments == [segment]
    assert read(tmp_path, transcript.to_dict()) == transcript


def test_openai_sends_words_beside_the_segments(tmp_path: Path) -> None:
    later = {"id": 1, "start": 2.0, "end": 3.0, "text": " Bye."}
    words = [*WORDS, {"word": "Bye", "start": 2.0, "end": 3.0}]
    transcript = read(
        tmp_path, {"task": "transcribe", "text": "Hello you. Bye.", "segments": [SEGMENT, later], "words": words}
    )
    assert timed(transcript) == [(" Hello", 0.0, 0.4), (" you.", 0.5, 1.0), (" Bye", 2.0, 3.0)]
    alone = read(tmp_path, {"text": "Hello you. Bye", "words": words})
    assert spoken(alone) == [(0.0, 1.0, " Hello you."), (2.0, 3.0, " Bye")]
    assert timed(alone) == timed(transcript)


def test_whisperx_has_speakers_and_words_without_times(tmp_path: Path) -> None:
    words = [
        {"word": "In", "start": 0.1, "end": 0.2, "score": 0.5, "speaker": "SPEAKER_00"},
        {"word": "2014"},
        {"word": "and"},
        {"word": "now.", "start": 1.2, "end": 1.9, "score": 0.75, "speaker": "SPEAKER_00"},
    ]
    segment = {"start": 0.1, "end": 1.9, "text": " In 2014 and now.", "words": words, "speaker": "SPEAKER_00"}
    transcript = read(tmp_path, {"segments": [segment], "word_segments": words, "language": "en"})
    assert transcript.segments[0].speaker == "SPEAKER_00"
    assert timed(transcript) == [(" In", 0.1, 0.2), (" 2014", 0.2, 0.7), (" and", 0.7, 1.2), (" now.", 1.2, 1.9)]
    assert [word.probability for word in transcript.segments[0].words or ()][::3] == [0.5, 0.75]


def test_faster_whisper_dumps_segments_as_dicts_or_lists(tmp_path: Path) -> None:
    word = {"start": 0.0, "end": 1.0, "word": " Hello.", "probability": 0.5}
    theirs = {**SEGMENT, "id": 1, "seek": 0, "text": " Hello.", "tokens": [50], "temperature": None, "words": [word]}
    as_dicts = read(tmp_path, [theirs])
    as_list = read(tmp_path, [[1, 0, 0.0, 1.0, " Hello.", [50], 0.0, -0.5, 1.0, 0.0, [[0.0, 1.0, " Hello.", 0.5]]]])
    assert timed(as_dicts) == timed(as_list) == [(" Hello.", 0.0, 1.0)]
    assert as_dicts.segments[0].tokens == [50]


def test_whisper_cpp_and_transformers(tmp_path: Path) -> None:
    cpp = {"result": {"language": "en"}, "transcription": [{"offsets": {"from": 0, "to": 1500}, "text": " Hello."}]}
    assert spoken(read(tmp_path, cpp)) == [(0.0, 1.5, " Hello.")]
    assert read(tmp_path, cpp).language == "en"
    chunks = [{"timestamp": [0.0, 1.5], "text": " Hello."}, {"timestamp": [2.0, None], "text": " Bye."}]
    assert spoken(read(tmp_path, {"text": "", "chunks": chunks})) == [(0.0, 1.5, " Hello."), (2.0, 2.0, " Bye.")]


def test_texts_without_blanks_do_not_run_together(tmp_path: Path) -> None:
    segments = [{"start": 0, "end": 1, "text": "Hello."}, {"start": 1, "end": 2, "text": "Bye."}]
    assert read(tmp_path, segments).text == "Hello. Bye."
    chinese = [{"start": 0, "end": 1, "text": "你好。"}, {"start": 1, "end": 2, "text": "再见。"}]
    assert read(tmp_path, chinese).text == "你好。再见。"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Hello", r"talk\.json\": it is not JSON"),
        ('{"segments": []}\n{"segments": []}', "If each line is a transcript, write one"),
        ("3", "its JSON is not an object with segments, or a list of segments"),
        ({"name": "transept", "version": 1}, "its JSON is not an object with segments"),
        ({"segments": 3}, r"talk\.json\": segments must be a list, not 3"),
        ([{"text": "Hello"}], r"segments\[0\]\.start is missing"),
        ([{"start": 1, "end": 0, "text": "a"}], r"segments\[0\]\.end must be at least start"),
        (["Hello"], r"segments\[0\] must be an object"),
        ({"chunks": ["Hello"]}, r"segments\[0\] must be an object"),
        ({"segments": [{**SEGMENT, "words": [{"word": 3, "start": 0, "end": 1}]}]}, "words"),
    ],
)
def test_what_is_no_transcript_is_told(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read(tmp_path, value)


def test_the_suffix_or_the_format_tells_the_reader(tmp_path: Path) -> None:
    (tmp_path / "talk").write_text(json.dumps([SEGMENT]))
    assert Transcript.read(tmp_path / "talk", "json").text == "Hello you."
    with pytest.raises(ParameterError, match=r"transcripts are read from \.json, \.ssa"):
        Transcript.read(tmp_path / "talk")
    with pytest.raises(ParameterError, match=r"there is no format 'jsno' to read\. Did you mean 'json'"):
        Transcript.read(tmp_path / "talk", "jsno")
    with pytest.raises(FileNotFoundError):
        Transcript.read(tmp_path / "walk.json")


SPEECH = Transcript.from_dict(
    {
        "segments": [
            {"start": 0.0, "end": 1.5, "text": " Is it 10:30?", "speaker": "Anna & Bo"},
            {"start": 2.0, "end": 3.0, "text": " Note: it is late & dark.", "speaker": "SPEAKER_01"},
        ]
    }
)


@pytest.mark.parametrize("name", ["srt", "vtt", "ass"])
def test_subtitles_come_back_with_their_speakers(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"talk.{name}"
    SPEECH.write(file)
    again = Transcript.read(file)
    assert spoken(again) == spoken(SPEECH)
    assert [each.speaker for each in again] == ["Anna & Bo", "SPEAKER_01"]
    assert again.duration == 3.0


def test_a_colon_in_a_few_subtitles_names_no_speaker(tmp_path: Path) -> None:
    file = tmp_path / "talk.srt"
    texts = ["Note: it\nis late.", "It is 10:30.", "Yes."]
    file.write_text("".join(f"{i}\n00:00:0{i},000 --> 00:00:0{i},500\n{text}\n\n" for i, text in enumerate(texts, 1)))
    again = Transcript.read(file)
    assert [each.text for each in again] == [" Note: it\nis late.", " It is 10:30.", " Yes."]
    assert [each.speaker for each in again] == [None, None, None]
    file.write_text("Hello")
    with pytest.raises(ParameterError, match=r"talk\.srt\": the text has no subtitles in the format srt"):
        Transcript.read(file)
    file.write_bytes(b"\xff\x00")
    with pytest.raises(ParameterError, match="line 1 is not text in UTF-8"):
        Transcript.read(file)


def subtitles(*texts: str) -> str:
    return "".join(f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\n{text}\n\n" for i, text in enumerate(texts, 1))


def test_lines_of_subtitles_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "talk.srt"
    file.write_text(subtitles("- Hi\n- Ho", "Well,\nyes."))
    talk = Transcript.read(file)
    assert talk.to_srt() == file.read_text()
    assert talk.text == "- Hi - Ho Well, yes."
    assert "- Hi\n- Ho\n" in talk.shifted(1).to_vtt()
    assert "- Hi<br/>- Ho" in talk.to_str("ttml")
    assert r"- Hi\N- Ho" in talk.to_str("ass")
    assert talk.with_estimated_words().to_str("lrc", max_line_width=9).splitlines()[1] == "[00:02.00]Well, yes."


@pytest.mark.parametrize(
    ("texts", "speakers"),
    [
        (("Anna: Hello there.", "Yes.", "Anna: Well."), ["Anna", None, "Anna"]),
        (("Warning: do not touch.", "It is hot."), [None, None]),
        (("It is a long remark: yes.", "It is a long remark: no."), [None, None]),
    ],
)
def test_a_layout_keeps_the_names_that_were_text(tmp_path: Path, texts: list[str], speakers: list[str | None]) -> None:
    file = tmp_path / "talk.srt"
    file.write_text(subtitles(*texts))
    talk = Transcript.read(file)
    assert [each.speaker for each in talk] == speakers
    for name in ("srt", "lrc", "vtt", "ass", "ttml"):
        laid_out = tmp_path / f"again.{name}"
        talk.with_estimated_words().write(laid_out, style="netflix")
        written = re.sub(r"\{[^}]*\}|<br/>|\\N", " ", laid_out.read_text())
        assert not {word for text in texts for word in text.split()} - {*re.sub(r"[<>\]]", " ", written).split()}, name


def test_subtitles_are_in_order_and_laid_out_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "talk.vtt"
    file.write_text(
        "WEBVTT\n\n00:10.000 --> 00:16.000\nThird one here.\n\n00:01.000 --> 00:09.000\nFirst one.\n\n"
        "00:05.000 --> 00:09.000\nSecond one.\n\n00:05.000 --> 00:09.000\nAlso spoken.\n"
    )
    talk = Transcript.read(file)
    assert [each.start for each in talk] == [1.0, 5.0, 5.0, 10.0]
    spread = talk.with_estimated_words()
    assert timed(spread)[:4] == [
        (" First", 1.0, 3.222),
        (" one.", 3.222, 5.0),
        (" Second", 5.0, 6.148),
        (" one.", 6.148, 6.913),
    ]
    assert spread.segments[2].words[-1].end == 9.0
    times = [time for _, *both in timed(spread) for time in both]
    assert times == sorted(times)


KEYS = ("segments", "words", "chunks", "transcription", "result", "info", "language", "text", "word", "start", "end")
LEAVES = st.none() | st.booleans() | st.floats() | st.integers(-2, 5) | st.sampled_from(["", "a", " b.", "你"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from([*KEYS, "timestamp", "offsets", "from", "to", "score"]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_any_json_is_a_transcript_or_an_error_that_says_why(value: Any) -> None:
    with contextlib.suppress(ParameterError):
        Transcript.from_dict(transcript_dict(value)).to_str("srt")
