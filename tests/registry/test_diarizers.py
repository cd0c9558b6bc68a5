"""Which diarizer is taken, and what is refused of what one says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transept.errors import MediaError, ParameterError, PluginError
from transept.registry.diarizers import Diarizer, Turn, find_diarizer
from transept.registry.plugins import Hook, PluginReport, Plugins

WAVEFORM = np.zeros(16_000, np.float32)


def plugin(name: str, diarize: Callable[..., Any] | None = None, error: str | None = None) -> PluginReport:
    status = "failed" if error else "ok"
    hook = diarize and Hook(diarize, ("waveform", "sample_rate"))
    return PluginReport(name, f"transept-{name}", "1.2", status, error=error, diarize=hook)


def says(turns: Any) -> Diarizer:
    """Of a plugin whose hook returned this, in the list in which pluggy hands it on."""
    return Diarizer(plugin("told", lambda **_: [] if turns is None else [turns]))


def test_the_one_that_is_installed_is_taken() -> None:
    told = plugin("told", lambda **_: [[]])
    assert find_diarizer(Plugins((plugin("models"), told))).plugin is told
    built_in = dataclasses.replace(told, name="speakers", distribution="transept-speakers")
    assert find_diarizer(Plugins((built_in, told))).plugin is told
    assert find_diarizer(Plugins((plugin("models"), built_in))).plugin is built_in


def test_none_and_two_are_told() -> None:
    with pytest.raises(ParameterError, match=r"none is installed\. `pip install .* TRANSEPT_DISABLE_PLUGINS disables"):
        find_diarizer(Plugins((plugin("models"),)))
    with pytest.raises(ParameterError, match=r"none is installed\. broken failed to load: ImportError: no weights\."):
        find_diarizer(Plugins((plugin("broken", error="ImportError: no weights"),)))
    two = (plugin("a", lambda **_: [[]]), plugin("b", lambda **_: [[]]))
    with pytest.raises(
        ParameterError, match=r"2 plugins .* a \(transept-a\) and b .* TRANSEPT_DISABLE_PLUGINS=transept-b"
    ):
        find_diarizer(Plugins(two))


def test_turns_come_in_order_of_time_and_as_plain_numbers() -> None:
    given = np.array([[1.5, 2.0]], np.float32)
    turns = says([(given[0, 0], given[0, 1], " Anna "), [0, 1, "B --> C"]])(WAVEFORM, 16_000)
    assert turns == [Turn(0.0, 1.0, "B -> C"), Turn(1.5, 2.0, "Anna")]
    assert {type(each) for turn in turns for each in turn[:2]} == {float}
    assert says(None)(WAVEFORM, 16_000) == []


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        (5, r"TypeError: 'int' object is not iterable"),
        ([5], "a turn is .start, end, speaker., not 5"),
        ([(0.0, 1.0)], "a turn is .start, end, speaker."),
        ([("0", 1.0, "a")], "numbers of seconds"),
        ([(0.0, math.nan, "a")], "numbers of seconds"),
        ([(True, 1.0, "a")], "numbers of seconds"),
        ([(2.0, 1.0, "a")], "ends after its start"),
        ([(-0.1, 1.0, "a")], "starts at 0 at the earliest"),
        ([(0.0, 1.0, 3)], "a name on one line"),
        ([(0.0, 1.0, " ")], "a name on one line"),
        ([(0.0, 1.0, "a\nb")], "a name on one line"),
        ([(0.0, 1.0, "\x1b[2J")], "a name on one line"),
    ],
)
def test_what_is_no_turn_names_the_plugin(turns: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message) as raised:
        says(turns)(WAVEFORM, 16_000)
    assert "the diarizer of told (transept-told 1.2)" in str(raised.value)


@pytest.mark.parametrize("error", [RuntimeError("no room"), MediaError("too noisy")])
def test_what_a_diarizer_raises_names_the_plugin(error: Exception) -> None:
    def fails(**_: Any) -> Any:
        raise error

    with pytest.raises(PluginError, match=f"diarizer of told .*{error}") as raised:
        Diarizer(plugin("told", fails))(WAVEFORM, 16_000)
    assert raised.value.__cause__ is error


def test_more_speakers_than_asked_for_name_the_plugin() -> None:
    two = says([(0.0, 1.0, "a"), (1.0, 2.0, "b")])
    assert len(two(WAVEFORM, 16_000, max_speakers=2)) == 2
    with pytest.raises(PluginError, match=r"told \(transept-told 1.2\): it found 2 speakers, and max_speakers is 1"):
        two(WAVEFORM, 16_000, max_speakers=1)


def test_arguments_that_the_plugin_lacks_are_known() -> None:
    assert says([]).ignored(min_speakers=None, max_speakers=None) is None
    assert says([]).ignored(min_speakers=None, max_speakers=2) == "max_speakers"
