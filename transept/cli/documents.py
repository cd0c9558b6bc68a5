"""What ``transept summarize``, ``translate`` and ``generate`` share: documents in, texts out.

Not a command itself. Called by those three; what the tasks mean is `transept.text`'s business.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from transept.cli.commands import COMMANDS
from transept.cli.engine_options import add_limit, add_model_options, engine_options
from transept.cli.file_suggestions import suggest_file
from transept.cli.flags import add_flag, add_flags
from transept.cli.parser import in_flags
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.core.request.sampling_params import SamplingParams
from transept.errors import PromptError, TranseptError
from transept.options import declared
from transept.text.options import LANGUAGES, LONG_DOCUMENTS, TextOptions, TranslationOptions

if TYPE_CHECKING:
    from transept.text.generated_text import TextUpdate
    from transept.text.job import Task

STDIN = "-"
MAX_FILE_BYTES = 1 << 30  # 1 GiB; a document is bounded by Limits, long before that

LANGUAGE_FLAGS = ("--source-language", "--target-language")
MOST_USED = (
    *("--model", "--json", "--stream", "--truncate", "--chunk", "--beam-size", "--max-new-tokens", "--device"),
    *("--quantization", "--threads", "--offline"),
)
DECODING = (  # flags of a text's SamplingParams
    *("num_beams", "max_tokens", "min_tokens", "length_penalty", "no_repeat_ngram_size", "temperature", "top_p"),
    "seed",
)


def add_task_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    *,
    model: str | None,
    lines: bool,
    languages: bool = False,
) -> argparse.ArgumentParser:
    """Declare a task's command with the arguments that all tasks have.

    model: default of --model; None: it must be given. lines: whether the task
    makes sense of single lines. languages: whether it goes from one language to another.
    """
    about = COMMANDS[name]
    parser = commands.add_parser(
        name,
        help=about,
        usage=f"transept {name} [option ...] FILE ..."
        if model
        else f"transept {name} [option ...] --model MODEL FILE ...",
        description=f"{about.capitalize()}. A file is one document, and all documents share one batch. Their texts go "
        "to standard output in the order of the documents, each as soon as it is there; everything else goes to "
        "standard error.",
        epilog="Exit code: 0 all documents done, 1 some were not (the others still are), 2 bad usage.",
        most_used=(*(LANGUAGE_FLAGS if languages else ()), *(("--lines",) if lines else ()), *MOST_USED),
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="text file in UTF-8; - is standard input")
    if languages:
        add_flags(
            parser,
            LANGUAGES,
            None,
            (own for own in declared(TranslationOptions).values() if own.option.group == LANGUAGES),
        )
    output = parser.add_argument_group("documents and output")
    if lines:
        output.add_argument("--lines", action="store_true", help="a line is one document, and its text one line")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a document, one a line")
    form.add_argument(
        "--stream",
        action="store_true",
        help="print a text piece by piece as it is written; a beam search has it only at its end: --beam-size 1",
    )
    long_ones = parser.add_argument_group(LONG_DOCUMENTS)
    length = long_ones.add_mutually_exclusive_group()
    for name in ("truncate", "chunk"):
        add_flag(length, declared(TextOptions)[name])
    add_flag(long_ones, declared(TextOptions)["max_source_tokens"])
    add_limit(long_ones, "max_text_characters")
    decoding = parser.add_argument_group("decoding", "Default: what the checkpoint's settings say, for this task.")
    for name in DECODING:
        add_flag(decoding, declared(SamplingParams)[name], default=None)
    add_model_options(parser, model)
    parser.set_defaults(lines=False, parser=parser)
    return parser


def run_task(arguments: argparse.Namespace, task: Task) -> int:
    """Run a task on the documents that the arguments name, and print what comes."""
    sampling = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    own = {name: getattr(arguments, name) for name in declared(TranslationOptions) if hasattr(arguments, name)}
    SamplingParams(**sampling)  # before a model is loaded
    TranslationOptions(**own)
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.text.generator import TextGenerator

        generator = TextGenerator(arguments.model, **engine_options(arguments))
    begin = time.perf_counter()
    documents = _Documents(arguments.files, arguments.lines)
    updates = generator.stream(task, documents, **own, **sampling)
    output = _Output(arguments)
    num_texts, num_tokens, num_failed = 0, 0, 0
    for update in updates:
        document = documents.read[update.index]
        output.show(update, document)
        if isinstance(update.result, TranseptError):
            if not document.blank_line:
                num_failed += 1
                name = escape_name(document.name)
                print_stderr(f"transept: {name}: {in_flags(update.result, arguments.parser)}")
        elif update.result is not None:
            num_texts += 1
            num_tokens += update.result.num_tokens
    num_failed += documents.num_unreadable
    failed = f", {num_failed} failed" if num_failed else ""
    print_stderr(f"{num_texts} texts, {num_tokens} tokens in {time.perf_counter() - begin:.1f} s{failed}")
    return 1 if num_failed else 0


@dataclass(frozen=True)
class _Document:
    file: str
    line: int | None  # from 1; None: the whole file
    blank: bool

    @property
    def name(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def blank_line(self) -> bool:
        """Whether it stands for an empty line of output and is no failure."""
        return self.blank and self.line is not None


@dataclass
class _Documents:
    """The documents of some files, read when their turn comes; a file that cannot be read is told on stderr."""

    files: Sequence[str]
    by_line: bool
    read: list[_Document] = field(default_factory=list)
    num_unreadable: int = 0

    def __iter__(self) -> Iterator[str]:
        for file in self.files:
            try:
                text = read_text(file)
            except (OSError, UnicodeDecodeError, PromptError) as error:
                self.num_unreadable += 1
                reason = error.strerror if isinstance(error, OSError) else error
                if isinstance(error, UnicodeDecodeError):
                    reason = f"it is not UTF-8 text ({error})"
                if isinstance(error, FileNotFoundError):
                    reason = f"{error.strerror}{suggest_file(file)}"
                print_stderr(f"transept: {escape_name(file)}: cannot read it: {reason}")
                continue
            lines = text.removesuffix("\n").split("\n") if text else []
            for number, each in enumerate(map(str.strip, lines if self.by_line else [text]), 1):
                self.read.append(_Document(file, number if self.by_line else None, not each))
                yield each


def read_text(file: str) -> str:
    """The text of a file, or of standard input.

    Raises OSError, UnicodeDecodeError, and PromptError for more than MAX_FILE_BYTES, which may have no end.
    """
    if file == STDIN and sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    with contextlib.nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as opened:
        data = opened.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise PromptError(f"it has more than {MAX_FILE_BYTES} bytes, and is read as a whole: split it")
    return data.decode("utf-8-sig")


@dataclass
class _Output:
    """Standard output in the form that the arguments ask for."""

    arguments: argparse.Namespace
    begun: bool = False  # whether a part of the present document's text is printed

    def show(self, update: TextUpdate, document: _Document) -> None:
        """Print what an update brings. A failed document prints nothing, but a failed line an empty one."""
        failed = isinstance(update.result, TranseptError)
        generated = None if isinstance(update.result, TranseptError) else update.result
        if self.arguments.json:
            if generated is not None:
                line = {} if document.line is None else {"line": document.line}
                result = {"file": document.file, **line, **generated.to_dict()}
                print(escape(json.dumps(result, ensure_ascii=False)), flush=True)
            return
        text = update.text if self.arguments.stream else generated.text if generated else ""
        if (text or generated) and not self.begun and len(self.arguments.files) > 1 and document.line is None:
            print(f"{escape_name(document.file)}: ", end="")
        self.begun = update.result is None and (self.begun or bool(text))
        ended = generated is not None or (failed and document.line is not None)
        text = text if document.line is None else text.replace("\n", " ")
        print(escape(text), end="\n" if ended else "", flush=True)
