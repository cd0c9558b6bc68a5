"""Subtitle files of other programs, read as cues; FFmpeg reads the same files."""

from pathlib import Path

import av
import pytest

from transept import Transcript
from transept.errors import ParameterError
from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.reading import read_subtitle_file, read_subtitles

SUBRIP = """\ufeff1\r
00:00:01,000 --> 00:00:02,500 X1:40 X2:600 Y1:20 Y2:50\r
<i>Hello</i> there,\r
{\\an8}<font color="#ff0000">you</font>\r
\r
2\r
00:01:03.500 --> 1:02:03,004\r
1984\r
\r
3\r
01:02:04,000 --> 01:02:05,000\r
"""
WEB_VIDEO_TEXT = """WEBVTT - a talk
Kind: captions

STYLE
::cue { color: yellow }

NOTE
00:00.000 --> 00:01.000
is no subtitle

intro
00:01.000 --> 00:02.500 align:start position:10%
<v.loud Ann O'Neil>Fish &amp; <b>chips</b>?</v>

01:02:03.004 --> 01:02:04.000
<v Ann>Yes.</v>
<v Ben>1 &lt; 2, <00:01:02.500><c>no</c>.</v>
"""
SUBSTATION = """[Script Info]
; a comment
[V4+ Styles]
Format: Name, Fontname
Style: Default,Arial
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,not shown
Dialogue: 0,0:00:01.00,0:00:02.50,Default,Ann,0,0,0,,{\\i1}Well, yes{\\i0},\\Nand no
Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\p1}m 0 0 l 100 0{\\p0}
"""
TTML = """<?xml version="1.0" encoding="UTF-8"?>
<tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttm="http://www.w3.org/ns/ttml#metadata" xml:lang="en"
    xmlns:ttp="http://www.w3.org/ns/ttml#parameter" ttp:frameRate="24" ttp:frameRateMultiplier="1000 1001">
  <head><metadata><ttm:agent xml:id="a" type="person"><ttm:name type="full">Ann</ttm:name></ttm:agent></metadata></head>
  <body begin="10s"><div begin="1s">
    <p begin="00:00:01.000" end="00:00:02.500" ttm:agent="a">Fish &amp;<br/>
       <span>chips</span>?</p>
    <p begin="00:00:03:12" dur="24f">frames</p>
    <p><span begin="5s" end="6s">one</span> <span begin="7000ms" end="8s">two</span></p>
    <p>untimed</p>
  </div></body>
</tt>
"""


def test_subtitles_are_read_without_markup() -> None:
    assert read_subtitles(SUBRIP, "srt") == [
        Cue(1000, 2500, "Hello there,\nyou"),
        Cue(63_500, 3_723_004, "1984"),
        Cue(3_724_000, 3_725_000, ""),
    ]
    assert read_subtitles(WEB_VIDEO_TEXT, "vtt") == [
        Cue(1000, 2500, "Fish & chips?", "Ann O'Neil"),
        Cue(3_723_004, 3_724_000, "Yes.\n1 < 2, no."),
    ]
    assert read_subtitles(SUBSTATION, "ass") == [Cue(1000, 2500, "Well, yes,\nand no", "Ann")]


def test_times_of_ttml_are_relative_and_count_frames() -> None:
    # 24 frames last 1001 ms at 24000/1001 frames a second
    assert read_subtitles(TTML, "ttml") == [
        Cue(12_000, 13_500, "Fish &\nchips?", "Ann"),
        Cue(14_500, 15_502, "frames"),
        Cue(16_000, 17_000, "one"),
        Cue(18_000, 19_000, "two"),
    ]


def test_numbers_belong_to_the_text_of_files_without_numbers() -> None:
    text = "00:01,000 --> 00:02,000\n\nSince\n1984\n\n00:03,000 --> 00:04,000\n2001\n"
    assert [cue.text for cue in read_subtitles(text, "srt")] == ["Since\n1984", "2001"]
    numbered = "7\n" + text.replace("1984\n\n", "1984\n8\n")
    assert [cue.text for cue in read_subtitles(numbered, "srt")] == ["Since\n1984", "2001"]


