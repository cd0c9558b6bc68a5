"""``transept summarize``, ``translate`` and ``generate``: from documents to texts."""

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
from typing import TYPE_CHECKING, Any, cast

from transept.cli.chapters import TRANSCRIPTS, ChapterOptions, check_chapters, run_chapters, transcript_text
from transept.cli.commands import COMMANDS
from transept.cli.engine_options import add_limit, add_model_options, engine_options
from transept.cli.flags import add_flag, add_flags
from transept.cli.parser import in_flags
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.core.request.sampling_params import SamplingParams
from transept.errors import PromptError, TranseptError
from transept.multimodal.missing_files import why_unopened
from transept.options import declared
from transept.text.options import (
    LANGUAGES,
    LONG_DOCUMENTS,
    SUMMARIZE_MODEL,
    TRANSLATE_MODEL,
    TextOptions,
    TranslationOptions,
)

if TYPE_CHECKING:
    from transept.text.generated_text import TextUpdate
    from transept.text.generator import TextGenerator
    from transept.text.job import Task

STDIN = "-"
MAX_FILE_BYTES = 1 << 30  # 1 GiB, far above the engine's limits on a document
DEFAULT_MODELS = {"summarize": SUMMARIZE_MODEL, "translate": TRANSLATE_MODEL, "generate": None}
MOST_USED = (
    *("--model", "--json", "--stream", "--truncate", "--chunk", "--beam-size", "--max-new-tokens", "--device"),
    *("--quantization", "--threads", "--offline"),
)
OF_TRANSCRIPTS = ("--chapters", "--markdown")
DECODING = (  # the options of SamplingParams that have flags
    *("num_beams", "max_tokens", "max_time", "min_tokens", "length_penalty", "repetition_penalty"),
    *("encoder_repetition_penalty", "no_repeat_ngram_size"),
    *("temperature", "top_k", "top_p", "seed", "stop", "keywords", "keyword_boost", "draft", "guided"),
)
OF_ENCODERS = ("task", "source", "target", "truncate", "max_source_tokens", "lora")  # options of scores and embeddings
SEVERAL = ("n", "num_return_sequences")  # further ones, of the commands that print several texts of a document


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> None:
    """Declare one of the commands."""
    about, model, has_languages, has_lines = (
        COMMANDS[name],
        DEFAULT_MODELS[name],
        name == "translate",
        name != "summarize",
    )
    parser = commands.add_parser(
        name,
        help=about,
        usage=f"transept {name} [option ...] {'' if model else '--model MODEL '}FILE ...",
        description=f"{about.capitalize()}. Each file is one document, and all documents share one batch. Texts go to "
        "standard output in the order of the documents, once complete; all else goes to standard error.",
        epilog="Exit code: 0 all documents done, 1 some failed (the others are done), 2 bad usage.",
        most_used=(
            *(("--source-language", "--target-language") if has_languages else ()),
            *(("--lines",) if has_lines else OF_TRANSCRIPTS),
            *MOST_USED,
        ),
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="text file in UTF-8; - is standard input")
    if has_languages:
        options = declared(TranslationOptions).values()
        add_flags(parser, LANGUAGES, None, (each for each in options if each.option.group == LANGUAGES))
    output = parser.add_argument_group("documents and output")
    if has_lines:
        output.add_argument("--lines", action="store_true", help="treat each line as a document; its text is one line")
    output.add_argument("--json", action="store_true", help="print a JSON object for each document, one a line")
    output.add_argument(
        "--stream",
        action="store_true",
        help="print text piece by piece during generation; needs --beam-size 1: a beam search prints all at once. With "
        "--json, each piece is an object with a delta, before the document's object",
    )
    if name == "summarize":
        transcripts = parser.add_argument_group(TRANSCRIPTS, "Only the text of subtitles and transcripts is read.")
        for each in declared(ChapterOptions).values():
            add_flag(transcripts, each, default=each.default)
    long_documents = parser.add_argument_group(LONG_DOCUMENTS)
    length = long_documents.add_mutually_exclusive_group()
    add_flag(length, declared(TextOptions)["truncate"])
    add_flag(length, declared(TextOptions)["chunk"])
    add_flag(long_documents, declared(TextOptions)["max_source_tokens"])
    add_limit(long_documents, "max_text_characters")
    decoding = parser.add_argument_group("decoding", "Default: the checkpoint's settings for this task.")
    add_decoding(decoding, SEVERAL)
    add_flag(decoding, declared(TextOptions)["decoder_prompt"])
    add_flag(decoding, declared(TextOptions)["lora"])
    add_model_options(parser, model)
    parser.set_defaults(lines=False, chapters=False, parser=parser, run=run, task=name)


def add_decoding(group: argparse._ActionsContainer, more: Sequence[str] = ()) -> None:
    """Declare the flags of `DECODING`, and of `more` options of SamplingParams."""
    for name in (*DECODING, *more):
        add_flag(group, declared(SamplingParams)[name], default=None)


