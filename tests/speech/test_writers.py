"""Files that transcripts are written to: against openai-whisper's writers, and what subtitles are to be beyond that."""

import dataclasses
import gzip
import html
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from whisper.utils import get_writer

from transept.compat.whisper.utils import get_writer as compat_writer
from transept.errors import ParameterError
from transept.speech.options import TranscriptionOptions
from transept.speech.output import writers
from transept.speech.output.writers import FileFormat, TextFormat
from transept.speech.segments import Segment, Word
from transept.speech.transcript import Transcript, TranscriptionInfo

FORMATS = ("txt", "srt", "vtt", "tsv", "json")
TEXTS = st.sampled_from(
    [
        " a",
        " word",
        "word",
        " --> there",
        "-->",
        " 字幕",
        "字",
        " مرحبا",
        " Привет,",
        " 👩🏽‍🚀",
        "é",
        " ",
        "",
        "\ta",
        " a\tb",
        "a\nb\n",
    ]
)
HOURS = st.sampled_from([0, 0, 3599, 3600, 100 * 3600])


def info(duration: float, **options: Any) -> TranscriptionInfo:
    return TranscriptionInfo("en", None, {}, duration, duration, TranscriptionOptions(**options))


@st.composite
def transcripts(draw, with_words: bool, texts: st.SearchStrategy[str] = TEXTS, shortest: float = 0.0) -> Transcript:
    """Segments in order of time; words last from the shortest up to some seconds, and pauses may be long."""
    time = float(draw(HOURS))
    steps = st.sampled_from([0.0, 0.02, 0.5, 0.9999, 3.0, 3.0004, 3.5, 61.0])
    lengths = steps.filter(lambda seconds: seconds >= shortest)
    segments = []
    for index in range(draw(st.integers(0, 4))):
        start, words = time, []
        for text in draw(st.lists(texts, max_size=7)):
            begin = time + draw(steps)
            time = begin + draw(lengths)
            words.append(Word(begin, time, text, draw(st.floats(0, 1))))
        time += draw(steps)
        text = "".join(word.word for word in words)
        numbers = [draw(st.floats(-5, 5)) for _ in range(4)]
        segments.append(Segment(index, 0, start, time, text, [1, 2], *numbers, words=words if with_words else None))
    text = "".join(segment.text for segment in segments).strip()
    return Transcript.of(info(time, word_timestamps=with_words), text, segments)


layouts = st.fixed_dictionaries(
    {
        "highlight_words": st.booleans(),
        "max_line_width": st.sampled_from([None, 1, 5, 12, 40]),
        "max_line_count": st.sampled_from([None, 1, 2]),
        "max_words_per_line": st.sampled_from([None, 1, 2, 3]),
    }
)
OURS = layouts.filter(
    lambda each: each["max_line_count"] is None or (each["max_line_width"] and not each["max_words_per_line"])
)


def openai_result(transcript: Transcript) -> dict[str, Any]:
    """The dict that openai-whisper would hold for the transcript."""
    segments = []
    for each in transcript.segments:
        segment = {
            "id": each.id,
            "seek": each.seek,
            "start": each.start,
            "end": each.end,
            "text": each.text,
            "tokens": each.tokens,
            "temperature": each.temperature,
            "avg_logprob": each.avg_logprob,
            "compression_ratio": each.compression_ratio,
            "no_speech_prob": each.no_speech_prob,
        }
        if each.words is not None:
            segment["words"] = [
                {"word": word.word, "start": word.start, "end": word.end, "probability": word.probability}
                for word in each.words
            ]
        segments.append(segment)
    text = "".join(segment.text for segment in transcript.segments)
    return {"text": text, "segments": segments, "language": transcript.language}


def assert_equal_files(transcript: Transcript, folder: Path, **layout: Any) -> None:
    """The compat door's files are openai-whisper's; ours are but for subtitles."""
    result = openai_result(transcript)
    for name in FORMATS:
        get_writer(name, str(folder))(result, "theirs.wav", dict(layout))
        theirs = (folder / f"theirs.{name}").read_bytes()
        compat_writer(name, str(folder))(result, "compat.wav", dict(layout))
        assert (folder / f"compat.{name}").read_bytes() == theirs, name
        if name not in ("srt", "vtt"):
            if name == "tsv":  # ours has a blank for a line feed, which would end the row
                rows = [{**each, "text": each["text"].strip().replace("\n", " ")} for each in result["segments"]]
                get_writer(name, str(folder))({**result, "segments": rows}, "theirs.wav", dict(layout))
                theirs = (folder / f"theirs.{name}").read_bytes()
            transcript.write(folder / f"ours.{name}")
            assert (folder / f"ours.{name}").read_bytes() == theirs, name


