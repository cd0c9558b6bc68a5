"""The result files of ``transcribe``, ``read`` and ``align``: their options, their unique names, and atomic writes."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import string
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transept.cli.recordings import STDIN, Recording
from transept.cli.terminal import escape
from transept.cli.transcribe_options import FORMATS
from transept.errors import ParameterError, suggest
from transept.multimodal.suffixes import split_suffix
from transept.writable import why_unwritable

if TYPE_CHECKING:
    from transept.speech.output.writers import FileFormat, TextFormat
    from transept.speech.transcript import Transcript

BY_STEM, BY_NAME = "{folder}/{stem}", "{folder}/{name}"
BY_PARENT = "{parent}/{name}"
FIELDS = ("folder", "parent", "stem", "name", "ext", "model")  # of --output-name
LONGEST_STEM = 40  # characters of a stem in an unfinished file's name, within file systems' limits
UNFINISHED = re.compile(rf"\..+\.(\d+)\.part\.(?:{'|'.join(FORMATS)})", re.DOTALL)  # the number is the writer's process


def add_file_options(
    group: argparse._ActionsContainer,
    formats: Callable[[str], tuple[str, ...]],
    help: str,
    where: str = "folder of those files (default with -f: the current one)",
) -> None:
    """Declare -f and -o. formats: parses the value of -f. help, where: their help texts."""
    group.add_argument("-f", "--output-format", type=formats, metavar="F,F,...", help=help)
    group.add_argument("-o", "--output-dir", metavar="DIR", help=where)


def add_name_options(group: argparse._ActionsContainer, what: str) -> None:
    """Declare --output-name and --skip-existing. what: the inputs, such as ``"images"``."""
    add_name_option(group)
    group.add_argument("--skip-existing", action="store_true", help=f"skip {what} whose files all exist")


def add_name_option(group: argparse._ActionsContainer) -> None:
    """Declare --output-name."""
    fields = ", ".join(f"{{{name}}}" for name in FIELDS)
    about = f"name of the files, without suffix, made of {fields} (default: {{folder}}/{{stem}})"
    group.add_argument("--output-name", metavar="TEXT", help=about)


def check_file_options(arguments: argparse.Namespace, flags: str) -> None:
    """Exit with a usage error for --output-name or --skip-existing without files, or a closed standard input.

    flags: the flags that write files.
    """
    for name in ("skip_existing", "output_name"):
        if getattr(arguments, name) not in (None, False) and arguments.output_format is None:
            arguments.parser.error(f"--{name.replace('_', '-')} applies to files; write some with {flags}")
    if STDIN in arguments.files and sys.stdin is None:
        arguments.parser.error("standard input is closed; name a file instead of -")


def make_folder(folder: Path | None, output_dir: str | None) -> None:
    """Make the folder of the files, if there is one. Raises ParameterError if that fails."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder {folder}: {error.strerror}"
        raise ParameterError(message, param="output_dir", value=output_dir) from None


def result_files(
    recordings: Sequence[Recording],
    formats: Sequence[str],
    *,
    folder: Path | None,
    template: str | None,
    model: str,
) -> list[list[Path]]:
    """Return the files to write for each recording, one for each format.

    folder: gets the files, in the tree of their recordings; None: each recording's folder. template: names of the
    files without the suffix, with FIELDS; None: the recordings' names without their suffixes, or with them if two
    recordings in one folder only differ in the suffix. model: as the user named it.
    Raises ParameterError if two recordings would be written to one file, if a recording would be overwritten, for a
    template that makes no name or leads out of the folder, and for a recording without a separate folder.
    """
    if template is not None:
        check_template(template)
    several_trees = len({each.tree for each in recordings} - {None}) > 1
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
    """Return advice for two recordings that would be written to one file."""
    if one.file == other.file:
        return "name it once"
    apart = "run the command for each, with its own -o"
    if (_parent(one), one.name) == (_parent(other), other.name):
        return apart
    return f"{apart}, or give them different names with --output-name, such as '{BY_PARENT}'"


