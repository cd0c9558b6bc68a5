"""VoiceModel: a plugin's declaration of its embeddings of voices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from transept.errors import PluginError, shown


@dataclass(frozen=True)
class VoiceModel:
    """The declaration of a plugin's hook `voice_model`.

    name: of the model, with its version. Files of voices carry it: only embeddings of one model are compared.
    threshold: lowest cosine similarity, from -1 to 1, of two embeddings of one voice.
    min_seconds: length of speech below which an embedding is unreliable; a shorter voice is not compared.
    size: length of an embedding; None: unknown. Known voices of another length are refused before any work.
    """

    name: str
    threshold: float
    min_seconds: float = 1.0
    size: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip() and self.name.isprintable()):
            raise PluginError(f"the name of a VoiceModel is a text on one line, not {shown(self.name)}")
        if not -1 <= self.threshold <= 1:
            raise PluginError(f"the threshold of a VoiceModel is from -1 to 1, not {shown(self.threshold)}")
        if not 0 <= self.min_seconds < math.inf:
            raise PluginError(f"the min_seconds of a VoiceModel are 0 or more, not {shown(self.min_seconds)}")
        if self.size is not None and not (isinstance(self.size, int) and self.size >= 1):
            raise PluginError(f"the size of a VoiceModel is 1 or more, or None, not {shown(self.size)}")
