"""Voices: known voices by name, each with the embedding of its speech, kept in one JSON file.

`transept voices` and `Voices.enrolled` add to them; TranscriptionOptions declares `known_voices` as the ``parse`` of
its option voices. Imports neither NumPy nor torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept import system
from transept.errors import ParameterError, shown, suggest
from transept.options import refuse_lone_surrogates

if TYPE_CHECKING:
    from transept.multimodal.audio import AudioInput
    from transept.registry.voice_model import VoiceModel

FILE = Path("transept") / "voices.json"  # of the user, in their data folder
VERSION = 1  # of the file's format
MOST_VOICES = 10_000
MOST_BYTES = 256 << 20  # of a file
LONGEST_NAME = 200  # characters
LARGEST_EMBEDDING = 8192  # numbers
DIGITS = 6  # of an embedding's numbers in the file
FORMS = "the pathlib.Path of a file of `transept voices`, Voices, or the JSON of such a file"


@dataclass(frozen=True)
class Voice:
    """A known voice.

    name: on one line. embedding: of length 1. seconds: length of the speech behind it. recordings: number of
    recordings behind it.
    """

    name: str
    embedding: tuple[float, ...] = field(repr=False)
    seconds: float
    recordings: int

    def joined(self, embedding: Sequence[float], seconds: float, recordings: int = 1) -> Voice:
        """Return the voice with further speech: the mean of both embeddings, weighted by the seconds of speech."""
        mean = [self.seconds * one + seconds * other for one, other in zip(self.embedding, embedding, strict=True)]
        total = self.seconds + seconds
        return Voice(self.name, _unit(mean) or self.embedding, total, self.recordings + recordings)


@dataclass(frozen=True)
class Voices:
    """Known voices of one model of embeddings. Every change returns new Voices.

    model: name of the model, as a plugin declares it in its VoiceModel; empty without voices. voices: in the order of
    their enrolment. file: from which they were read, or None.
    """

    model: str = ""
    voices: tuple[Voice, ...] = ()
    file: Path | None = None

    @property
    def names(self) -> list[str]:
        """The names of the voices, in their order."""
        return [voice.name for voice in self.voices]

    @classmethod
    def read(cls, file: str | os.PathLike[str], *, missing_ok: bool = False) -> Voices:
        """Read a file. missing_ok: return empty Voices for a missing file.

        Raises ParameterError for a file that cannot be read or is not such a file.
        """
        path = Path(file)
        try:
            with path.open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
        except FileNotFoundError:
            if missing_ok:
                return cls(file=path)
            advice = "`transept voices enroll NAME FILE` makes one"
            message = f'{{voices}}: "{path}" does not exist; {advice}'
            raise ParameterError(message, param="voices", value=str(path)) from None
        except OSError as error:
            message = f'{{voices}}: cannot read "{path}": {error.strerror}'
            raise ParameterError(message, param="voices", value=str(path)) from None
        if len(content) > MOST_BYTES:
            message = f'{{voices}}: "{path}" has more than {MOST_BYTES >> 20} MB'
            raise ParameterError(message, param="voices", value=str(path))
        try:
            given = json.loads(content)
        except (ValueError, RecursionError):
            message = f'{{voices}}: "{path}" is not a JSON file of voices'
            raise ParameterError(message, param="voices", value=str(path)) from None
        try:
            return dataclasses.replace(cls.from_dict(given), file=path)
        except ParameterError as error:
            message = error.message.replace("{voices}:", f'{{voices}}: "{path}":', 1)
            raise ParameterError(message, param="voices", value=str(path)) from None

    @classmethod
    def from_dict(cls, given: Any) -> Voices:
        """Return the voices of a file's JSON. Raises ParameterError, which names the part at fault."""
        if not isinstance(given, Mapping) or given.get("version") != VERSION:
            message = f"{{voices}}: version must be {VERSION}: the format of this file is unknown"
            raise ParameterError(message, param="voices", value=None)
        model, listed = given.get("model"), given.get("voices")
        if not isinstance(model, str) or len(model) > LONGEST_NAME:
            raise _wrong("model", "the name of a voice model", model)
        if not isinstance(listed, Mapping) or len(listed) > MOST_VOICES:
            raise _wrong("voices", f"an object of at most {MOST_VOICES} voices", type(listed).__name__)
        voices = tuple(_voice(name, each) for name, each in listed.items())
        if voices and not model.strip():
            raise _wrong("model", "the name of a voice model", model)
        if len({len(voice.embedding) for voice in voices}) > 1:
            raise _wrong("voices", "embeddings of one length", "embeddings of several lengths")
        if len({voice.name for voice in voices}) < len(voices):
            raise _wrong("voices", "of different names, without blanks around them", list(listed))
        return cls(model if voices else "", voices)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the file."""
        voices = {
            voice.name: {
                "recordings": voice.recordings,
                "seconds": round(voice.seconds, 3),
                "embedding": [round(number, DIGITS) for number in voice.embedding],
            }
            for voice in self.voices
        }
        return {"version": VERSION, "model": self.model, "voices": voices}

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the file, readable by its owner alone. A concurrent reader sees either the old file or the new one."""
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"    {json.dumps(name)}: {json.dumps(each)}" for name, each in self.to_dict()["voices"].items()]
        head = f'{{\n  "version": {VERSION},\n  "model": {json.dumps(self.model)},\n  "voices": '
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
        try:
            with open(handle, "w", encoding="utf-8") as opened:
                opened.write(head + "{" + "".join(f"\n{line}," for line in lines).rstrip(",") + "\n  }\n}\n")
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def with_voice(self, name: str, embedding: Sequence[float], seconds: float, model: str) -> Voices:
        """Return the voices with a recording's embedding added to the voice `name`. model: that made the embedding.

        Raises ParameterError for another model's voices, and for an invalid name.
        """
        self._check_name(model)
        name = checked_name("name", name)
        vector = _unit([float(number) for number in embedding])
        if vector is None or len(vector) > LARGEST_EMBEDDING:
            raise _wrong("embedding", f"a vector of 1 to {LARGEST_EMBEDDING} numbers, not all 0", embedding)
        self.check_length(len(vector))
        known = {voice.name: voice for voice in self.voices}
        known[name] = known[name].joined(vector, seconds) if name in known else Voice(name, vector, seconds, 1)
        return dataclasses.replace(self, model=model, voices=tuple(known.values()))

    def without(self, name: str) -> Voices:
        """Return the voices without one. Raises ParameterError for an unknown name."""
        if name not in self.names:
            raise ParameterError(f"no voice is called {name!r}.{suggest(name, self.names)}", param="name", value=name)
        voices = tuple(voice for voice in self.voices if voice.name != name)
        return dataclasses.replace(self, model=self.model if voices else "", voices=voices)

    def enrolled(self, name: str, *recordings: AudioInput) -> Voices:
        """Return the voices with recordings of one voice added to `name`, a new or a known one.

        The installed plugin embeds them. Raises MediaError for a recording with too little speech, and ParameterError
        without a recording, for an invalid name, without a plugin that recognizes voices, or for voices of another
        model.
        """
        from transept.speech.voices.heard import installed_embedder, voice_in

        name = checked_name("name", name)
        if not recordings:
            raise ParameterError("{recordings}: give at least one of the voice", param="recordings", value=recordings)
        embedder = installed_embedder()
        self.check_model(embedder.model)
        found = self
        for recording in recordings:
            heard = voice_in(recording, embedder)
            assert heard.embedding is not None
            found = found.with_voice(name, heard.embedding.tolist(), heard.seconds, embedder.model.name)
        return found

    def check_model(self, model: VoiceModel) -> None:
        """Raise ParameterError if these are voices of another model, or their embeddings have another size."""
        self._check_name(model.name)
        if model.size is not None:
            self.check_length(model.size)

    def _check_name(self, model: str) -> None:
        if self.voices and self.model != model:
            message = (
                f'{{voices}}: the voices{self._where} were enrolled with "{self.model}", and the installed plugin has '
                f'"{model}"; enroll them again in another file'
            )
            raise ParameterError(message, param="voices", value=str(self.file or self.model))

    def check_length(self, length: int) -> None:
        """Raise ParameterError if the embeddings of the voices have another length. length: of a new embedding."""
        if self.voices and len(self.voices[0].embedding) != length:
            message = (
                f"{{voices}}: the embeddings{self._where} have {len(self.voices[0].embedding)} numbers, and those of "
                f"the installed plugin {length}; enroll the voices again in another file"
            )
            raise ParameterError(message, param="voices", value=str(self.file or self.model))

    @property
    def _where(self) -> str:
        return f' of "{self.file}"' if self.file else ""