def _parent(recording: Recording) -> str:
    """Return the name of a recording's folder; empty for standard input and a URL."""
    return "" if recording.directory is None else Path(os.path.abspath(recording.directory)).name


def _keep_inputs(recordings: Sequence[Recording], paths: Sequence[Sequence[Path]]) -> None:
    """Raise ParameterError if a file to write is one of the recordings."""
    inputs = {os.path.realpath(each.file): each for each in recordings if each.directory is not None}
    for path in (path for each in paths for path in each):
        if (recording := inputs.get(os.path.realpath(path))) is not None:
            raise ParameterError(
                f"{recording.shown} would be overwritten with a result; give another folder with -o, "
                "or other names with {output_name}, such as '{stem}-text'",
                param="output_name",
            )


def check_template(template: str) -> None:
    """Raise ParameterError for an --output-name with unknown fields, or that is not a name within a folder."""
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
        raise _bad_template(template, "takes plain fields, such as {stem}, without : and !")


def _bad_template(template: str, why: str) -> ParameterError:
    return ParameterError(f"{{output_name}} {why}", param="output_name", value=template)


def _stem(recording: Recording, template: str, folder: Path | None, several_trees: bool, model: str) -> Path:
    """Return the path of a recording's files without their suffix."""
    base = recording.directory if folder is None else folder
    if base is None:
        message = f"{recording.file} is in no folder; leave {{beside}} out and give -o"
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
        raise _bad_template(
            template, f"{template!r} makes {relative!r} of {recording.shown}, which is not a file's name"
        )
    return Path(os.path.normpath(base.joinpath(*parts)))


def are_there(paths: Sequence[Path]) -> bool:
    """Return True if all files of a recording exist, and so are complete; False for a recording without files."""
    return bool(paths) and all(path.is_file() for path in paths)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file under another name, flush it to the disk, and rename it, so that it only ever appears complete.

    write: writes the file at the path that it is given, in the same folder. If it raises, no file is left.
    """
    if path.exists() and not path.is_file():  # a pipe, a device
        write(path)
        return
    suffix = path.suffix  # of the format; a link's target may have another
    path = Path(os.path.realpath(path))  # so that a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem[:LONGEST_STEM]}.{os.getpid()}.part{suffix}")
    try:
        write(unfinished)
        with unfinished.open("r+b") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_or_print(paths: Sequence[Path], write: Callable[[Path], None], content: Callable[[Path], str]) -> list[str]:
    """Write the files of a result. Returns an error for each that failed, such as on a full disk.

    Such a file's content goes to standard output, so that no work is lost. write: as in `write_whole`. content: returns
    the text of a file.
    """
    errors = []
    for path in paths:
        try:
            write_whole(path, write)
        except OSError as error:
            print(escape(content(path)), end="", flush=True)
            why = error.strerror or str(error)
            errors.append(f"cannot write {path}: {why}; standard output has its content")
    return errors


def write_transcript(
    transcript: Transcript, paths: Sequence[Path], layout: Mapping[str, Any], format: str | None = None
) -> list[str]:
    """Write a transcript's files, as `write_or_print` does. format: of all files; None: their suffixes name it."""

    def content(path: Path) -> str:
        name = format or path.suffix[1:]
        return transcript.to_str(cast("TextFormat", "txt" if name == "docx" else name), **layout)

    return write_or_print(paths, lambda path: transcript.write(path, cast("FileFormat", format), **layout), content)


def unwritable(paths: Sequence[Path]) -> str | None:
    """Return why one of the files cannot be written, before any work; None if all can."""
    reasons = ((path, why_unwritable(path)) for path in paths)
    return next((f"cannot write {path}: {why}" for path, why in reasons if why is not None), None)


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder. Files of running processes stay."""
    if sys.platform == "win32" or not folder.is_dir():
        return
    with contextlib.suppress(OSError):  # a folder that cannot be listed
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
