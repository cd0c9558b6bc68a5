r"""Karaoke: subtitles in Advanced SubStation Alpha (.ass), in which each word changes colour when it is spoken.

`transept.speech.output.writers` calls it. Players show the files with libass. In its and Aegisub's format, ``\k``
before a syllable gives the duration of the syllable in hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.speech.output.subtitles import SubtitleLayout, has_words, make_cues, whole_subtitles
from transept.speech.segments import Segment, Word

HEAD = """[Script Info]
ScriptType: v4.00+
PlayResX: 1920
PlayResY: 1080
ScaledBorderAndShadow: yes

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,64,&H0000FFFF,&H00FFFFFF,&H00000000,&H80000000,0,0,0,0,100,100,0,0,1,3,1,2,60,60,50,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
WORD_JOINER = "\u2060"  # invisible; the text after it does not begin a command of the format


def karaoke(segments: Sequence[Segment], layout: SubtitleLayout, language: str) -> str:
    """Return the file's text. If no segment has words, each segment is one subtitle. language: see `make_cues`.

    Raises ParameterError if the layout needs word times and the segments have none.
    """
    if not has_words(segments):
        cues = make_cues(segments, layout, language)
        return HEAD + "".join(
            _line(round(cue.start / 10), round(cue.end / 10), cue.speaker, _escaped(cue.text)) for cue in cues
        )
    subtitles = whole_subtitles(segments, layout, language, named=True)
    return HEAD + "".join(
        _line(
            round(each.start / 10), round(each.end / 10), each.speaker, _syllables(each.words), read=not layout.styled
        )
        for each in subtitles
    )


def _syllables(words: Sequence[Word]) -> str:
    """Return a subtitle's words, each with its duration; pauses between them are syllables without text."""
    done = _hundredths(words[0].start)
    parts = []
    for word in words:
        start, end = max(done, _hundredths(word.start)), _hundredths(word.end)
        if start > done:
            parts.append(f"{{\\k{start - done}}}")
        done = max(start, end)
        parts.append(f"{{\\k{done - start}}}{_escaped(word.word)}")
    return "".join(parts)


def _line(start: int, end: int, speaker: str | None, text: str, *, read: bool = True) -> str:
    """Return a line of the file. speaker: in the field for editors; if `read`, also before the text, for players."""
    name = "" if speaker is None else speaker.replace(",", ";")
    said = "" if speaker is None or not read else _escaped(f"{speaker}: ")
    return f"Dialogue: 0,{_clock(start)},{_clock(end)},Default,{name},0,0,0,,{said}{text}\n"


def _escaped(text: str) -> str:
    """Escape a text: braces and backslashes are literal, and line feeds break the line."""
    return text.replace("\\", f"\\{WORD_JOINER}").replace("{", "\\{").replace("}", "\\}").replace("\n", "\\N")


def _hundredths(seconds: float) -> int:
    return round(seconds * 100.0)


def _clock(hundredths: int) -> str:
    seconds, hundredths = divmod(hundredths, 100)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}.{hundredths:02d}"