def known_voices(name: str, given: Any) -> Voices | None:
    """Return voices given as Voices, as a file's path, or as the JSON of a file, parsed or not; None for None.

    A missing file has no voices. A text is never a path, since it may come from a client of a server.
    Raises ParameterError.
    """
    if given is None or isinstance(given, Voices):
        return given
    if isinstance(given, os.PathLike):
        return Voices.read(given, missing_ok=True)
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, Mapping):
        raise ParameterError(f"{{{name}}} must be {FORMS}, not {shown(given)}", param=name, value=given)
    return Voices.from_dict(given)


def default_file() -> Path:
    """Return the user's own file of voices, in ``$XDG_DATA_HOME``, or otherwise in ``~/.local/share``."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / FILE


def checked_name(param: str, name: Any) -> str:
    """Return a speaker's name without blanks around it. Raises ParameterError unless it is a text on one line."""
    if not (isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= LONGEST_NAME):
        message = f"{{{param}}} must be a name on one line of at most {LONGEST_NAME} characters, not {shown(name)}"
        raise ParameterError(message, param=param, value=name)
    refuse_lone_surrogates(param, name)
    return name.strip().replace("-->", "->")  # "-->" separates times in subtitle files


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Context in which no other process changes a file of voices, except on Windows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_name(f".{file.name}.lock"), "w") as opened:
        system.lock(opened, wait=True)
        yield


