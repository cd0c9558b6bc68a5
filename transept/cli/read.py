"""``transept read IMAGE...``: the text in images, on standard output or in files.

What reading means is `transept.vision`'s business; here are the arguments, the files and what is told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.documents import DECODING, STDIN
from transept.cli.engine_options import add_model_options, engine_options
from transept.cli.flags import add_flag
from transept.cli.parser import in_flags
from transept.cli.read_inputs import FORMATS, Input, find_inputs
from transept.cli.result_files import FIELDS, are_there, check_template, remove_unfinished, result_files, write_whole
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.core.config import EngineConfig
from transept.core.request.sampling_params import SamplingParams
from transept.errors import TranseptError, suggest
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
        description="Read the text in images: with TrOCR a line of text each. All images share one batch. Their texts "
        "go to standard output in the order of the images, or with -f or -o to files; everything else goes to standard "
        "error. Needs transept[image].",
        epilog="Exit code: 0 all images read, 1 some were not (the others still are), 2 bad usage.",
        most_used=MOST_USED,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="PNG, JPEG, WebP, GIF, TIFF, BMP or PPM file, PDF (a page is an image), folder of them, or pattern such "
        "as 'scans/**/*.png'; - is standard input",
    )
    parser.add_argument("--recursive", action="store_true", help="look into the folders of a folder, too")
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f", "--output-format", type=formats, metavar="F,F", help="write files: txt, json, or both (default with -o)"
    )
    output.add_argument(
        "-o", "--output-dir", metavar="DIR", help="folder of those files (default with -f: the present one)"
    )
    output.add_argument(
        "--output-name",
        metavar="TEXT",
        help=f"name of the files, without suffix, made of {', '.join(f'{{{name}}}' for name in FIELDS)} "
        "(default: {folder}/{stem})",
    )
    output.add_argument("--skip-existing", action="store_true", help="leave out images whose files are all there")
    output.add_argument("--json", action="store_true", help="print a JSON object for each image, one a line")
    decoding = parser.add_argument_group("decoding", "Default: what the checkpoint's settings say.")
    add_flag(decoding, declared(ReadingOptions)["task"], default=None)
    add_flag(decoding, declared(PageOptions)["dpi"], default=None)
    for name in DECODING:
        add_flag(decoding, declared(SamplingParams)[name], default=None)
    add_model_options(parser, READ_MODEL)
    parser.set_defaults(run=read, parser=parser)


def formats(text: str) -> tuple[str, ...]:
    """``txt,json``, each format once."""
    names = dict.fromkeys(each.strip().lower() for each in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f'there is no format "{name}".{suggest(name, FORMATS)}')
    return tuple(names)


def read(arguments: argparse.Namespace) -> int:
    """``transept read``."""
    options = _options(arguments)
    inputs = find_inputs(arguments.files, arguments.dpi, recursive=arguments.recursive)
    several = len(inputs) > 1 or any(each.tree is not None for each in inputs)
    paths = iter(_paths(arguments, [each for each in inputs if each.is_file]))
    found = [(each, next(paths) if each.is_file else []) for each in inputs]
    todo = [(each, files) for each, files in found if not (arguments.skip_existing and _is_done(files))]
    there = [each for each, _ in todo if each.error is None]
    results: Iterator[ImageText] = iter(())
    if there:
        with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
            from transept.vision.reader import VisionReader

            reader = VisionReader(arguments.model, **engine_options(arguments))
        results = reader.stream((each.image() for each in there), **options)
    begin = time.perf_counter()
    num_tokens = num_failed = 0
    for each, files in todo:
        result = next(results) if each.error is None else _failed(each.error)
        num_tokens += result.num_tokens
        if result.error is None:
            num_failed += not _write(each, result, files)
            _print(arguments, each, result, several)
            continue
        num_failed += 1
        if each.error is None:  # else it has been told
            print_stderr(f"transept: {each.shown}: {in_flags(result.error, arguments.parser)}")
        _write(each, result, [path for path in files if path.suffix == ".json"])
        if arguments.json:  # else standard output has nothing of it
            _print(arguments, each, result, several)
    num_read, num_skipped = len(todo) - num_failed, len(found) - len(todo)
    failed = f", {num_failed} failed" if num_failed else ""
    skipped = f", {num_skipped} skipped, whose files were there" if num_skipped else ""
    images = f"{num_read} image{'s' if num_read != 1 else ''}"
    tokens = f", {num_tokens} tokens in {time.perf_counter() - begin:.1f} s" if there else ""
    print_stderr(f"{images}{tokens}{failed}{skipped}")
    return 1 if num_failed else 0


def _failed(error: TranseptError) -> ImageText:
    from transept.vision.image_text import ImageText

    return ImageText.failed(error)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Of VisionReader.stream; all options are looked at before a PDF is opened. Leaves with a usage error."""
    if arguments.output_format is None and arguments.output_dir is None:
        for name in ("skip_existing", "output_name"):
            if getattr(arguments, name) not in (None, False):
                arguments.parser.error(f"--{name.replace('_', '-')} is about files; write some with -f or -o")
    if STDIN in arguments.files and sys.stdin is None:
        arguments.parser.error("standard input is closed; name a file instead of -")
    if arguments.output_name is not None:
        check_template(arguments.output_name)
    EngineConfig(arguments.model, **engine_options(arguments))
    sampling = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    SamplingParams(**sampling)
    ReadingOptions(task=arguments.task)
    return sampling if arguments.task is None else {**sampling, "task": arguments.task}


