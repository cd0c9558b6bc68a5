"""The input files of ``transept transcribe`` and ``read``: from arguments, folders and patterns to Recordings.

For ``read``, a Recording is an image or a PDF. This module lists folders and opens no file.
"""

from __future__ import annotations

import glob
import os
import struct
import sys
import urllib.parse
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transept.cli.terminal import escape_name
from transept.cli.transcribe_options import FORMATS
from transept.errors import ParameterError
from transept.multimodal.missing_files import why_unopened
from transept.multimodal.suffixes import MEDIA

STDIN = "-"
RESULTS = {f".{suffix}" for suffix in (*FORMATS, "jsonl")}  # suffixes of result files
PCM_BITS = 16


@dataclass(frozen=True)
class Kind:
    """The input files of a command.

    suffixes: of the files that folders contribute. results: suffixes of result files, which patterns skip. what: noun
    for messages. unopened: message for a missing file, with ``{file}`` and ``{reason}``. fetched: True if URLs are
    possible.
    """

    suffixes: Set[str]
    results: Set[str]
    what: str
    unopened: str
    fetched: bool


SOUND = Kind(MEDIA, RESULTS, "audio or video file", 'audio file "{file}" cannot be opened: {reason}', fetched=True)


@dataclass(frozen=True)
class Recording:
    """One recording to transcribe.

    file: the path, relative if the argument is. tree: the folder, or the fixed part of the pattern, that contained it;
    None if it is an argument itself. is_url: True if FFmpeg fetches it. label: its name in messages; None: file.
    """

    file: str
    tree: str | None = None
    is_url: bool = False
    label: str | None = None

    @property
    def shown(self) -> str:
        """Its name in messages, escaped."""
        return escape_name(self.file) if self.label is None else self.label

    @property
    def name(self) -> str:
        """The file name, ``talk.mp3``, without folders."""
        if self.file == STDIN:
            return "stdin"
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.file).path) if self.is_url else self.file
        return Path(path).name or "recording"

    @property
    def directory(self) -> Path | None:
        """The folder that contains it; None for standard input and a URL."""
        return None if self.is_url or self.file == STDIN else Path(self.file).parent

    @property
    def folder(self) -> str:
        """The folder that contains it, relative to its tree; empty at the tree's root, and without a tree."""
        if self.tree is None or self.directory is None:
            return ""
        relative = os.path.relpath(self.directory, self.tree)
        return "" if relative == "." else relative

    def audio(self, pcm_rate: int | None) -> Any:
        """Return the argument of `load_audio`. pcm_rate: of raw samples on standard input; None: it is a file."""
        if self.is_url:
            from transept.multimodal.audio_url import AudioUrl

            return AudioUrl(self.file)
        if self.file != STDIN:
            return self.file
        # Unbuffered: an interrupted Python waits for threads that read the buffered stream.
        standard_input: Any = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
        standard_input.name = "<stdin>"
        return standard_input if pcm_rate is None else _PcmAsWav(standard_input, pcm_rate)


@dataclass(frozen=True)
class Missing:
    """An argument, or a folder in it, without recordings. reason: why."""

    file: str
    reason: str


def find_recordings(
    arguments: Sequence[str], *, recursive: bool, allow_urls: bool
) -> tuple[list[Recording], list[Missing]]:
    """Return the recordings of the arguments, and the arguments without any; see `find_files`."""
    each = find_files(arguments, SOUND, recursive=recursive, allow_urls=allow_urls)
    return [one for one in each if isinstance(one, Recording)], [one for one in each if isinstance(one, Missing)]


def find_files(
    arguments: Sequence[str], kind: Kind, *, recursive: bool, allow_urls: bool = False
) -> list[Recording | Missing]:
    """Return the files of the arguments, in order and each once, and the arguments without any.

    An existing path is a file or a folder, even if it looks like a pattern. A folder contributes the files with the
    kind's suffixes, and with recursive also those in its folders, except hidden ones. Other names may be patterns, in
    which ``**`` stands for any folders; patterns skip result files. Raises ParameterError for a URL without allow_urls.
    """
    found: list[Recording | Missing] = []
    from_tree: dict[str, bool] = {}  # real path -> True if found in a tree
    for argument in arguments:
        for each in _of_argument(argument, kind, recursive, allow_urls):
            if isinstance(each, Missing):
                found.append(each)
                continue
            key = each.file if each.directory is None else os.path.realpath(each.file)
            in_tree = each.tree is not None
            if key in from_tree and (in_tree or from_tree[key]):
                continue
            from_tree[key] = in_tree
            found.append(each)
    return found