def _voice(name: str, given: Any) -> Voice:
    try:
        name = checked_name("voices", name)
    except ParameterError:
        raise _wrong("each key", f"a name on one line of at most {LONGEST_NAME} characters", name) from None
    part = f"voices of {name!r}"
    if not isinstance(given, Mapping):
        raise _wrong(part, "an object", given)
    numbers = given.get("embedding")
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= LARGEST_EMBEDDING:
        raise _wrong(part, f"an embedding of 1 to {LARGEST_EMBEDDING} numbers", type(numbers).__name__)
    is_vector = all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    embedding = _unit([float(number) for number in numbers]) if is_vector else None
    if embedding is None:
        raise _wrong(part, "an embedding of finite numbers, not all 0", numbers[:3])
    seconds, recordings = given.get("seconds", 0.0), given.get("recordings", 1)
    for each in (seconds, recordings):
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < math.inf:
            raise _wrong(part, "seconds and recordings of at least 0", each)
    return Voice(name, embedding, float(seconds), int(recordings))


def _unit(vector: Sequence[float]) -> tuple[float, ...] | None:
    """Return a vector scaled to length 1; None if it has no finite length above 0."""
    length = math.hypot(*vector)
    return tuple(number / length for number in vector) if 0 < length < math.inf else None


def _wrong(part: str, wanted: str, value: Any) -> ParameterError:
    message = f"{{voices}}: {part} must be {wanted}, not {shown(value)}"
    return ParameterError(message, param="voices", value=value)
