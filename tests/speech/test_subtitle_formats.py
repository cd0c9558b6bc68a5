"""lrc, csv and ass, the formats that openai-whisper does not have: read again by FFmpeg and by Python's csv."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transept.errors import ParameterError
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment, Word
from transept.speech.transcript import Transcript, TranscriptionInfo

SYLLABLE = re.compile(r"\{\\k(\d+)\}((?:\\[{}]|[^{}])*)")


def transcript(*segments: Segment) -> Transcript:
    info = TranscriptionInfo("en", None, {}, 99.0, 99.0, TranscriptionOptions())
    return Transcript.of(info, "".join(segment.text for segment in segments).strip(), list(segments))


def segment(start: float, end: float, text: str, words: list[Word] | None = None) -> Segment:
    return Segment(0, 0, start, end, text, [1], 0.0, -0.2, 1.1, 0.01, words=words)


def written(it: Transcript, name: str, **layout: Any) -> str:
    file = io.StringIO()
    it.write(file, format=name, **layout)
    return file.getvalue()


def read_by_ffmpeg(text: str, path: Path) -> list[tuple[float, float, str]]:
    """Start and duration in seconds, and the text of each event."""
    path.write_text(text, encoding="utf-8")
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(container.streams[0]) if packet.size]
        return [
            (
                float(packet.pts * packet.time_base),
                float(packet.duration * packet.time_base),
                bytes(packet)
                .decode()
                .rstrip("\n")
                .split(",", 8 if path.suffix == ".ass" else 0)[-1],  # behind its fields
            )
            for packet in packets
        ]


SPOKEN = transcript(
    segment(0.5, 2.25, " Hello there.", [Word(0.5, 1.0, " Hello", 0.9), Word(1.3, 2.25, " there.", 0.4)]),
    segment(3600.0, 3601.999, ' He said: "Go, {now}"', [Word(3600.0, 3601.999, ' He said: "Go, {now}"', 0.8)]),
)
PLAIN = transcript(segment(0.5, 2.25, " Hello there."), segment(3600.0, 3601.999, ' He said: "Go, {now}"'))


@pytest.mark.parametrize("it", [SPOKEN, PLAIN], ids=["words", "segments"])
def test_csv_has_a_row_a_segment(it: Transcript) -> None:
    text = written(it, "csv")
    assert text.startswith("start,end,text\n")
    assert "\r" not in text
    assert list(csv.reader(io.StringIO(text))) == [
        ["start", "end", "text"],
        ["500", "2250", "Hello there."],
        ["3600000", "3601999", 'He said: "Go, {now}"'],
    ]


@pytest.mark.parametrize("it", [SPOKEN, PLAIN], ids=["words", "segments"])
def test_lyrics_have_the_time_of_each_line(it: Transcript, tmp_path: Path) -> None:
    text = written(it, "lrc")
    assert text.splitlines()[0] == "[00:00.50]Hello there."
    events = read_by_ffmpeg(text, tmp_path / "talk.lrc")
    assert [(start, line) for start, _, line in events] == [(0.5, "Hello there."), (3600.0, 'He said: "Go, {now}"')]


def test_lyrics_are_laid_out_in_single_lines(tmp_path: Path) -> None:
    laid_out = written(SPOKEN, "lrc", max_words_per_line=1, highlight_words=True)
    events = read_by_ffmpeg(laid_out, tmp_path / "talk.lrc")
    assert [(start, line) for start, _, line in events][:2] == [(0.5, "Hello"), (1.3, "there.")]
    filled = written(SPOKEN, "lrc", max_line_width=6, max_line_count=2)
    assert filled.splitlines()[0] == "[00:00.50]Hello there."
    with pytest.raises(ParameterError, match="max_words_per_line lays out words"):
        written(PLAIN, "lrc", max_words_per_line=1)


def test_karaoke_has_the_time_of_each_word(tmp_path: Path) -> None:
    first, second = read_by_ffmpeg(written(SPOKEN, "ass"), tmp_path / "talk.ass")
    assert first == (0.5, 1.75, r"{\k50}Hello{\k30}{\k95} there.")
    assert second == (3600.0, 2.0, r'{\k200}He said: "Go, \{now\}"')


def test_without_words_a_segment_is_one_subtitle(tmp_path: Path) -> None:
    first, second = read_by_ffmpeg(written(PLAIN, "ass"), tmp_path / "talk.ass")
    assert first == (0.5, 1.75, "Hello there.")
    assert second == (3600.0, 2.0, r'He said: "Go, \{now\}"')
    with pytest.raises(ParameterError, match="max_line_width lays out words"):
        written(PLAIN, "ass", max_line_width=10)


def test_text_gives_no_commands(tmp_path: Path) -> None:
    odd = transcript(segment(0.0, 1.0, r" a\Nb {\b1}c"), segment(1.0, 2.0, " two\nlines"))
    events = read_by_ffmpeg(written(odd, "ass"), tmp_path / "talk.ass")
    assert [text for _, _, text in events] == ["a\\\u2060Nb \\{\\\u2060b1\\}c", r"two\Nlines"]


steps = st.integers(0, 400).map(lambda number: number / 128)  # seconds that no decimal fraction is equal to
lengths = st.integers(3, 400).map(lambda number: number / 128)


@given(
    st.lists(st.tuples(steps, lengths, st.sampled_from([" a", " word", "字", " {x}"])), min_size=1, max_size=12),
    steps,
)
@settings(max_examples=100)
def test_syllables_begin_and_end_with_their_words(spoken: list[tuple[float, float, str]], time: float) -> None:
    words = []
    for pause, length, text in spoken:
        words.append(Word(time + pause, time + pause + length, text, 1.0))
        time += pause + length
    line = written(transcript(segment(words[0].start, time, "", words)), "ass").splitlines()[-1]
    text = line.split(",", 9)[9]
    syllables = [(int(length), content) for length, content in SYLLABLE.findall(text)]
    assert "".join(f"{{\\k{length}}}{content}" for length, content in syllables) == text
    position, ends = round(words[0].start * 100), []
    for length, _ in syllables:
        position += length
        ends.append(position)
    assert position == round(words[-1].end * 100)
    assert {round(word.end * 100) for word in words} <= set(ends)
    assert {round(word.start * 100) for word in words} <= {round(words[0].start * 100), *ends}