@given(transcripts(with_words=True), layouts)
@settings(max_examples=200)
def test_files_with_words_are_those_of_openai_whisper(
    tmp_path_factory: pytest.TempPathFactory, transcript: Transcript, layout: dict[str, Any]
) -> None:
    assert_equal_files(transcript, tmp_path_factory.getbasetemp(), **layout)


@given(transcripts(with_words=False))
@settings(max_examples=50)
@example(Transcript.of(info(0.0), "", []))
def test_files_without_words_are_those_of_openai_whisper(
    tmp_path_factory: pytest.TempPathFactory, transcript: Transcript
) -> None:
    assert_equal_files(transcript, tmp_path_factory.getbasetemp())


PLAIN_TEXTS = st.sampled_from([" a", " word", " Привет,", " مرحبا", " é", " longer-word", " 👩🏽‍🚀"])


@given(transcripts(with_words=True, texts=PLAIN_TEXTS, shortest=0.02), OURS)
@settings(max_examples=100)
def test_subtitles_of_plain_words_are_those_of_openai_whisper(
    tmp_path_factory: pytest.TempPathFactory, transcript: Transcript, layout: dict[str, Any]
) -> None:
    """A last line of one short word is the only difference: words of the line before join it."""
    folder = tmp_path_factory.getbasetemp()
    for name in ("srt", "vtt"):
        get_writer(name, str(folder))(openai_result(transcript), "theirs.wav", dict(layout))
        transcript.write(folder / f"ours.{name}", **layout)
        ours, theirs = ((folder / f"{each}.{name}").read_text().split("\n\n") for each in ("ours", "theirs"))
        for own, other in zip(ours, theirs, strict=True):
            last = re.sub("</?u>", "", other.split("\n")[-1])
            if " " in last or 3 * len(last) > (layout["max_line_width"] or 0):
                assert own == other, name
            assert own.split() == other.split(), name


CUE = re.compile(r"(?:\d+\n)?([\d:,.]+) --> ([\d:,.]+)\n(.+)", re.DOTALL)


def cues_of(text: str) -> list[tuple[str, str, str]]:
    """Start, end and text of each subtitle in a SubRip or WebVTT file, read as players do: up to a blank line."""
    blocks = [block for block in text.removeprefix("WEBVTT\n\n").split("\n\n") if block]
    matches = [CUE.fullmatch(block) for block in blocks]
    assert None not in matches, text
    return [match.groups() for match in matches]


@given(transcripts(with_words=True), OURS)
@settings(max_examples=200)
def test_no_subtitle_is_empty_or_without_a_length_or_breaks_a_word(
    transcript: Transcript, layout: dict[str, Any]
) -> None:
    said = ["".join(word.word for word in segment.words) for segment in transcript.segments]
    breakable = re.compile("([字幕])")  # where words have no blanks between them
    words = [word for text in said for word in breakable.sub(r" \1 ", text.replace("-->", "->")).split()]
    subtitles = cues_of(written(transcript, "srt", **layout))
    assert all(start < end for start, end, _ in subtitles)
    if not layout["highlight_words"]:
        lines = [line for _, _, text in subtitles for line in text.split("\n")]
        assert [word for line in lines for word in breakable.sub(r" \1 ", line).split()] == words
    markup = cues_of(written(transcript, "vtt", **layout))
    texts = [text.replace("<u>", "").replace("</u>", "") for _, _, text in markup]
    assert not any(mark in text for text in texts for mark in "<>")
    assert [html.unescape(text).replace("-->", "->") for text in texts] == [
        text.replace("<u>", "").replace("</u>", "") for _, _, text in subtitles
    ]


def spoken(*words: str, seconds: float = 0.5) -> Transcript:
    """A segment of words, each of a length."""
    timed = [Word(seconds * index, seconds * (index + 1), word, 0.9) for index, word in enumerate(words)]
    segment = Segment(0, 0, 0.0, timed[-1].end, "".join(words), [1], 0.0, -0.2, 1.1, 0.01, words=timed)
    return Transcript.of(info(timed[-1].end), segment.text.strip(), [segment])


