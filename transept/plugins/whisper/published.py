"""Short names of Whisper's checkpoints, as in openai-whisper and faster-whisper, and their repositories.

The repositories are faster-whisper's, in CTranslate2's format in float16. OpenAI's have the smaller models in float32,
which is twice the size. The format loads without importing transformers, and users of faster-whisper have it on disk.
Names that both projects have mean the same model in both.
"""

from __future__ import annotations

from transept.authoring import CheckpointView, PublishedCheckpoint

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


def live_policy(view: CheckpointView) -> str:
    """Return the commit policy of live streams: agreement if the decoder is far smaller than the encoder, as in turbo.

    With tiny.en and base, attention has no more word errors than agreement (docs/live.md). turbo was not measured.
    """
    return "agreement" if view.config.decoder_layers * 2 < view.config.encoder_layers else "attention"