def _paths(arguments: argparse.Namespace, inputs: Sequence[Input]) -> list[list[Path]]:
    """The files to write for each image; the folder that they go to is made. Leaves with a usage error for none."""
    names = arguments.output_format
    if names is None and arguments.output_dir is None:
        return [[] for _ in inputs]
    folder = Path(arguments.output_dir or ".")
    try:
        paths = result_files(
            [each.recording for each in inputs],
            names or FORMATS,
            folder=folder,
            template=arguments.output_name,
            model=arguments.model,
        )
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        arguments.parser.error(f"cannot make the folder {folder}: {error.strerror}")
    for parent in {path.parent for each in paths for path in each}:
        remove_unfinished(parent)
    return paths


def _is_done(paths: Sequence[Path]) -> bool:
    """Whether an image's files are all there, and tell of no error: one that failed is read again."""
    return are_there(paths) and not any(path.suffix == ".json" and _tells_of_error(path) for path in paths)


def _tells_of_error(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_bytes()).get("error"))
    except (OSError, ValueError, AttributeError):  # no file of this command
        return True


def _write(read_from: Input, result: ImageText, paths: Sequence[Path]) -> bool:
    """Write an image's files. Returns whether they are written; what fails is told."""
    row = json.dumps(_row(read_from, result), ensure_ascii=False, indent=2)

    def write(path: Path) -> None:
        text = row if path.suffix == ".json" else result.text
        path.write_bytes(f"{text}\n".encode(errors="backslashreplace"))  # half a surrogate pair, say

    for path in paths:
        try:
            write_whole(path, write)
        except OSError as error:
            print_stderr(f"transept: {read_from.shown}: cannot write {escape_name(path)}: {error.strerror}")
            return False
    return True


def _row(read_from: Input, result: ImageText) -> dict[str, Any]:
    page = {} if read_from.page is None else {"page": read_from.page.number}
    return {"file": read_from.file, **page, **result.to_dict()}


def _print(arguments: argparse.Namespace, read_from: Input, result: ImageText, several: bool) -> None:
    """On standard output, unless the text goes to files and nothing else is asked for."""
    if arguments.json:
        print(escape(json.dumps(_row(read_from, result), ensure_ascii=False)), flush=True)
    elif arguments.output_format is None and arguments.output_dir is None:
        name = f"{read_from.shown}: " if several else ""
        print(f"{name}{escape(result.text)}", flush=True)
