"""Diarizer: calls a plugin that tells speakers apart, and checks its turns. Called by `transept.speech`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transept.errors import PluginError, shown
from transept.registry.plugins import PluginReport, Plugins
from transept.registry.single_hooks import SPEAKERS_ADVICE, errors_of, is_time, only_plugin

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Turn(NamedTuple):
    """A stretch of one speaker's speech. start, end: seconds from the beginning of the recording."""

    start: float
    end: float
    speaker: str


@dataclass(frozen=True)
class Diarizer:
    """The diarizer of a plugin."""

    plugin: PluginReport

    def __call__(
        self,
        waveform: npt.NDArray[np.float32],
        sample_rate: int,
        min_speakers: int | None = None,
        max_speakers: int | None = None,
    ) -> list[Turn]:
        """Return the turns of a recording, in order of time. Arguments: see the hook `diarize`.

        Raises PluginError for any error of the plugin, for invalid turns, and for more than `max_speakers` speakers.
        """
        assert self.plugin.diarize is not None
        with errors_of(self.plugin, "the diarizer"):
            returned = self.plugin.diarize(
                waveform=waveform, sample_rate=sample_rate, min_speakers=min_speakers, max_speakers=max_speakers
            )
            turns = sorted(_checked(turn) for turns in returned for turn in turns)  # of one hook; pluggy drops None
            found = len({turn.speaker for turn in turns})
            if max_speakers is not None and found > max_speakers:
                raise PluginError(f"it found {found} speakers, and max_speakers is {max_speakers}")
            return turns

    def ignored(self, **arguments: Any) -> str | None:
        """Return the first argument with a value that the plugin's function does not take; None without one."""
        assert self.plugin.diarize is not None
        taken = self.plugin.diarize.arguments
        return next((name for name, value in arguments.items() if value is not None and name not in taken), None)


def find_diarizer(plugins: Plugins) -> Diarizer:
    """Return the installed diarizer. Raises ParameterError without one, or for several."""
    return Diarizer(
        only_plugin(
            plugins,
            "diarize",
            "tell speakers apart",
            "{diarize} needs a plugin that tells speakers apart",
            SPEAKERS_ADVICE,
            param="diarize",
            value=True,
        )
    )


def _checked(turn: Any) -> Turn:
    """Return a valid turn. Raises PluginError for anything else."""
    try:
        start, end, speaker = turn
    except (TypeError, ValueError):
        raise PluginError(f"a turn is (start, end, speaker), not {shown(turn)}") from None
    for time in (start, end):
        if not is_time(time):
            raise PluginError(f"a turn starts and ends at numbers of seconds, not {shown(turn)}")
    if not 0 <= start <= end:
        raise PluginError(f"a turn ends after its start, and starts at 0 at the earliest, unlike {shown(turn)}")
    if not (isinstance(speaker, str) and speaker.strip() and speaker.isprintable()):
        raise PluginError(f"a turn's speaker is a name on one line, not {shown(turn)}")
    return Turn(float(start), float(end), speaker.strip().replace("-->", "->"))  # which stands between times in files
