"""``transept calibrate MODEL RECORDING...``: find the shortest encoder input that loses no words."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.engine_options import MODEL, add_engine_options, engine_options
from transept.cli.flags import add_flag
from transept.cli.recordings import find_recordings
from transept.cli.terminal import escape_name, print_stderr
from transept.errors import ParameterError, TranseptError
from transept.options import declared
from transept.speech.options import TranscriptionOptions
from transept.writable import why_unwritable

if TYPE_CHECKING:
    from transept.speech.calibration import Calibration
    from transept.speech.transcriber import Transcriber

MARGINS = (2.0, 5.0, 10.0)  # seconds
MOST_LOST = 0.005  # word error rate
FEW_WORDS = 200  # with fewer words, MOST_LOST is less than one word
FORM = '[{"audio": "one.flac", "text": "the spoken words"}, ...]'  # format of the transcripts' file
TRANSCRIPTS = "transcripts.json"  # file of transcripts in a folder of recordings


@dataclass(frozen=True)
class Sample:
    """A recording and its transcript; None: the text of whole windows is the reference."""

    file: Path
    text: str | None


@dataclass(frozen=True)
class Measured:
    """The result of one margin. again: share of windows that were decoded again as a whole. work: encoder positions."""

    texts: list[str]
    again: float
    work: int
    seconds: float


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept calibrate``."""
    parser = commands.add_parser(
        "calibrate",
        help=COMMANDS["calibrate"],
        usage="transept calibrate [option ...] MODEL RECORDING ...",
        description="Find the shortest encoder input for short audio that loses no words, for transept "
        "transcribe --encoder-context auto. Recordings are transcribed with whole windows, and with margins of silence "
        "after the audio. The smallest margin whose word error rate is within half a point is saved.",
        epilog="Exit code: 0 measured, even if every margin loses words, 1 failed, 2 bad usage.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument(
        "recordings",
        nargs="*",
        metavar="RECORDING",
        help=f"short recordings, or a folder of them with their texts in {TRANSCRIPTS}; without a text, the text of "
        "whole windows is the reference",
    )
    parser.add_argument("--show", action="store_true", help="print the saved result of the model, and measure nothing")
    add_flag(parser, declared(TranscriptionOptions)["language"], default=None)
    add_engine_options(parser.add_argument_group("model"))
    parser.set_defaults(run=calibrate, parser=parser)


def calibrate(arguments: argparse.Namespace) -> int:
    """Run ``transept calibrate``."""
    if arguments.show:
        if arguments.recordings:
            arguments.parser.error("--show measures nothing, so recordings have no effect; leave one of them out")
        return _show(arguments)
    if not arguments.recordings:
        arguments.parser.error(
            "name fifty recordings or more, of a few seconds each, like those that the model will transcribe, "
            f"or a folder of them with {TRANSCRIPTS}: {FORM}"
        )
    samples = _samples(arguments.recordings)
    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **engine_options(arguments))
    return _measure(arguments, transcriber, samples)


def _show(arguments: argparse.Namespace) -> int:
    from transept.core.checkpoints.source import locate
    from transept.speech.calibration import data_file, found_for

    found = found_for(locate(arguments.model, model_dir=arguments.model_dir, offline=True))
    if found is None:
        print_stderr(f"no result of {arguments.model} is saved in {escape_name(str(data_file()))}")
        return 1
    print(_verdict(found))
    for margin, rate in found.error_rates.items():
        print(f"{margin} s: word error rate {rate:.2%}, of whole windows {found.whole_error_rate:.2%}")
    return 0


def _verdict(found: Calibration) -> str:
    if found.margin is None:
        return f"{found.model}: none; every margin loses words"
    return f"{found.model}: {found.margin:g} s after the audio"


def _samples(arguments: Sequence[str]) -> list[Sample]:
    """Return the recordings of the arguments. Raises ParameterError without recordings, and for bad transcripts."""
    samples: list[Sample] = []
    for argument in arguments:
        transcripts = Path(argument) / TRANSCRIPTS
        if transcripts.is_file():
            samples += _with_transcripts(transcripts)
            continue
        found, missing = find_recordings([argument], recursive=True, allow_urls=False)
        if missing:
            raise _refusal(f"{escape_name(missing[0].file)}: {missing[0].reason}")
        samples += [Sample(Path(each.file), None) for each in found]
    if not samples:
        raise _refusal(f"no recordings found in {', '.join(map(escape_name, arguments))}: name audio files or a folder")
    return samples


