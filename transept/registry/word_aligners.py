"""WordAligner: calls a plugin that times known words, and checks its times. Called by `transept.speech`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.errors import PluginError, shown
from transept.registry.plugins import PluginReport, Plugins
from transept.registry.single_hooks import errors_of, is_time, only_plugin

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class WordAligner:
    """The word aligner of a plugin."""

    plugin: PluginReport

    def __call__(
        self, waveform: npt.NDArray[np.float32], sample_rate: int, words: Sequence[str], language: str
    ) -> list[tuple[float, float]] | None:
        """Return the start and the end of each word, or None if the plugin cannot tell. Arguments: see `align_words`.

        Raises PluginError for any error of the plugin, and for invalid times.
        """
        assert self.plugin.align_words is not None
        with errors_of(self.plugin, "the word aligner"):
            returned = self.plugin.align_words(
                waveform=waveform, sample_rate=sample_rate, words=list(words), language=language
            )
            if not returned:  # pluggy drops None
                return None
            times = [_checked(each) for each in returned[0]]
            if len(times) != len(words):
                raise PluginError(f"it returned {len(times)} times for {len(words)} words; it must return one each")
            return times


def find_word_aligner(plugins: Plugins) -> WordAligner | None:
    """Return the installed word aligner, or None. Raises ParameterError for several."""
    if not any(report.align_words for report in plugins.reports):
        return None
    return WordAligner(only_plugin(plugins, "align_words", "align words", needs="", advice="", param="plugins"))


def _checked(span: Any) -> tuple[float, float]:
    """Return a valid pair of times. Raises PluginError for anything else."""
    try:
        start, end = span
    except (TypeError, ValueError):
        raise PluginError(f"the time of a word is (start, end), not {shown(span)}") from None
    for time in (start, end):
        if not is_time(time):
            raise PluginError(f"a word starts and ends at numbers of seconds, not {shown(span)}")
    return float(start), float(end)
