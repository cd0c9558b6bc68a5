"""SubtitleRules: limits that subtitles keep, and the publishers' limits by style and language.

Sources:
netflix: Netflix Timed Text Style Guide. General Requirements: "Duration" (5/6 to 7 seconds), "Line Treatment" (2
    lines). Subtitle Timing Guidelines, section 1: a gap of 2 frames at least, gaps of less than half a second closed to
    it, and out-times up to half a second after the speech. Languages' own guides, sections "Character Limitation" and
    "Reading Speed Limits", for programmes for adults.
bbc: BBC Subtitle Guidelines: 3.1 "Line length" (37 characters in teletext), 3.3 "Avoid 3 lines or more", 4.1 "Target
    minimum timing" (0.3 seconds a word, which is 200 words a minute), 4.5 "Gaps" (none, or at least one second), 5.2
    "Match subtitle to pace of speaking" (out-times up to 1.5 seconds after the speech).
youtube: YouTube's help has no numbers; these are the captioning trade's usual ones, without a gap, since its player
    shows adjacent captions without flicker.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from dataclasses import dataclass

from transept.speech.output.function_words import ENGLISH

FRAME = 1 / 24  # seconds
WIDE = ("ja", "zh", "yue", "ko")  # languages of full-width characters, where other characters count as half
UNSPACED = ("ja", "zh", "yue", "th")  # languages without blanks between words
WIDE_CLASSES = ("W", "F")  # of Unicode's East Asian width


@dataclass(frozen=True)
class SubtitleRules:
    """Rules of subtitles in one language. Durations are in seconds; None: no limit.

    max_line_width: in characters, in WIDE languages full-width ones. max_words_per_line: of a subtitle. min_gap:
    between two subtitles. close_gaps: shorter gaps are closed to min_gap. linger: time that a subtitle stays after its
    last word, if the next one starts late enough.
    """

    language: str = ""
    max_line_width: float | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None
    max_chars_per_second: float | None = None
    max_words_per_minute: float | None = None
    min_duration: float = 0.0
    max_duration: float | None = None
    min_gap: float = 0.0
    close_gaps: float = 0.0
    linger: float = 0.0

    def width(self, text: str) -> float:
        """Return the width of a text in characters."""
        if self.language not in WIDE:
            return len(text)
        return sum(1.0 if unicodedata.east_asian_width(each) in WIDE_CLASSES else 0.5 for each in text)

    def characters(self, text: str) -> float:
        """Return the number of characters to read in a subtitle. A line's end counts as the blank that it replaces."""
        return self.width(text.replace("\n", "" if self.language in UNSPACED else " "))

    def needed(self, characters: float, words: int) -> float:
        """Return the shortest duration of a subtitle with so many characters and words, in seconds."""
        read = 0.0 if self.max_chars_per_second is None else characters / self.max_chars_per_second
        said = 0.0 if self.max_words_per_minute is None else words * 60 / self.max_words_per_minute
        return max(self.min_duration, read, said)


PLAIN = SubtitleRules()
NETFLIX = SubtitleRules(
    max_line_width=42,
    max_line_count=2,
    max_chars_per_second=17,
    min_duration=5 / 6,
    max_duration=7,
    min_gap=2 * FRAME,
    close_gaps=0.5,
    linger=0.5,
)
STYLES = {
    "plain": PLAIN,
    "netflix": NETFLIX,
    "bbc": SubtitleRules(max_line_width=37, max_line_count=2, max_words_per_minute=200, close_gaps=1.0, linger=1.5),
    "youtube": SubtitleRules(
        max_line_width=42, max_line_count=2, max_chars_per_second=20, min_duration=1, max_duration=7, linger=0.5
    ),
}
BY_LANGUAGE = {  # characters per line, and per second
    ("netflix", ENGLISH): (42, 20),
    ("netflix", "ja"): (13, 4),
    ("netflix", "zh"): (16, 9),
    ("netflix", "yue"): (16, 9),
    ("netflix", "ko"): (16, 12),
    ("netflix", "th"): (35, 17),
}
WIDE_LINE, WIDE_SPEED = 16, 9  # of the other styles, which have no rules for these languages


def rules_of_style(style: str, language: str) -> SubtitleRules:
    """Return the rules of a style in a language: a code; "": any."""
    rules = dataclasses.replace(STYLES[style], language=language)
    width, speed = BY_LANGUAGE.get((style, language), (rules.max_line_width, rules.max_chars_per_second))
    if style not in ("plain", "netflix") and language in WIDE:
        return dataclasses.replace(
            rules, max_line_width=WIDE_LINE, max_chars_per_second=WIDE_SPEED, max_words_per_minute=None
        )
    return dataclasses.replace(rules, max_line_width=width, max_chars_per_second=speed)
