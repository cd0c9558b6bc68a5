"""SameSpeakers: gives a voice the same name in all recordings of a call.

The Transcriber passes the events of the call's jobs through it. A recording's speakers are named after the speakers of
all earlier recordings, so names depend on the order of the recordings, and not on which of them is done first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

from transept.errors import ParameterError, TranseptError
from transept.registry.voice_model import VoiceModel
from transept.speech.segments import Found, Segment
from transept.speech.transcript import Transcript
from transept.speech.voices.heard import HeardVoices
from transept.speech.voices.naming import free_name, names_of
from transept.speech.voices.store import Voices, locked

logger = logging.getLogger(__name__)


class SameSpeakers:
    """The voices of a call's recordings.

    voices: known before; voices that match none of them are added, as ``"speaker 1"``, ``"speaker 2"``, ... model: of
    the embeddings. writes: True to add them also to the file of the voices, which is read again before each recording.
    """

    def __init__(self, voices: Voices, model: VoiceModel, *, writes: bool) -> None:
        self.voices, self.model, self.writes = voices, model, writes
        self.turn = 0  # index of the first recording whose speakers are not named yet
        self.heard: dict[int, HeardVoices] = {}  # of later recordings
        self.held: dict[int, list[Any]] = {}  # events of recordings whose speakers are not named yet
        self.names: dict[int, dict[str, str]] = {}  # of a recording: the diarizer's name for a speaker -> the final one
        self.failed: dict[int, TranseptError] = {}  # recordings whose voices cannot be compared

    def __call__(self, index: int, event: Any) -> Iterator[tuple[int, Any]]:
        """Take an event of a recording, and yield the events whose speakers are named now, each with its recording."""
        if isinstance(event, HeardVoices):
            self.heard[index] = event
        elif index < self.turn:
            yield from self._named(index, event)
            return
        else:
            self.held.setdefault(index, []).append(event)
            if isinstance(event, Transcript | TranseptError):  # a recording may fail before its voices are known
                self.heard.setdefault(index, HeardVoices(()))
        while self.turn in self.heard:
            index, self.turn = self.turn, self.turn + 1
            self._name(index, self.heard.pop(index))
            for held in self.held.pop(index, []):
                yield from self._named(index, held)

    def _name(self, index: int, heard: HeardVoices) -> None:
        """Name the speakers of the next recording, and add the unknown voices."""
        try:
            self.names[index] = self._kept(heard) if self.writes else self._add(heard)
        except TranseptError as error:
            self.failed[index] = error

    def _kept(self, heard: HeardVoices) -> dict[str, str]:
        """Return the names as `_add` does, and write the unknown voices to the file.

        If the file fails, the log says so. This and later recordings then only share voices with each other.
        """
        file, names = self.voices.file, None
        assert file is not None
        try:
            with locked(file):
                known = Voices.read(file, missing_ok=True)
                known.check_model(self.model)
                self.voices = known
                names = self._add(heard)
                if self.voices != known:
                    self.voices.write(file)
        except (OSError, ParameterError) as failure:
            why = f'cannot write "{file}": {failure.strerror}' if isinstance(failure, OSError) else failure
            logger.error("the new voices of this and later recordings are lost: %s", why)
            self.writes = False
        return self._add(heard) if names is None else names

    def _add(self, heard: HeardVoices) -> dict[str, str]:
        """Return the final name of each speaker, and add the unknown voices."""
        names: dict[str, str] = {}
        voices = self.voices
        found = names_of(heard.voices, voices, self.model.threshold)
        for voice in heard.voices:
            name = found[voice.speaker]
            if name is None and voice.embedding is not None:
                name = free_name("speaker", voices.names)
                voices = voices.with_voice(name, voice.embedding.tolist(), voice.seconds, self.model.name)
            names[voice.speaker] = name or free_name("unknown", [*voices.names, *names.values()])
        self.voices = voices
        return names

    def _named(self, index: int, event: Any) -> Iterator[tuple[int, Any]]:
        if index in self.failed:
            if isinstance(event, Transcript | TranseptError):
                yield index, event if isinstance(event, TranseptError) else self.failed[index]
        elif isinstance(event, Found):
            yield index, dataclasses.replace(event, segments=[self._segment(index, each) for each in event.segments])
        elif isinstance(event, Transcript):
            segments = [self._segment(index, each) for each in event.segments]
            yield index, dataclasses.replace(event, segments=segments)
        else:
            yield index, event

    def _segment(self, index: int, segment: Segment) -> Segment:
        names = self.names[index]
        return segment if segment.speaker is None else dataclasses.replace(segment, speaker=names[segment.speaker])