def _of_argument(argument: str, kind: Kind, recursive: bool, allow_urls: bool) -> Iterator[Recording | Missing]:
    from transept.multimodal.audio_url import SCHEMES, is_url

    if argument == STDIN or os.path.isfile(argument):
        yield Recording(argument)
    elif os.path.isdir(argument):
        yield from _of_folder(argument, kind, recursive)
    elif is_url(argument):
        if not kind.fetched:
            yield Missing(argument, "this command fetches no URLs; download it, and name the file")
            return
        if not allow_urls:
            message = f"{argument} is a URL; add {{allow_urls}} to have it fetched"
            raise ParameterError(message, param="allow_urls", value=False)
        if argument.partition("://")[0].lower() not in SCHEMES:
            message = f"{argument} cannot be fetched: a URL begins with one of {', '.join(SCHEMES)} and ://"
            raise ParameterError(message, param="files", value=argument)
        yield Recording(argument, is_url=True)
    elif glob.has_magic(argument) and not os.path.lexists(argument):
        yield from _of_pattern(argument, kind, recursive)
    else:
        try:
            os.stat(argument)
        except (OSError, ValueError) as error:
            yield Missing(argument, kind.unopened.format(file=argument, reason=why_unopened(argument, error)))
        else:
            yield Recording(argument)  # a pipe, a device


def _of_folder(root: str, kind: Kind, recursive: bool, tree: str | None = None) -> Iterator[Recording | Missing]:
    """Yield the files of a folder. tree: see Recording; None: the folder itself."""
    unreadable: list[Missing] = []

    def note(error: OSError) -> None:
        unreadable.append(Missing(str(error.filename), f"cannot read this folder: {error.strerror}"))

    num_found = 0
    for directory, folders, files in os.walk(root, onerror=note):
        folders[:] = sorted(folder for folder in folders if not folder.startswith(".")) if recursive else []
        for file in sorted(files):
            path = os.path.join(directory, file)
            if not file.startswith(".") and os.path.splitext(file)[1].lower() in kind.suffixes and not _is_pipe(path):
                num_found += 1
                yield Recording(path, root if tree is None else tree)
    yield from unreadable
    if not num_found and not unreadable:
        below = "" if recursive else "; --recursive also searches its folders"
        yield Missing(root, f"this folder has no {kind.what}{below}")


def _of_pattern(pattern: str, kind: Kind, recursive: bool) -> Iterator[Recording | Missing]:
    parts = Path(pattern).parts
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    tree = str(Path(*parts[:fixed]))
    matches = sorted(each for each in set(_matches(parts)) if Path(each).suffix.lower() not in kind.results)
    if not matches:
        yield Missing(pattern, "no such file, and no file matches it as a pattern")
    for match in matches:
        if os.path.isdir(match):
            if "**" not in parts:  # ** itself matches the files in folders
                yield from _of_folder(match, kind, recursive, tree)
        elif not _is_pipe(match):
            yield Recording(match, tree)


def _is_pipe(path: str) -> bool:
    """Return True for a pipe, a socket or a device. Only arguments may be one, because reading may never end."""
    return os.path.exists(path) and not os.path.isfile(path)


def _matches(parts: Sequence[str]) -> Iterator[str]:
    """Yield the matches of a pattern, as `glob.glob` does, but follow no link back into the same tree."""
    if "**" not in parts:
        yield from glob.glob(str(Path(*parts)))
        return
    first = parts.index("**")
    rest = parts[first + 1 :] or ("*",)
    for base in glob.glob(str(Path(*parts[:first]))) if first else ["."]:
        for folder in _folders_below(base):
            yield from _matches((glob.escape(folder), *rest))


def _folders_below(base: str) -> Iterator[str]:
    """Yield a folder and the folders in it, except hidden ones, each once, by its own name rather than a link's."""
    inside = os.path.join(os.path.realpath(base), "")
    walked: set[str] = set()
    for directory, folders, _ in os.walk(base, followlinks=True):
        real = os.path.realpath(directory)
        back = directory != base and os.path.islink(directory)
        back = back and (f"{real}/".startswith(inside) or inside.startswith(os.path.join(real, "")))
        if real in walked or back:
            folders.clear()
            continue
        walked.add(real)
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        yield directory


class _PcmAsWav:
    """Raw samples (s16le, mono) after the header of a WAV file, so that limits and errors are the same as for files."""

    def __init__(self, samples: Any, rate: int) -> None:
        self.name = samples.name
        self._samples = samples
        endless = 0xFFFFFFFF  # an unknown length in WAV files
        fmt = struct.pack("<HHIIHH", 1, 1, rate, rate * PCM_BITS // 8, PCM_BITS // 8, PCM_BITS)
        self._header = struct.pack("<4sI4s4sI", b"RIFF", endless, b"WAVE", b"fmt ", len(fmt)) + fmt
        self._header += struct.pack("<4sI", b"data", endless)

    def read(self, size: int) -> bytes:
        """Return the header first, then samples."""
        header, self._header = self._header, b""
        piece: bytes = header or self._samples.read(size)
        return piece
