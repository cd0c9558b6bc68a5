r"""Karaoke: subtitles in Advanced SubStation Alpha (.ass), in which each word changes its colour as it is said.

Called by `transept.speech.output.writers`. Players show them through libass; the format is its and Aegisub's: a
``\k`` before a syllable holds how long it lasts, in hundredths of a second.
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
WORD_JOINER = "\u2060"  # shown as nothing; what stands after it begins no command of the format


def karaoke(segments: Sequence[Segment], layout: SubtitleLayout) -> str:
    """The file's text. Where there are no times of words, each segment is shown as one.

    Raises ParameterError when the layout asks for something and there are no words.
    """
    if not has_words(segments):
        cues = make_cues(segments, layout)
        return HEAD + "".join(
            _line(round(cue.start / 10), round(cue.end / 10), cue.speaker, _escaped(cue.text)) for cue in cues
        )
    subtitles = whole_subtitles(segments, layout, named=True)
    return HEAD + "".join(
        _line(_hundredths(words[0].start), _hundredths(words[-1].end), speaker, _syllables(words))
        for words, speaker in subtitles
    )


def _syllables(words: Sequence[Word]) -> str:
    """A subtitle's words, each with its time; pauses between them are syllables without text."""
    done = _hundredths(words[0].start)
    parts = []
    for word in words:
        start, end = max(done, _hundredths(word.start)), _hundredths(word.end)
        if start > done:
            parts.append(f"{{\\k{start - done}}}")
        done = max(start, end)
        parts.append(f"{{\\k{done - start}}}{_escaped(word.word)}")
    return "".join(parts)


def _line(start: int, end: int, speaker: str | None, text: str) -> str:
    """speaker: stands in the field that editors show, and before the text, as players show that alone."""
    name, read = ("", "") if speaker is None else (speaker.replace(",", ";"), _escaped(f"{speaker}: "))
    return f"Dialogue: 0,{_clock(start)},{_clock(end)},Default,{name},0,0,0,,{read}{text}\n"


def _escaped(text: str) -> str:
    """The text as it is shown: its braces open no command, its backslashes neither, and its lines break."""
    return text.replace("\\", f"\\{WORD_JOINER}").replace("{", "\\{").replace("}", "\\}").replace("\n", "\\N")


def _hundredths(seconds: float) -> int:
    return round(seconds * 100.0)


def _clock(hundredths: int) -> str:
    """``H:MM:SS.cc``."""
    seconds, hundredths = divmod(hundredths, 100)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}.{hundredths:02d}"