@pytest.mark.parametrize(("name", "text"), [("srt", SUBRIP), ("vtt", WEB_VIDEO_TEXT), ("ass", SUBSTATION)])
def test_times_are_those_that_ffmpeg_reads(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / f"talk.{name}"
    path.write_text(text, encoding="utf-8", newline="")
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(container.streams[0]) if packet.size]
        times = [(round(float(each.pts * each.time_base) * 1000), each.duration * each.time_base) for each in packets]
    ours = [(cue.start, cue.end - cue.start) for cue in read_subtitle_file(path) if cue.text]
    assert ours == [(start, round(float(length) * 1000)) for start, length in times][: len(ours)]


def test_encodings_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "talk.SRT"
    path.write_text("1\n00:01,000 --> 00:02,000\nÄtna\n", encoding="utf-16")
    assert [cue.text for cue in read_subtitle_file(path)] == ["Ätna"]
    path.write_text("1\n00:01,000 --> 00:02,000\nÄtna\n", encoding="latin-1")
    with pytest.raises(ParameterError, match=r"line 3 is not text in UTF-8; convert it"):
        read_subtitle_file(path)
    with pytest.raises(ParameterError, match=r"has the suffix '.docx'; subtitles are read from"):
        read_subtitle_file(tmp_path / "talk.docx")
    with pytest.raises(ParameterError, match="no subtitles in the format vtt"):
        read_subtitles(SUBSTATION, "vtt")
    with pytest.raises(ParameterError, match="not well-formed XML"):
        read_subtitles("<tt>", "ttml")
    with pytest.raises(ParameterError, match="no subtitles are read from the format 'sbv'"):
        read_subtitles("", "sbv")
    assert read_subtitles("WEBVTT\n\n", "vtt") == read_subtitles("\n", "srt") == []


DIALOGUE = "[Events]\nFormat: Start, End, Text\nDialogue: {}\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:xx,000 --> 00:00:04,000\nb\n", r"line 6: \W00:00:xx"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:03,000 -> 00:00:04,000\nb\n", "line 6: "),
        ("srt", "1\n-00:00:01,000 --> 00:00:02,000\na\n", "line 2: "),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\nsoon --> later\nb\n", "line 6: 'soon --> later' has no"),
        ("srt", "1\n00:00:01,000 --> 00:00:6x,000\na\n", "line 2: "),
        ("srt", "1\n00:00:03,000 --> 00:00:02,000\na\n", "line 2: the subtitle ends before it starts"),
        ("vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n00:03.000 --> 00:0y.000\nb\n", "line 6: "),
        ("vtt", "WEBVTT\n\nid\nsoon --> later\na\n", "line 4: "),
        ("vtt", "WEBVTT\n\n00:03.000 --> 00:02.000\na\n", "line 3: the subtitle ends before"),
        ("ass", DIALOGUE.format("0:00:0x.00,0:00:02.00,a"), "line 3: the start '0:00:0x.00' is not a time"),
        ("ass", DIALOGUE.format("0:00:03.00,0:00:02.00,a"), "line 3: the subtitle ends before"),
        ("ttml", '<tt><body><p begin="x" end="2s">a</p></body></tt>', "line 1: 'x' is not a time of TTML"),
        ("ttml", '<tt>\n<body>\n<p begin="1s"\n end="2 s">a</p></body></tt>', "line 3: '2 s' is not a time of TTML"),
        (
            "ttml",
            '<?xml version="1.0"\n?>\n<tt><body><p begin="3s" end="4s">b</p>\n<p begin="3s" end="2s">a</p></body></tt>',
            "line 4: the subtitle 'a' ends before it starts",
        ),
        ("ttml", '<tt>\n<body timeContainer="seq"/></tt>', 'line 2: timeContainer="seq" is not supported'),
        ("ttml", '\n<tt frameRate="0"><body/></tt>', "line 2: frameRate is '0', not a positive number"),
        ("ttml", "<tt>\n<body></tt>", "mismatched tag: line 2"),
    ],
)
def test_bad_times_are_errors_that_name_their_line(name: str, text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_subtitles(text, name)


def test_arrows_may_be_text() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000 X1:40\nFile 1 --> Open\n1 -> two\n"
    assert read_subtitles(text, "srt") == [Cue(1000, 2000, "File 1 --> Open\n1 -> two")]
    assert read_subtitles("WEBVTT\n\nNOTE 1 --> 2\n", "vtt") == []


@pytest.mark.parametrize("name", ["srt", "vtt", "ass", "ttml"])
def test_our_empty_files_are_empty_transcripts(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"silence.{name}"
    Transcript.from_dict({"segments": []}).write(file)
    assert Transcript.read(file).segments == []