@pytest.mark.parametrize("name", ["srt", "vtt"])
@pytest.mark.parametrize("layout", [{"max_line_width": 8}, {"max_line_width": 8, "max_line_count": 1}])
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([" a", " cold", "-hearted", " man."], ["a", "cold-hearted", "man."]),
        ([" j", "'ai", " aujourd", "'hui"], ["j'ai", "aujourd'hui"]),
        ([" at", " example.", "com", " 3.", "5", " ok"], ["at", "example.com", "3.5 ok"]),
        (["ご視聴", "ありが", "とう", "。", "Open", "AI"], ["ご視聴ありが", "とう。", "OpenAI"]),
        (["「はい", "、", "」", "それ", "は", "い", "つ", "のー", "と"], ["「はい、」それは", "いつのーと"]),
        ([" AT", "&T", " <b>", " -->"], ["AT&T <b>", "-->"]),
    ],
)
def test_lines_break_between_words(words: list[str], lines: list[str], layout: dict[str, Any], name: str) -> None:
    subtitles = cues_of(written(spoken(*words), name, **layout))
    found = [line for _, _, text in subtitles for line in text.split("\n")]
    if name == "vtt":
        found = [html.unescape(line) for line in found]
    expected = lines if name == "vtt" else [line.replace("-->", "->") for line in lines]
    assert found == expected
    assert len(subtitles) == (1 if "max_line_count" not in layout else len(lines))


def test_a_word_of_several_parts_is_one_word() -> None:
    cold = spoken(" a", " cold", "-hearted", " man.")
    texts = [text for _, _, text in cues_of(written(cold, "srt", max_words_per_line=2))]
    assert texts == ["a cold-hearted", "man."]
    highlighted = cues_of(written(cold, "srt", highlight_words=True))
    assert highlighted[1] == ("00:00:00,500", "00:00:01,500", "a <u>cold-hearted</u> man.")
    assert r"{\k100} cold-hearted" in written(cold, "ass")


def test_words_at_one_time_follow_each_other() -> None:
    timed = [Word(1.0, 1.5, " a", 0.9), Word(1.5, 1.5, " b", 0.9), Word(1.5, 1.5, " c", 0.9), Word(1.5, 2.0, " d", 0.9)]
    segment = Segment(0, 0, 1.0, 2.0, " a b c d", [1], 0.0, -0.2, 1.1, 0.01, words=timed)
    text = written(Transcript.of(info(2.0), "a b c d", [segment]), "srt", max_words_per_line=1)
    assert [(start[-6:], end[-6:], word) for start, end, word in cues_of(text)] == [
        ("01,000", "01,500", "a"),
        ("01,500", "01,520", "b"),
        ("01,520", "01,540", "c"),
        ("01,540", "02,000", "d"),
    ]
    last = dataclasses.replace(segment, words=timed[:3])
    text = written(Transcript.of(info(2.0), "a b c", [last]), "srt", max_words_per_line=1)
    assert [(start[-6:], end[-6:]) for start, end, _ in cues_of(text)] == [
        ("01,000", "01,460"),
        ("01,460", "01,480"),
        ("01,480", "01,500"),
    ]


def test_segments_without_words_are_subtitles_where_they_say_something() -> None:
    segment = Segment(0, 0, 1.0, 1.0, " a\n\nb", [1], 0.0, -0.2, 1.1, 0.01)
    silent = dataclasses.replace(segment, text="", tokens=[])
    text = written(Transcript.of(info(2.0), "a b", [silent, segment]), "srt")
    assert cues_of(text) == [("00:00:01,000", "00:00:01,020", "a\nb")]


def one_segment(words: list[Word] | None = None) -> Transcript:
    segment = Segment(0, 0, 0.5, 2.25, " Hello there.", [1], 0.0, -0.2, 1.1, 0.01, words=words)
    return Transcript.of(info(3.0), "Hello there.", [segment])


def test_the_suffix_in_any_case_tells_the_format(tmp_path: Path) -> None:
    one_segment().write(tmp_path / "talk.SRT")
    assert (tmp_path / "talk.SRT").read_text() == "1\n00:00:00,500 --> 00:00:02,250\nHello there.\n\n"
    one_segment().write(str(tmp_path / "a.b.json"))
    assert json.loads((tmp_path / "a.b.json").read_text())["segments"][0]["start"] == 0.5


