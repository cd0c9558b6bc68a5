"""Which vectors and declarations of a voice embedder are accepted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from transept.authoring import VoiceModel
from transept.errors import ParameterError, PluginError
from transept.registry.plugins import Hook, PluginReport, Plugins
from transept.registry.voice_embedders import VoiceEmbedder, find_voice_embedder

WAVEFORM = np.zeros(16_000, np.float32)


def embedder(vector: Any = None, model: Any = None) -> VoiceEmbedder:
    """Of a plugin whose hooks return these, as pluggy hands them on: in a list, without None."""
    hooks = {
        name: Hook(lambda value=value, **_: [] if value is None else [value], ())
        for name, value in (("embed_voice", vector), ("voice_model", model))
    }
    return VoiceEmbedder(PluginReport("told", "transept-told", "1.2", "ok", **hooks))


def test_embeddings_have_length_one() -> None:
    vector = embedder([3, 4])(WAVEFORM, 16_000)
    np.testing.assert_array_equal(vector, np.array([0.6, 0.8], np.float32))
    assert vector.dtype == np.float32


@pytest.mark.parametrize("vector", [None, 5, [], [0.0, 0.0], [math.nan, 1.0], [[1.0]], "text"])
def test_other_results_name_the_plugin(vector: Any) -> None:
    with pytest.raises(PluginError, match=r"the voice embedder of told \(transept-told 1.2\)"):
        embedder(vector)(WAVEFORM, 16_000)


def test_the_declaration_is_checked() -> None:
    model = VoiceModel("m-1", 0.7)
    assert embedder(model=model).model is model
    for other in (None, "m-1"):
        with pytest.raises(PluginError, match=r"the voice model of told .* not a VoiceModel"):
            _ = embedder(model=other).model
    for wrong in ({"size": 0}, {"threshold": 2.0}, {"threshold": math.nan}, {"name": "a\nb"}, {"min_seconds": -1}):
        with pytest.raises(PluginError, match=f"the {next(iter(wrong))} of a VoiceModel"):
            VoiceModel(**{"name": "m-1", "threshold": 0.5, **wrong})


def test_without_one_the_error_says_what_to_install() -> None:
    with pytest.raises(ParameterError, match=r"voices needs a plugin that recognizes voices, and none is installed"):
        find_voice_embedder(Plugins(()), "voices")