def _refusal(message: str) -> ParameterError:
    return ParameterError(message, param="recordings")


def _with_transcripts(file: Path) -> list[Sample]:
    try:
        entries: Any = json.loads(file.read_text(encoding="utf-8-sig"))
        samples = [Sample(file.parent / entry["audio"], entry["text"]) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        samples = []
    if not samples or not all(isinstance(sample.text, str) for sample in samples):
        raise _refusal(f"{escape_name(str(file))} must hold a list: {FORM}")
    return samples


def _check_writable(file: Path) -> None:
    """Raise TranseptError if the file of results cannot be written."""
    if (why := why_unwritable(file)) is not None:
        raise TranseptError(
            f"cannot save a result in {escape_name(str(file))}: {why}; set XDG_DATA_HOME to another folder"
        )


def _measure(arguments: argparse.Namespace, transcriber: Transcriber, samples: Sequence[Sample]) -> int:
    from transept.speech.calibration import Calibration, data_file, found_for, keep
    from transept.speech.option_checks import check_options
    from transept.speech.word_errors import word_error_rate, words_of

    def error_rate(measured: Measured) -> float:
        heard = zip(samples, whole.texts, measured.texts, strict=True)
        return word_error_rate((was if sample.text is None else sample.text, text) for sample, was, text in heard)

    check_options(transcriber.model, transcriber.model.options({"encoder_context": MARGINS[0]}))
    found_for(transcriber.engine.view.path)  # raises for an unreadable file before the measurement
    _check_writable(data_file())
    whole = _transcribed(arguments, transcriber, samples, None)
    right = [heard if sample.text is None else sample.text for sample, heard in zip(samples, whole.texts, strict=True)]
    words = sum(len(words_of(text)) for text in right)
    if not words:
        raise TranseptError("these recordings have no words, so there is nothing to measure; name recordings of speech")
    lowest, rates, saved = error_rate(whole), {}, False
    print("margin  word errors  done again  encoder's work  seconds")
    print(f"{'none':>6}  {lowest:>11.2%}  {'':>10}  {'100%':>14}  {whole.seconds:>7.1f}", flush=True)
    for margin in MARGINS:
        one = _transcribed(arguments, transcriber, samples, margin)
        rates[margin], saved = error_rate(one), saved or one.work < whole.work
        work = f"{one.work / max(whole.work, 1):.0%}"
        print(
            f"{margin:>4g} s  {rates[margin]:>11.2%}  {one.again:>10.0%}  {work:>14}  {one.seconds:>7.1f}", flush=True
        )
    if not saved:
        raise TranseptError(
            "no margin saves work with these recordings, which are long or hard to understand, so nothing is saved; "
            "name recordings of a few seconds each"
        )
    best = next((margin for margin, rate in rates.items() if rate <= lowest + MOST_LOST), None)
    found = Calibration(arguments.model, best, lowest, {f"{margin:g}": rate for margin, rate in rates.items()})
    print(_verdict(found))
    try:
        file = keep(transcriber.engine.view.path, found)
    except OSError as error:
        raise TranseptError(f"cannot save the result: {error}") from None
    print_stderr(f"saved in {escape_name(str(file))}")
    if words < FEW_WORDS:
        print_stderr(f"{words} words are few: {MOST_LOST:.1%} of them is less than one word; use fifty recordings")
    return 0


def _transcribed(
    arguments: argparse.Namespace, transcriber: Transcriber, samples: Sequence[Sample], margin: float | None
) -> Measured:
    """Transcribe all samples. margin: seconds; None: whole windows. Raises the error of an unreadable recording."""
    counts, statistics = transcriber.model.short_contexts, transcriber.engine.core.statistics
    decoded, again, work = counts.decoded, counts.again, statistics.num_encoder_tokens
    begin = time.process_time()
    transcriber.engine.block_manager.forget_unused()  # cached encodings of another margin would count as saved work
    texts = []
    options = {"language": arguments.language, "encoder_context": margin}
    for result in transcriber.transcribe_many([sample.file for sample in samples], **options):
        if isinstance(result, TranseptError):
            raise result
        texts.append(result.text)
    share = (counts.again - again) / max(counts.decoded - decoded, 1)
    return Measured(texts, share, statistics.num_encoder_tokens - work, time.process_time() - begin)
