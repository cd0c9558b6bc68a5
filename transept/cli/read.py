"""``transept read IMAGE...``: the text in images, on standard output or in files. `transept.vision` reads it."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.documents import add_decoding, sampling_of
from transept.cli.engine_options import add_model_options, engine_options
from transept.cli.flags import add_flag
from transept.cli.parser import in_flags
from transept.cli.read_inputs import FORMATS, Input, find_inputs
from transept.cli.result_files import (
    add_file_options,
    add_name_options,
    are_there,
    check_file_options,
    check_template,
    make_folder,
    remove_unfinished,
    result_files,
    unwritable,
    write_or_print,
)
from transept.cli.run_summary import counted
from transept.cli.terminal import escape, print_stderr
from transept.cli.transcribe_options import formats_of
from transept.core.config import EngineConfig
from transept.errors import TranseptError
from transept.multimodal.page_options import PageOptions
from transept.options import declared
from transept.vision.options import READ_MODEL, ReadingOptions

if TYPE_CHECKING:
    from transept.vision.image_text import ImageText

MOST_USED = (
    *("--model", "--task", "--recursive", "--output-format", "--output-dir", "--json", "--skip-existing", "--dpi"),
    *("--beam-size", "--max-new-tokens", "--device", "--quantization", "--threads", "--offline"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept read``."""
    parser = commands.add_parser(
        "read",
        help=COMMANDS["read"],
        usage="transept read [option ...] FILE ...",
        description="Read the text in images; TrOCR reads one line of text in each. All images share one batch. Texts "
        "go to standard output in the order of the images, or with -f or -o to files; everything else goes to standard "
        "error. Needs transept[image].",
        epilog="Exit code: 0 all images read, 1 some failed (the others are read), 2 bad usage.",
        most_used=MOST_USED,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="PNG, JPEG, WebP, GIF, TIFF, BMP or PPM file, PDF (a page is an image), folder of them, or pattern such "
        "as 'scans/**/*.png'; - is standard input",
    )
    parser.add_argument("--recursive", action="store_true", help="also search the folders in a folder")
    output = parser.add_argument_group("output")
    formats = partial(formats_of, known=FORMATS, every=FORMATS)
    add_file_options(output, formats, "write files: txt, json, or both (all, the default with -o)")
    add_name_options(output, "images")
    output.add_argument("--json", action="store_true", help="print a JSON object for each image, one a line")
    decoding = parser.add_argument_group("decoding", "Default: the checkpoint's settings.")
    add_flag(decoding, declared(ReadingOptions)["task"], default=None)
    add_flag(decoding, declared(ReadingOptions)["lora"], default=None)
    add_flag(decoding, declared(PageOptions)["dpi"], default=None)
    add_decoding(decoding)
    add_model_options(parser, READ_MODEL)
    parser.set_defaults(run=read, parser=parser)


def read(arguments: argparse.Namespace) -> int:
    """Run ``transept read``."""
    if arguments.output_dir is not None and arguments.output_format is None:
        arguments.output_format = FORMATS
    options = _options(arguments)
    inputs = find_inputs(arguments.files, arguments.dpi, recursive=arguments.recursive)
    several = len(inputs) > 1 or any(each.tree is not None for each in inputs)
    paths = iter(_paths(arguments, [each for each in inputs if each.is_file]))
    found = [(each, next(paths) if each.is_file else []) for each in inputs]
    wanted = [(each, files) for each, files in found if not (arguments.skip_existing and _is_done(files))]
    todo = [(each, files) for each, files in wanted if _can_write(each, files)]
    readable = [each for each, _ in todo if each.error is None]
    results: Iterator[ImageText] = iter(())
    if readable:
        with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
            from transept.vision.reader import VisionReader

            reader = VisionReader(arguments.model, **engine_options(arguments))
        results = reader.stream((each.image() for each in readable), **options)
    begin = time.perf_counter()
    num_tokens, num_failed = 0, len(wanted) - len(todo)
    for each, files in todo:
        result = next(results) if each.error is None else _failed(each.error)
        num_tokens += result.num_tokens
        if result.error is None:
            num_failed += not _write(each, result, files)
            _print(arguments, each, result, several)
            continue
        num_failed += 1
        if each.error is None:  # `find_inputs` reports the others
            print_stderr(f"transept: {each.shown}: {in_flags(result.error, arguments.parser)}")
        _write(each, result, [path for path in files if path.suffix == ".json"])
        if arguments.json:
            _print(arguments, each, result, several)
    num_read, num_skipped = len(wanted) - num_failed, len(found) - len(wanted)
    failed = f", {num_failed} failed" if num_failed else ""
    skipped = f", {num_skipped} skipped, whose files exist" if num_skipped else ""
    tokens = f", {num_tokens} tokens in {time.perf_counter() - begin:.1f} s" if readable else ""
    print_stderr(f"{counted(num_read, 'image')}{tokens}{failed}{skipped}")
    return 1 if num_failed else 0


