"""``transept translate-subtitles FILE``: subtitles or a transcript in another language, with the same times."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.convert import STDIN, STDOUT, output_format, read_transcript, written
from transept.cli.documents import add_decoding, sampling_of, text_generator
from transept.cli.engine_options import add_model_options
from transept.cli.flags import add_flags
from transept.cli.terminal import print_stderr
from transept.cli.transcribe_options import FORMATS, check_formats, format_of, layout_for
from transept.options import declared
from transept.speech.output.subtitles import SubtitleLayout
from transept.text.options import LANGUAGES, TRANSLATE_MODEL, TranslationOptions

if TYPE_CHECKING:
    from transept.text.generator import TextGenerator

NAME = "translate-subtitles"
MOST_USED = (
    *("--source-language", "--target-language", "--output", "--output-format", "--model", "--beam-size"),
    *("--style", "--max-line-width", "--max-line-count", "--device", "--quantization", "--threads", "--offline"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept translate-subtitles``."""
    parser = commands.add_parser(
        NAME,
        help=COMMANDS[NAME],
        usage=f"transept {NAME} [option ...] FILE",
        description="Translate the subtitles or the transcript in a file, and keep its times. A sentence that spans "
        "several subtitles is translated as a whole.",
        epilog="Exit code: 0 translated, 1 failed, 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument(
        "file", metavar="FILE", help="subtitles (srt, vtt, ttml, ass), or a transcript in JSON; - is standard input"
    )
    options = declared(TranslationOptions).values()
    add_flags(parser, LANGUAGES, None, (each for each in options if each.option.group == LANGUAGES))
    output = parser.add_argument_group("output")
    about = "file to write; - is standard output (default: FILE's name with the target language: talk.de.srt)"
    output.add_argument("-o", "--output", metavar="OUT", help=about)
    about = f"format of OUT, if its suffix does not name it: {', '.join(FORMATS)}"
    output.add_argument("-f", "--output-format", type=format_of, metavar="FORMAT", help=about)
    output.add_argument("--input-format", dest="format", metavar="FORMAT", help="format of FILE (default: its suffix)")
    about = "The words of a subtitle share its time in proportion to their lengths."
    add_flags(parser, "subtitles", about, declared(SubtitleLayout).values())
    add_decoding(parser.add_argument_group("decoding", "Default: the checkpoint's settings for this task."))
    add_model_options(parser, TRANSLATE_MODEL)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate a file."""
    languages = {name: getattr(arguments, name) for name in ("source", "target") if hasattr(arguments, name)}
    TranslationOptions(**languages)
    arguments.output = arguments.output or _default_output(arguments)
    to = output_format(arguments)
    check_formats([to])
    layout, sampling = layout_for(arguments.parser, arguments, [to]), sampling_of(arguments)
    transcript = read_transcript(arguments.file, arguments.format)
    generator = text_generator(arguments)
    begin = time.perf_counter()
    translated = transcript.translated(
        lambda texts: translations(generator, texts, **languages, **sampling), languages.get("target") or ""
    )
    if layout:
        translated = translated.with_estimated_words()
    code = written(translated, to, arguments.output, layout)
    print_stderr(f"{len(translated.segments)} subtitles in {time.perf_counter() - begin:.1f} s")
    return code


def translations(generator: TextGenerator, sentences: list[str], **options: Any) -> list[str]:
    """Return the translation of each sentence. Raises the error of the first one that fails."""
    results = generator.translate(sentences, chunk=True, **options)
    for result in results:
        if result.error is not None:
            raise result.error
    return [result.text for result in results]


def _default_output(arguments: argparse.Namespace) -> str:
    """Return the default file to write: beside FILE, with the target language before the suffix, or standard output."""
    if arguments.file == STDIN:
        return STDOUT
    file = Path(arguments.file)
    language = "".join(
        letter for letter in getattr(arguments, "target", None) or "" if letter.isalnum() or letter in "_-"
    )
    suffix = file.suffix if arguments.output_format is None else f".{arguments.output_format}"
    return str(file.with_name(f"{file.stem}.{language or 'translated'}{suffix}"))
