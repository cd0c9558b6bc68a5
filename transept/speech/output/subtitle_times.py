"""The end of a subtitle: it lingers, keeps the gap to the next one, and lasts as long as its rules ask.

`styled_layout` calls it. Times are whole milliseconds, so that a layout and its file agree on each rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from transept.speech.output.styles import SubtitleRules
from transept.speech.word_breaks import SHORTEST

SHORTEST_MS = round(SHORTEST * 1000)
NEVER = 1 << 60  # milliseconds


def at_least(seconds: float) -> int:
    """Return the milliseconds of a minimum, rounded up."""
    return math.ceil(seconds * 1000 - 1e-6)


@dataclass(frozen=True)
class SubtitleTimes:
    """The times of rules, in milliseconds. See SubtitleRules for their meanings."""

    shortest: int
    longest: int
    gap: int
    close: int
    linger: int

    @classmethod
    def of(cls, rules: SubtitleRules) -> SubtitleTimes:
        """Return the times of rules."""
        longest = NEVER if rules.max_duration is None else math.floor(rules.max_duration * 1000)
        gap = at_least(rules.min_gap)
        close = max(gap, at_least(rules.close_gaps))
        return cls(at_least(rules.min_duration), longest, gap, close, at_least(rules.linger))

    def end(self, start: int, spoken: int, needed: int, following: int) -> int:
        """Return the end of a subtitle: as late as its words need and the next subtitle allows.

        spoken: end of its last word. needed: its shortest duration. following: start of the next subtitle.
        """
        end, latest = max(spoken + self.linger, start + needed), following - self.gap
        if end > following - self.close:
            end = latest  # close the gap, which would flicker
        if end > start + self.longest:
            end = start + self.longest
            apart = following - self.close
            if spoken <= apart < end < latest and apart >= start + needed:
                end = apart  # max_duration left a gap that is too short
        return max(end, start + SHORTEST_MS)