@pytest.mark.parametrize("name", FORMATS)
def test_an_open_file_takes_text_or_bytes_and_stays_open(tmp_path: Path, name: str) -> None:
    transcript = one_segment()
    transcript.write(tmp_path / f"path.{name}")
    expected = (tmp_path / f"path.{name}").read_bytes()
    transcript.write(tmp_path / "talk", name)
    assert (tmp_path / "talk").read_bytes() == expected
    for file, content in ((io.StringIO(), expected.decode()), (io.BytesIO(), expected)):
        transcript.write(file, format=name)
        assert file.getvalue() == content
    with (tmp_path / f"text.{name}").open("w", encoding="utf-8") as opened:
        transcript.write(opened)
        transcript.write(opened)
    with gzip.open(tmp_path / f"packed.{name}", "wb") as opened:
        transcript.write(opened)
    assert (tmp_path / f"text.{name}").read_bytes() == expected * 2
    assert gzip.decompress((tmp_path / f"packed.{name}").read_bytes()) == expected


def test_an_open_file_without_a_name_needs_a_format(tmp_path: Path) -> None:
    for file in (io.StringIO(), io.BytesIO(), (tmp_path / "talk").open("w")):
        with file, pytest.raises(ParameterError, match=r"no suffix for the format|such as format='srt'"):
            one_segment().write(file)
    with pytest.raises(ParameterError, match=r"there is no format 'str'\. Did you mean 'srt'"):
        one_segment().write(io.StringIO(), format="str")
    for no_file in (5, None):
        with pytest.raises(ParameterError, match=f"cannot write to {no_file}: give a path, or an open file"):
            one_segment().write(no_file, format="srt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("talk.str", r"no format '\.str'\. Did you mean 'srt'\?"),
        ("talk", r"has no suffix.* Known: ass, csv, docx, html, json, lrc, srt, tsv, ttml, txt, vtt"),
    ],
)
def test_an_unknown_suffix_is_an_error_that_names_the_known(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        one_segment().write(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "layout",
    [
        {"highlight_words": True},
        {"max_line_width": 40},
        {"max_line_width": 40, "max_line_count": 2},
        {"max_words_per_line": 3},
    ],
)
def test_a_layout_of_words_needs_words(tmp_path: Path, layout: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(layout))} lays out words.*word_timestamps=True"):
        one_segment().write(tmp_path / "talk.vtt", **layout)
    assert not list(tmp_path.iterdir())
    one_segment([Word(0.5, 1.0, " Hello", 0.9), Word(1.0, 2.25, " there.", 0.8)]).write(tmp_path / "a.vtt", **layout)