def _failed(error: TranseptError) -> ImageText:
    from transept.vision.image_text import ImageText

    return ImageText.failed(error)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of VisionReader.stream. Checks all options before a PDF is opened."""
    check_file_options(arguments, "-f or -o")
    if arguments.output_name is not None:
        check_template(arguments.output_name)
    EngineConfig(arguments.model, **engine_options(arguments))
    sampling = sampling_of(arguments)
    given = {name: getattr(arguments, name) for name in ("task", "lora") if getattr(arguments, name) is not None}
    ReadingOptions(**given)
    return {**sampling, **given}


def _paths(arguments: argparse.Namespace, inputs: Sequence[Input]) -> list[list[Path]]:
    """Return the files to write for each image, and make their folder."""
    if arguments.output_format is None:
        return [[] for _ in inputs]
    folder, found = Path(arguments.output_dir or "."), [each.recording for each in inputs]
    paths = result_files(
        found, arguments.output_format, folder=folder, template=arguments.output_name, model=arguments.model
    )
    make_folder(folder, arguments.output_dir)
    for parent in {path.parent for each in paths for path in each}:
        remove_unfinished(parent)
    return paths


def _can_write(read_from: Input, paths: Sequence[Path]) -> bool:
    """Return True if an image's files can be written; otherwise report it."""
    if (why := unwritable(paths)) is not None:
        print_stderr(f"transept: {read_from.shown}: {escape(why)}")
    return why is None


def _is_done(paths: Sequence[Path]) -> bool:
    """Return True if all files of an image exist, without an error: a failed image is read again."""
    return are_there(paths) and not any(path.suffix == ".json" and _has_error(path) for path in paths)


def _has_error(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_bytes()).get("error"))
    except (OSError, ValueError, AttributeError):  # not a file of this command
        return True


def _write(read_from: Input, result: ImageText, paths: Sequence[Path]) -> bool:
    """Write an image's files. Reports a failure. Returns True on success."""
    row = json.dumps(_row(read_from, result), ensure_ascii=False, indent=2)

    def content(path: Path) -> str:
        return f"{row if path.suffix == '.json' else result.text}\n"

    def write(path: Path) -> None:
        path.write_bytes(content(path).encode(errors="backslashreplace"))  # half a surrogate pair, say

    errors = write_or_print(paths, write, content)
    for error in errors:
        print_stderr(f"transept: {read_from.shown}: {escape(error)}")
    return not errors


def _row(read_from: Input, result: ImageText) -> dict[str, Any]:
    page = {} if read_from.page is None else {"page": read_from.page.number}
    return {"file": read_from.file, **page, **result.to_dict()}


def _print(arguments: argparse.Namespace, read_from: Input, result: ImageText, several: bool) -> None:
    """Print an image's text, or its object with --json, unless only files are asked for."""
    if arguments.json:
        print(escape(json.dumps(_row(read_from, result), ensure_ascii=False)), flush=True)
    elif arguments.output_format is None:
        name = f"{read_from.shown}: " if several else ""
        print(f"{name}{escape(result.text)}", flush=True)
