"""VoiceEmbedder: calls a plugin that embeds voices, and checks its vectors. Called by `transept.speech`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from transept.errors import PluginError, shown
from transept.registry.plugins import PluginReport, Plugins
from transept.registry.single_hooks import SPEAKERS_ADVICE, errors_of, only_plugin
from transept.registry.voice_model import VoiceModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class VoiceEmbedder:
    """The voice embedder of a plugin."""

    plugin: PluginReport

    @cached_property
    def model(self) -> VoiceModel:
        """The plugin's declaration. Raises PluginError for any error of the plugin."""
        assert self.plugin.voice_model is not None
        with errors_of(self.plugin, "the voice model"):
            for declared in self.plugin.voice_model():
                if isinstance(declared, VoiceModel):
                    return declared
                raise PluginError(f"voice_model returned {shown(declared)}, not a VoiceModel")
            raise PluginError("voice_model returned None, not a VoiceModel")

    def __call__(self, waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
        """Return the embedding of a voice, float32 [n], of length 1. Arguments: see the hook `embed_voice`.

        Raises PluginError for any error of the plugin, and for anything but a vector of finite numbers.
        """
        import numpy as np

        assert self.plugin.embed_voice is not None
        with errors_of(self.plugin, "the voice embedder"):
            returned = self.plugin.embed_voice(waveform=waveform, sample_rate=sample_rate)
            if not returned:
                raise PluginError("embed_voice returned None, not a vector")
            vector = np.asarray(returned[0], np.float32)
            length = float(np.linalg.norm(vector))
            if vector.ndim != 1 or not 0 < length < math.inf:
                raise PluginError(f"an embedding is a vector of finite numbers, not all 0, unlike {shown(returned[0])}")
            return vector / np.float32(length)


def find_voice_embedder(plugins: Plugins, param: str) -> VoiceEmbedder:
    """Return the installed voice embedder. param: the option that needs it.

    Raises ParameterError without one, or for several.
    """
    return VoiceEmbedder(
        only_plugin(
            plugins,
            "embed_voice",
            "recognize voices",
            f"{{{param}}} needs a plugin that recognizes voices",
            SPEAKERS_ADVICE,
            param=param,
        )
    )
