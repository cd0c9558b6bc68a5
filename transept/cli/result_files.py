"""The files that ``transcribe`` and ``read`` write: their names, no two alike, and how each appears whole, or not.

Called by those commands with what `recordings` found.
"""

from __future__ import annotations

import contextlib
import os
import re
import string
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from transept.cli.recordings import Recording, roots
from transept.cli.transcribe_options import FORMATS
from transept.errors import ParameterError, suggest
from transept.multimodal.suffixes import split_suffix

BY_STEM, BY_NAME = "{folder}/{stem}", "{folder}/{name}"
BY_PARENT = "{parent}/{name}"
FIELDS = ("folder", "parent", "stem", "name", "ext", "model")  # of --output-name
LONGEST_STEM = 40  # characters of it in the name of what is unfinished, which so stays within a file system's limit
UNFINISHED = re.compile(rf"\..+\.(\d+)\.part\.(?:{'|'.join(FORMATS)})", re.DOTALL)  # with the process that writes it


def result_files(
    recordings: Sequence[Recording],
    formats: Sequence[str],
    *,
    folder: Path | None,
    template: str | None,
    model: str,
) -> list[list[Path]]:
    """The files to write for each recording, one a format.

    folder: that they lie in, in the tree that their recordings have; None: beside each recording. template: of their
    names without the suffix, with FIELDS; None: the recording's without its suffix, and with it where two in one folder
    differ in that alone. model: what the user called it.
    Raises ParameterError where two recordings would be written to one file, or one over a recording itself, for a
    template that says nothing or leads out of the folder, and for a recording that nothing can be beside.
    """
    if template is not None:
        check_template(template)
    several_trees = len(roots(recordings)) > 1
    pattern = BY_STEM if template is None else template
    stems = [_stem(each, pattern, folder, several_trees, model) for each in recordings]
    if template is None:
        alike = defaultdict(list)
        for recording, stem in zip(recordings, stems, strict=True):
            alike[stem].append(recording)
        for index, (recording, stem) in enumerate(zip(recordings, stems, strict=True)):
            others = alike[stem]
            one_folder = len({each.directory for each in others}) == 1
            if len(others) > 1 and one_folder and len({each.name for each in others}) == len(others):
                stems[index] = _stem(recording, BY_NAME, folder, several_trees, model)
    seen: dict[Path, Recording] = {}
    for recording, stem in zip(recordings, stems, strict=True):
        if stem in seen:
            both = f"{seen[stem].shown} and {recording.shown} would both be written to {stem}.{formats[0]}"
            message = f"{both}; {_told_apart(seen[stem], recording)}"
            raise ParameterError(message, param="output_name", others=["beside"])
        seen[stem] = recording
    paths = [[stem.with_name(f"{stem.name}.{name}") for name in formats] for stem in stems]
    _keep_inputs(recordings, paths)
    return paths


def _told_apart(one: Recording, other: Recording) -> str:
    """What would work for two recordings that would be written to one file."""
    if one.file == other.file:
        return "name it once"
    apart = "take them one by one, with -o for each"
    if (_parent(one), one.name) == (_parent(other), other.name):
        return apart
    return f"{apart}, or tell them apart with --output-name, such as '{BY_PARENT}'"


def _parent(recording: Recording) -> str:
    """The name of the folder that it lies in; empty for standard input and a URL."""
    return "" if recording.directory is None else Path(os.path.abspath(recording.directory)).name


def _keep_inputs(recordings: Sequence[Recording], paths: Sequence[Sequence[Path]]) -> None:
    """Raise ParameterError where a file to write is one of the recordings."""
    inputs = {os.path.realpath(each.file): each for each in recordings if each.directory is not None}
    for path in (path for each in paths for path in each):
        if (recording := inputs.get(os.path.realpath(path))) is not None:
            raise ParameterError(
                f"{recording.shown} would be overwritten with what comes of it or of another file; give "
                "another folder with -o, or other names with {output_name}, such as '{stem}-text'",
                param="output_name",
            )


def check_template(template: str) -> None:
    """Raise ParameterError for an --output-name with unknown fields, or that is no name within a folder."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise _bad_template(template, f"{template!r}: {error}") from None
    if template.startswith("/"):
        raise _bad_template(template, f"{template!r} must be a name within the folder that -o names")
    names = [name for _, name, _, _ in parsed if name is not None]
    for name in names:
        if name not in FIELDS:
            raise _bad_template(template, f"has no field {{{name}}}.{suggest(name, FIELDS)}")
    if any(spec or conversion for _, _, spec, conversion in parsed):
        raise _bad_template(template, "takes fields as they are, such as {stem}, without : and !")


def _bad_template(template: str, why: str) -> ParameterError:
    return ParameterError(f"{{output_name}} {why}", param="output_name", value=template)


def _stem(recording: Recording, template: str, folder: Path | None, several_trees: bool, model: str) -> Path:
    """The path of a recording's files without their suffix."""
    base = recording.directory if folder is None else folder
    if base is None:
        message = f"nothing lies beside {recording.file}; leave out {{beside}} and give -o"
        raise ParameterError(message, param="beside", value=True)
    within = Path() if folder is None else Path(recording.folder)
    if several_trees and folder is not None and recording.tree is not None:
        within = Path(Path(os.path.abspath(recording.tree)).name) / within
    name, suffix = split_suffix(recording.name)
    fields = (
        str(within) if within.parts else "",
        _parent(recording),
        name,
        recording.name,
        suffix,
        Path(model).name,
    )
    relative = template.format(**dict(zip(FIELDS, fields, strict=True)))
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or relative.endswith("/") or "\0" in relative:
        raise _bad_template(template, f"{template!r} makes {relative!r} of {recording.shown}, which names no file")
    return Path(os.path.normpath(base.joinpath(*parts)))


def are_there(paths: Sequence[Path]) -> bool:
    """Whether all files of a recording are there, each of which is whole then; False for none to write."""
    return bool(paths) and all(path.is_file() for path in paths)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Make a file that appears, or takes the place of another, only once all of it is on the disk.

    write: puts it under the name that it is given, in the same folder. Raises OSError as that does; nothing is left.
    """
    if path.exists() and not path.is_file():  # a pipe, a device
        write(path)
        return
    suffix = path.suffix  # which tells the format, whatever a link's target is called
    path = Path(os.path.realpath(path))  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem[:LONGEST_STEM]}.{os.getpid()}.part{suffix}")
    try:
        write(unfinished)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed had begun to write in a folder; what still runs keeps its own."""
    if os.name != "posix" or not folder.is_dir():
        return
    with contextlib.suppress(OSError):  # a folder that may be written, but not listed
        for entry in folder.iterdir():
            match = UNFINISHED.fullmatch(entry.name)
            if match is not None and not _runs(int(match[1])):
                with contextlib.suppress(OSError):  # another user's
                    entry.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
