"""``transept score``: how likely a text model finds given texts."""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

from transept.cli.commands import COMMANDS
from transept.cli.documents import OF_ENCODERS, STDIN, read_lines, report_line, text_generator
from transept.cli.engine_options import add_limit, add_model_options
from transept.cli.flags import add_flag
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.errors import PromptError
from transept.options import declared
from transept.text.options import ScoringOptions


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept score``."""
    parser = commands.add_parser(
        "score",
        help=COMMANDS["score"],
        usage="transept score [option ...] --model MODEL FILE [TARGETS]",
        description="Print the log probability of each target text, given its document. Line N of TARGETS belongs to "
        "line N of FILE. Without TARGETS, each line of FILE is a JSON object with a document and a target.",
        epilog="Exit code: 0 all pairs scored, 1 some failed (their score is nan), 2 bad usage or an unreadable file.",
        most_used=(
            *("--model", "--task", "--source-language", "--target-language", "--truncate", "--json", "--device"),
            *("--quantization", "--threads", "--offline"),
        ),
    )
    parser.add_argument("documents", metavar="FILE", help="documents, a line each, in UTF-8; - is standard input")
    parser.add_argument("targets", nargs="?", metavar="TARGETS", help="target texts, a line each; - is standard input")
    scores = parser.add_argument_group("scores")
    for name in OF_ENCODERS:
        add_flag(scores, declared(ScoringOptions)[name])
    add_limit(scores, "max_text_characters")
    scores.add_argument(
        "--json", action="store_true", help="print a JSON object for each pair, with all tokens' scores"
    )
    add_model_options(parser, None)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Score the pairs, and print a line for each."""
    options = {name: getattr(arguments, name) for name in OF_ENCODERS if hasattr(arguments, name)}
    ScoringOptions(**options)  # raises before the files are read
    if arguments.documents == arguments.targets == STDIN:
        arguments.parser.error("standard input holds the documents or the targets, not both")
    try:
        pairs = _pairs(arguments)
    except PromptError as error:
        print_stderr(f"transept: {error}")
        return 1
    generator = text_generator(arguments)
    begin = time.perf_counter()
    documents, targets = [document for document, _ in pairs], [target for _, target in pairs]
    scores = generator.score(documents, targets, **options)
    num_tokens, total, num_failed = 0, 0.0, 0
    for number, score in enumerate(scores, 1):
        if score.error is not None:
            num_failed += 1
            report_line(arguments, number, score.error)
        num_tokens, total = num_tokens + len(score.logprobs), total + score.logprob
        logprob = math.nan if score.error else score.logprob
        print(
            escape(json.dumps({"line": number, **score.to_dict()}, ensure_ascii=False)) if arguments.json else logprob
        )
    perplexity = f", perplexity {math.exp(-total / num_tokens):.3f}" if num_tokens else ""
    failed = f", {num_failed} failed" if num_failed else ""
    seconds = time.perf_counter() - begin
    print_stderr(f"{len(scores)} pairs, {num_tokens} tokens{perplexity}, in {seconds:.1f} s{failed}")
    return 1 if num_failed else 0


def _pairs(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return each document with its target. Raises PromptError for files that cannot be read or do not match."""
    documents = read_lines(arguments.documents)
    if arguments.targets is None:
        return [_pair(line, f"{escape_name(arguments.documents)}:{number}") for number, line in enumerate(documents, 1)]
    targets = read_lines(arguments.targets)
    if len(documents) != len(targets):
        raise PromptError(
            f"{escape_name(arguments.documents)} has {len(documents)} lines and {escape_name(arguments.targets)} has "
            f"{len(targets)}; line N of one belongs to line N of the other"
        )
    return list(zip(documents, targets, strict=True))


def _pair(line: str, where: str) -> tuple[str, str]:
    """Return the document and the target of a JSON object."""
    try:
        given: Any = json.loads(line)
        return given["document"], given["target"]
    except (ValueError, TypeError, KeyError, RecursionError):
        what = 'a JSON object with "document" and "target"'
        raise PromptError(f"{where} is not {what}; or give a second file with the targets") from None
