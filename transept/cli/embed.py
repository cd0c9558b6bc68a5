"""``transept embed``: texts as vectors, by the encoder of a text model."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from transept.cli.commands import COMMANDS
from transept.cli.documents import OF_ENCODERS, read_lines, report_line, text_generator
from transept.cli.engine_options import add_limit, add_model_options
from transept.cli.flags import add_flag
from transept.cli.result_files import unwritable, write_whole
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.errors import PromptError
from transept.options import declared
from transept.text.options import EmbeddingOptions

if TYPE_CHECKING:
    from transept.text.embedding import TextEmbedding

OPTIONS = ("pooling", "normalize", *OF_ENCODERS)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept embed``."""
    parser = commands.add_parser(
        "embed",
        help=COMMANDS["embed"],
        usage="transept embed [option ...] --model MODEL FILE",
        description="Print the embedding of each line of a file as a JSON object, or write all of them to a .npy file: "
        "the output of the model's encoder, pooled over the line's tokens.",
        epilog="Exit code: 0 all lines done, 1 some failed (with --output, their numbers are nan), 2 bad usage.",
        most_used=(
            *("--model", "--output", "--pooling", "--normalize", "--truncate", "--device", "--quantization"),
            *("--threads", "--offline"),
        ),
    )
    parser.add_argument("documents", metavar="FILE", help="documents, a line each, in UTF-8; - is standard input")
    embeddings = parser.add_argument_group("embeddings")
    embeddings.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="write a float32 array [lines, hidden size] to this .npy file, which NumPy loads, instead of printing",
    )
    for name in OPTIONS:
        add_flag(embeddings, declared(EmbeddingOptions)[name])
    add_limit(embeddings, "max_text_characters")
    add_model_options(parser, None)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Embed the lines, and print or write the vectors."""
    options = {name: getattr(arguments, name) for name in OPTIONS if hasattr(arguments, name)}
    output: Path | None = arguments.output
    if EmbeddingOptions(**options).pooling == "none" and output is not None:  # raises before the file is read
        arguments.parser.error("--pooling none has a vector for each token, which no array holds: leave --output out")
    if output is not None and output.suffix != ".npy":
        arguments.parser.error(f"--output writes a .npy file, not {escape_name(output)}: name it so")
    try:
        if output is not None and (why := unwritable([output])) is not None:
            raise PromptError(why)
        documents = read_lines(arguments.documents)
    except PromptError as error:
        print_stderr(f"transept: {error}")
        return 1
    generator = text_generator(arguments)
    begin = time.perf_counter()
    embeddings = generator.encode(documents, **options)
    seconds, num_failed = time.perf_counter() - begin, 0
    for number, each in enumerate(embeddings, 1):
        if each.error is not None:
            num_failed += 1
            report_line(arguments, number, each.error)
        if output is None:
            print(escape(json.dumps({"line": number, **each.to_dict()}, ensure_ascii=False)))
    try:
        if output is not None:
            _write(output, embeddings)
    except OSError as error:
        print_stderr(f"transept: {escape_name(output)}: {error.strerror or error}")
        return 1
    num_tokens = sum(len(each.token_ids) for each in embeddings)
    failed = f", {num_failed} failed" if num_failed else ""
    print_stderr(f"{len(embeddings)} lines, {num_tokens} tokens, in {seconds:.1f} s{failed}")
    return 1 if num_failed else 0


def _write(output: Path, embeddings: list[TextEmbedding]) -> None:
    """Write the vectors as one array. A failed line has a row of nan."""
    import numpy as np

    width = max((len(each.embedding) for each in embeddings), default=0)
    missing = np.full(width, math.nan, np.float32)
    rows = [missing if each.error is not None else each.embedding for each in embeddings]
    array = np.stack(rows) if rows else np.empty((0, 0), np.float32)
    write_whole(output, lambda path: np.save(path, array))
