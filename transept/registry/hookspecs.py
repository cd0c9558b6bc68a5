"""The pluggy hook specifications: the functions that a plugin may define."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pluggy

from transept.registry.spec import ModelSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from transept.registry.voice_model import VoiceModel

PROJECT_NAME = "transept"  # pluggy's project name
ENTRY_POINT_GROUP = "transept.plugins"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Mark a hook, in the module that a plugin's entry point names. A plugin has one hook or several.

``register_models() -> list[ModelSpec]``: the model families of the plugin. Called once, when plugins are discovered;
keep heavy imports out of it.

``diarize(waveform, sample_rate, min_speakers, max_speakers) -> list[tuple[float, float, str]]``: the turns of a
recording, as start and end in seconds and a speaker's name on one line. Turns of different speakers may overlap.
waveform: float32 [samples], mono, read-only. sample_rate: the speech model's, in Hz. min_speakers, max_speakers: bounds
of the number of speakers, at least 1, or None; both are equal if the number is known. A diarizer may leave these two
out; then asking for a number of speakers is an error. Called for each recording with speaker labels, in another thread
than the engine's, and for several recordings concurrently.

``embed_voice(waveform, sample_rate) -> vector``: the embedding of one voice, float32 [n]. Embeddings are compared by
their cosine similarity. waveform: float32 [samples], mono, read-only, speech of one voice only; its pauses are
short. Called for each voice of a recording that is compared with known voices, in the same threads as
``diarize``. It comes with the hook ``voice_model``.

``voice_model() -> VoiceModel``: the name of the model behind ``embed_voice``, and the similarity of one voice's
embeddings.

``find_names(text, language) -> list[tuple[int, int]]``: the start and the end of each name of a person in a text.
language: its code, or an empty text if it is unknown. Called for the text of each segment whose names are
redacted, in another thread than the engine's, and for several recordings concurrently.

``align_words(waveform, sample_rate, words, language) -> list[tuple[float, float]] | None``: the start and the end of
each word in a stretch of speech, or None if the plugin cannot tell. waveform: float32 [samples], mono, read-only.
sample_rate: in Hz. words: as written, with punctuation, in order. language: code. Called for each segment whose
words get times, in another thread than the engine's, and for several recordings concurrently.

Arguments must not have default values: pluggy passes only arguments without one.

`transept plugins check` reports hooks with another name, return values that are not a list of ModelSpec, and
architectures that are declared twice for the same ``config.json``.
"""


@hookspec
def register_models() -> list[ModelSpec]:  # type: ignore[empty-body]
    """Return the model families that this plugin runs. Called once; keep heavy imports out of it."""


@hookspec
def diarize(  # type: ignore[empty-body]
    waveform: npt.NDArray[np.float32], sample_rate: int, min_speakers: int | None, max_speakers: int | None
) -> Iterable[tuple[float, float, str]]:
    """Return the turns of speakers in a recording, (start, end, speaker), in any order; turns may overlap.

    waveform: float32 [num_samples], mono, of any length; must not be changed. sample_rate: in Hz, that the speech model
    expects. min_speakers, max_speakers: bounds of the number of speakers, at least 1; None: unknown.
    start, end: seconds. speaker: a name on one line, such as ``"speaker 1"``, the same for the same voice.
    Called for each recording, in threads beside the engine, and for several recordings at once.
    """


@hookspec
def embed_voice(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:  # type: ignore[empty-body]
    """Return the embedding of one voice, float32 [n]; n is the same for every voice.

    waveform: float32 [num_samples], mono, at least `VoiceModel.min_seconds` of one voice's speech; must not be changed.
    sample_rate: in Hz. Called in threads beside the engine, and for several recordings at once.
    """


@hookspec
def voice_model() -> VoiceModel:  # type: ignore[empty-body]
    """Return the name and the threshold of the model behind `embed_voice`. Called on first use."""


@hookspec
def find_names(text: str, language: str) -> Sequence[tuple[int, int]]:  # type: ignore[empty-body]
    """Return the names of persons in a text, (start, end), as indices of characters, in any order.

    language: code of the text's language, such as ``"en"``; empty if it is unknown. Called for the text of each segment
    of a transcript whose names are redacted, in threads beside the engine, and for several recordings at once.
    """


@hookspec
def align_words(
    waveform: npt.NDArray[np.float32], sample_rate: int, words: Sequence[str], language: str
) -> Sequence[tuple[float, float]] | None:
    """Return the start and the end of each word in a stretch of speech, in seconds from its beginning, in order.

    waveform: float32 [num_samples], mono, with little more than these words; must not be changed. sample_rate: in Hz.
    words: as written, with punctuation and without blanks around them. language: code, such as ``"en"``. None: the
    plugin does not know the language or a word, or the words do not match the audio; Transept's times remain.
    Called in threads beside the engine, and for several recordings at once.
    """
