"""VoiceEmbedder: calls a plugin that embeds voices, and checks its vectors. Called by `transept.speech`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from transept.errors import PluginError, shown
from transept.registry.plugins import DISABLE_VARIABLE, PluginReport, Plugins
from transept.registry.single_hooks import errors_of, only_plugin

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class VoiceModel:
    """The declaration of a plugin's hook `voice_model`.

    name: of the model, with its version. Files of voices carry it: only embeddings of one model are compared.
    threshold: cosine similarity, from -1 to 1, above which two embeddings are of one voice.
    min_seconds: length of speech below which an embedding is unreliable; a shorter voice is not compared.
    """

    name: str
    threshold: float
    min_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip() and self.name.isprintable()):
            raise PluginError(f"the name of a VoiceModel is a text on one line, not {shown(self.name)}")
        if not -1 <= self.threshold <= 1:
            raise PluginError(f"the threshold of a VoiceModel is from -1 to 1, not {shown(self.threshold)}")
        if not 0 <= self.min_seconds < math.inf:
            raise PluginError(f"the min_seconds of a VoiceModel are 0 or more, not {shown(self.min_seconds)}")


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
            f"Transept's own plugin, speakers, may be left out by {DISABLE_VARIABLE}",
            param=param,
        )
    )