def sampling_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of `DECODING` and `SEVERAL`. Raises ParameterError for an invalid one."""
    given = {name: getattr(arguments, name, None) for name in (*DECODING, *SEVERAL)}
    sampling = {name: value for name, value in given.items() if value is not None}
    SamplingParams(**sampling)
    return sampling


def run(arguments: argparse.Namespace) -> int:
    """Run a task on the documents, and print the texts."""
    sampling = sampling_of(arguments)
    own = {name: getattr(arguments, name) for name in declared(TranslationOptions) if hasattr(arguments, name)}
    TranslationOptions(**own)  # raises before the model is loaded
    if arguments.task == "summarize":
        check_chapters(arguments)
    if arguments.chapters:
        return run_chapters(arguments, lambda: text_generator(arguments), **own, **sampling)
    generator = text_generator(arguments)
    begin = time.perf_counter()
    by_paragraph = arguments.task == "summarize"
    documents, output = _Documents(arguments.files, arguments.lines, by_paragraph), _Output(arguments)
    num_texts, num_tokens, num_failed = 0, 0, 0
    for update in generator.stream(cast("Task", arguments.task), documents, **own, **sampling):
        document = documents.read[update.index]
        output.show(update, document)
        if isinstance(update.result, TranseptError):
            if not document.blank_line:
                num_failed += 1
                name = escape_name(document.name)
                print_stderr(f"transept: {name}: {in_flags(update.result, arguments.parser)}")
        elif update.result is not None:
            num_texts += 1
            num_tokens += update.result.num_all_tokens
    num_failed += documents.num_unreadable
    failed = f", {num_failed} failed" if num_failed else ""
    print_stderr(f"{num_texts} texts, {num_tokens} tokens in {time.perf_counter() - begin:.1f} s{failed}")
    return 1 if num_failed else 0


def text_generator(arguments: argparse.Namespace) -> TextGenerator:
    """Load the model."""
    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        from transept.text.generator import TextGenerator

        return TextGenerator(arguments.model, **engine_options(arguments))


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
        """True if it is an empty line, whose text is an empty line and not a failure."""
        return self.blank and self.line is not None


@dataclass
class _Documents:
    """The documents of some files. A file is read when its turn comes; an unreadable one is reported on stderr."""

    files: Sequence[str]
    by_line: bool
    reads_transcripts: bool
    read: list[_Document] = field(default_factory=list)
    num_unreadable: int = 0

    def __iter__(self) -> Iterator[str]:
        for file in self.files:
            try:
                spoken = transcript_text(file) if self.reads_transcripts else None
                text = read_text(file) if spoken is None else spoken
            except PromptError as error:
                self.num_unreadable += 1
                print_stderr(f"transept: {escape_name(file)}: {error}")
                continue
            lines = text.removesuffix("\n").split("\n") if text else []
            for number, each in enumerate(map(str.strip, lines if self.by_line else [text]), 1):
                self.read.append(_Document(file, number if self.by_line else None, not each))
                yield each


def read_text(file: str) -> str:
    """Return the text of a file, or of standard input. Raises PromptError if it cannot be read or is too large."""
    try:
        if file == STDIN and sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        with contextlib.nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)  # standard input or a device may have no end
        if len(data) > MAX_FILE_BYTES:
            raise PromptError(f"cannot read it: it has more than {MAX_FILE_BYTES} bytes; split it")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"cannot read it: it is not UTF-8 text ({error})") from None
    except OSError as error:
        raise PromptError(f"cannot read it: {why_unopened(file, error)}") from None


def report_line(arguments: argparse.Namespace, number: int, error: TranseptError) -> None:
    """Print the error of a line of arguments.documents. number: from 1."""
    print_stderr(f"transept: {escape_name(arguments.documents)}:{number}: {in_flags(error, arguments.parser)}")


def read_lines(file: str) -> list[str]:
    """Return the lines of a file, or of standard input. Raises PromptError, which names the file."""
    try:
        text = read_text(file)
    except PromptError as error:
        raise PromptError(f"{escape_name(file)}: {error}") from None
    return text.removesuffix("\n").split("\n") if text else []


@dataclass
class _Output:
    """Prints texts in the form that the arguments ask for."""

    arguments: argparse.Namespace
    begun: bool = False  # True if a part of the current document's text is printed

    def show(self, update: TextUpdate, document: _Document) -> None:
        """Print the new part of a text. A failed document prints nothing, a failed line an empty line."""
        failed = isinstance(update.result, TranseptError)
        generated = None if isinstance(update.result, TranseptError) else update.result
        if self.arguments.json:
            place = {"file": document.file, **({} if document.line is None else {"line": document.line})}
            if self.arguments.stream and update.text:
                self._print_json({**place, "delta": update.text})
            if generated is not None:
                self._print_json({**place, **generated.to_dict()})
            return
        text = update.text if self.arguments.stream else generated.text if generated else ""
        if (text or generated) and not self.begun and len(self.arguments.files) > 1 and document.line is None:
            print(f"{escape_name(document.file)}: ", end="")
        self.begun = update.result is None and (self.begun or bool(text))
        ended = generated is not None or (failed and document.line is not None)
        text = text if document.line is None else text.replace("\n", " ")
        print(escape(text), end="\n" if ended else "", flush=True)
        for each in generated.alternatives if generated else ():
            print(escape(each.text if document.line is None else each.text.replace("\n", " ")), flush=True)

    def _print_json(self, value: dict[str, Any]) -> None:
        print(escape(json.dumps(value, ensure_ascii=False)), flush=True)
