"""A progress bar in minutes of audio, with the speed in times real time."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


class AudioProgress(tqdm):  # type: ignore[type-arg]
    """A bar on stderr that counts seconds of audio, of all recordings that have been opened.

    show: None shows it if stderr is a terminal.
    """

    FORMAT = "{percentage:3.0f}%|{bar}| {minutes:.1f}/{total_minutes:.1f} min, {speed:.1f} times real time [{elapsed}]"

    def __init__(self, show: bool | None) -> None:
        super().__init__(total=0, bar_format=self.FORMAT, disable=None if show is None else not show, file=sys.stderr)
        self.done: dict[int, float] = {}  # seconds, by recording

    @property
    def format_dict(self) -> dict[str, Any]:
        """Values for the placeholders of the bar's format."""
        known = super().format_dict
        seconds, total = known["n"] or 0.0, known["total"] or 0.0
        speed = seconds / known["elapsed"] if known["elapsed"] else 0.0
        return {**known, "minutes": seconds / 60, "total_minutes": total / 60, "speed": speed}

    def opened(self, duration: float) -> None:
        """Add a recording of `duration` seconds to the total."""
        if not self.disable:
            self.total = (self.total or 0.0) + duration
            self.refresh()

    def reached(self, index: int, seconds: float) -> None:
        """Record a recording's progress; seconds from its start."""
        self.update(max(0.0, seconds - self.done.get(index, 0.0)))
        self.done[index] = max(seconds, self.done.get(index, 0.0))
