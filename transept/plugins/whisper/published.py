"""The names by which people ask for Whisper: those of openai-whisper and faster-whisper, and what they stand for.

The repositories are faster-whisper's: CTranslate2's format in float16. That is half of what openai's hold for the
smaller models, which are in float32 there, loads without importing transformers, and is on the disk of whoever has used
faster-whisper. Where openai-whisper and faster-whisper both have a name, both mean the same model by it.
"""

from __future__ import annotations

from transept.authoring import PublishedCheckpoint

_LARGE_V3 = PublishedCheckpoint("Systran/faster-whisper-large-v3", 3087)
_TURBO = PublishedCheckpoint("mobiuslabsgmbh/faster-whisper-large-v3-turbo", 1618)

PUBLISHED = {
    "tiny.en": PublishedCheckpoint("Systran/faster-whisper-tiny.en", 76),
    "tiny": PublishedCheckpoint("Systran/faster-whisper-tiny", 76),
    "base.en": PublishedCheckpoint("Systran/faster-whisper-base.en", 145),
    "base": PublishedCheckpoint("Systran/faster-whisper-base", 145),
    "small.en": PublishedCheckpoint("Systran/faster-whisper-small.en", 484),
    "small": PublishedCheckpoint("Systran/faster-whisper-small", 484),
    "medium.en": PublishedCheckpoint("Systran/faster-whisper-medium.en", 1528),
    "medium": PublishedCheckpoint("Systran/faster-whisper-medium", 1528),
    "large-v1": PublishedCheckpoint("Systran/faster-whisper-large-v1", 3087),
    "large-v2": PublishedCheckpoint("Systran/faster-whisper-large-v2", 3087),
    "large-v3": _LARGE_V3,
    "large": _LARGE_V3,
    "large-v3-turbo": _TURBO,
    "turbo": _TURBO,
    "distil-small.en": PublishedCheckpoint("Systran/faster-distil-whisper-small.en", 332),
    "distil-medium.en": PublishedCheckpoint("Systran/faster-distil-whisper-medium.en", 789),
    "distil-large-v2": PublishedCheckpoint("Systran/faster-distil-whisper-large-v2", 1512),
    "distil-large-v3": PublishedCheckpoint("Systran/faster-distil-whisper-large-v3", 1513),
    "distil-large-v3.5": PublishedCheckpoint("distil-whisper/distil-large-v3.5-ct2", 1513),
}
