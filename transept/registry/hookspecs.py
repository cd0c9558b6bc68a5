"""The pluggy hook specifications: what Transept asks of a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

from transept.registry.spec import ModelSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PROJECT_NAME = "transept"  # pluggy's project name
ENTRY_POINT_GROUP = "transept.plugins"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Mark a hook, in the module that a plugin's entry point names: `register_models`, `diarize`, or both.

``register_models() -> list[ModelSpec]``: the model families of the plugin. Called once, when plugins are discovered;
keep heavy imports out of it.

``diarize(waveform, sample_rate) -> list[tuple[float, float, str]]``: the turns of a recording, as start and end in
seconds and a speaker's name on one line. waveform: float32 [samples], mono, read-only. sample_rate: the speech model's,
in Hz. Called for each recording with speaker labels, in another thread than the engine's, and for several recordings
concurrently.

`transept plugins check` reports hooks with another name, return values that are not a list of ModelSpec, and
architectures that are declared twice for the same ``config.json``.
"""


@hookspec
def register_models() -> list[ModelSpec]:  # type: ignore[empty-body]
    """The model families that this plugin runs. Called once; keep heavy imports out of it."""


@hookspec
def diarize(  # type: ignore[empty-body]
    waveform: npt.NDArray[np.float32], sample_rate: int
) -> Sequence[tuple[float, float, str]]:
    """Who speaks when in a recording: its turns, (start, end, speaker), in any order; turns may overlap.

    waveform: float32 [num_samples], mono, of any length, to be left as it is. sample_rate: of it, in Hz, the speech
    model's. start, end: seconds. speaker: a name on one line, such as ``"speaker 1"``; the same voice has the same one.
    Called for each recording, in threads beside the engine, and for several recordings at once.
    """