def test_type_checkers_know_every_format() -> None:
    assert get_args(TextFormat) == (*writers.FORMATS,)
    assert [name for each in get_args(FileFormat) for name in get_args(each)] == [*writers.FORMATS, *writers.BINARY]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"max_line_widht": 40}, "no option 'max_line_widht'. Did you mean 'max_line_width'"),
        ({"max_line_width": 0}, "max_line_width must be an integer of at least 1 and at most 1000, not 0"),
        *(
            ({name: 1e308}, f"{name} must be .* at most")
            for name in ("linger", "min_gap", "close_gaps", "max_duration")
        ),
        ({"max_words_per_minute": 1e-320}, "max_words_per_minute must be a number of at least 10"),
        ({"max_words_per_line": 2.5}, "max_words_per_line must be an integer of at least 1 and at most 1000, not 2.5"),
        ({"highlight_words": "yes"}, "highlight_words must be True or False, not 'yes'"),
        ({"max_line_count": 2}, "max_line_count needs the width of a line; set max_line_width"),
        (
            {"max_line_width": 9, "max_line_count": 2, "max_words_per_line": 3},
            "max_line_count fills each subtitle with words; leave max_words_per_line out",
        ),
    ],
)
def test_a_bad_layout_is_an_error(tmp_path: Path, layout: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        one_segment().write(tmp_path / "talk.srt", **layout)


def two_speakers(*, words: bool) -> Transcript:
    """Somebody whose name has marks that mean something in a format, and somebody without a name."""
    said = [
        Segment(0, 0, 0.0, 1.5, " Hello, you.", [1], 0.0, -0.2, 1.1, 0.01, speaker="A & <B>, C"),
        Segment(1, 0, 1.0, 2.5, " Oh, hi.", [1], 0.0, -0.2, 1.1, 0.01, speaker="right"),
        Segment(2, 0, 3.0, 4.0, " Who?", [1], 0.0, -0.2, 1.1, 0.01),
    ]
    if words:
        said = [
            dataclasses.replace(
                each,
                words=[
                    Word(each.start + 0.5 * index, each.start + 0.5 * index + 0.5, f" {word}", 0.9)
                    for index, word in enumerate(each.text.split())
                ],
            )
            for each in said
        ]
    return Transcript.of(info(4.0), "Hello, you. Oh, hi. Who?", said)


def written(transcript: Transcript, name: str, **layout: Any) -> str:
    file = io.StringIO()
    transcript.write(file, name, **layout)
    return file.getvalue()


TXT = """A & <B>, C: Hello, you.
right: Oh, hi.
Who?
"""
SRT = """1
00:00:00,000 --> 00:00:01,500
A & <B>, C: Hello, you.

2
00:00:01,000 --> 00:00:02,500
right: Oh, hi.

3
00:00:03,000 --> 00:00:04,000
Who?

"""
VTT = """WEBVTT

00:00.000 --> 00:01.500
<v A &amp; &lt;B&gt;, C>Hello, you.

00:01.000 --> 00:02.500
<v right>Oh, hi.

00:03.000 --> 00:04.000
Who?

"""
TSV = """start\tend\tspeaker\ttext
0\t1500\tA & <B>, C\tHello, you.
1000\t2500\tright\tOh, hi.
3000\t4000\t\tWho?
"""
CSV = """start,end,speaker,text
0,1500,"A & <B>, C","Hello, you."
1000,2500,right,"Oh, hi."
3000,4000,,Who?
"""
LRC = """[00:00.00]A & <B>, C: Hello, you.
[00:01.00]right: Oh, hi.
[00:03.00]Who?
"""


@pytest.mark.parametrize(
    ("name", "expected"), [("txt", TXT), ("srt", SRT), ("vtt", VTT), ("tsv", TSV), ("csv", CSV), ("lrc", LRC)]
)
def test_speakers_are_in_every_format(name: str, expected: str) -> None:
    assert written(two_speakers(words=False), name) == expected


def test_speakers_are_in_json_where_there_are_any() -> None:
    segments = json.loads(written(two_speakers(words=False), "json"))["segments"]
    assert [each.get("speaker") for each in segments] == ["A & <B>, C", "right", None]
    assert "speaker" not in segments[2]


def test_karaoke_has_speakers_in_their_field_and_to_read() -> None:
    for words in (False, True):
        lines = [line for line in written(two_speakers(words=words), "ass").splitlines() if line.startswith("Dialogue")]
        fields = [line.split(",", 9) for line in lines]
        assert [each[4] for each in fields] == ["A & <B>; C", "right", ""]
        assert [each[9].partition("{")[0].partition("Hello")[0] for each in fields[:1]] == ["A & <B>, C: "]
        assert fields[1][9].startswith("right: ")


def test_a_subtitle_that_is_filled_up_has_one_speaker() -> None:
    layout = {"max_line_width": 15, "max_line_count": 2}
    cues = written(two_speakers(words=True), "srt", **layout).split("\n\n")[:-1]
    assert [cue.split("\n")[2:] for cue in cues] == [["A & <B>, C: Hello,", "you."], ["right: Oh, hi."], ["Who?"]]
    narrow = {"max_line_width": 9, "max_line_count": 2}
    assert [text.split("\n") for _, _, text in cues_of(written(two_speakers(words=True), "srt", **narrow))][1] == [
        "right: Oh,",
        "hi.",
    ], "the name counts"
    assert [text for _, _, text in cues_of(written(two_speakers(words=True), "vtt", **narrow))][1] == (
        "<v right>Oh, hi."
    ), "a name that is not in the line does not"


def test_each_subtitle_of_highlighted_words_has_its_speaker() -> None:
    cues = written(two_speakers(words=True), "vtt", highlight_words=True).split("\n\n")[1:-1]
    texts = [cue.split("\n")[1] for cue in cues]
    assert texts[2:4] == ["<v right><u>Oh,</u> hi.", "<v right>Oh, <u>hi.</u>"]
