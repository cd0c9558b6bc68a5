"""Name the speakers of a recording after known voices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count

from transept.errors import PluginError
from transept.speech.voices.heard import HeardVoice
from transept.speech.voices.matching import match_voices
from transept.speech.voices.store import Voices


def names_of(heard: Sequence[HeardVoice], voices: Voices, threshold: float) -> dict[str, str | None]:
    """Return the name of the known voice that each speaker has, or None. threshold: see `match_voices`.

    Raises PluginError if the heard embeddings differ in length, and ParameterError if the known ones have another.
    """
    embedded = {voice.speaker: voice.embedding for voice in heard if voice.embedding is not None}
    known = [voice.embedding for voice in voices.voices]
    sizes = sorted({len(vector) for vector in embedded.values()})
    if len(sizes) > 1:
        raise PluginError(f"the embeddings of one recording's voices have {' and '.join(map(str, sizes))} numbers")
    for size in sizes:
        voices.check_length(size)
    found = match_voices([*embedded.values()], known, threshold)
    names = voices.names
    matched = {speaker: names[index] for speaker, index in zip(embedded, found, strict=True) if index is not None}
    return {voice.speaker: matched.get(voice.speaker) for voice in heard}


def free_name(prefix: str, taken: Collection[str]) -> str:
    """Return a name such as ``"speaker 3"``, with the lowest number from 1 up that is not taken."""
    return next(name for number in count(1) if (name := f"{prefix} {number}") not in taken)


def distinct_names(names: Mapping[str, str | None], known: Collection[str]) -> dict[str, str]:
    """Return a name for each speaker. One without a name keeps the diarizer's, unless a known voice has that name."""
    taken = {*known, *names}
    found: dict[str, str] = {}
    for speaker, name in names.items():
        if name is None:
            name = free_name("unknown", taken) if speaker in known else speaker
            taken.add(name)
        found[speaker] = name
    return found
