"""``transept calibrate MODEL RECORDING...``: how little of a window a model's encoder may read without losing words."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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

if TYPE_CHECKING:
    from transept.speech.calibration import Calibration
    from transept.speech.transcriber import Transcriber

MARGINS = (2.0, 5.0, 10.0)  # seconds
MOST_LOST = 0.005  # word error rate
FEW_WORDS = 200  # of fewer, that rate is less than one
TRANSCRIPTS = "transcripts.json"  # of a folder: [{"audio": file, "text": what is said}, ...]


@dataclass(frozen=True)
class Sample:
    """A recording, and what is said in it; None: what the model hears in whole windows."""

    file: Path
    text: str | None


@dataclass(frozen=True)
class Measured:
    """What one margin gave. again: share of windows that were decoded as a whole. work: encoder positions."""

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
        description="Find how little of short audio a model's encoder may read without losing words, for transept "
        "transcribe --encoder-context auto: recordings are transcribed with whole windows, and with margins of silence "
        "after their sound. The smallest margin whose word error rate is within half a point is kept.",
        epilog="Exit code: 0 measured, even if every margin loses words, 1 not measured, 2 bad usage.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument(
        "recordings",
        nargs="*",
        metavar="RECORDING",
        help=f"short recordings, or a folder with {TRANSCRIPTS}, which says what is said in them; where nothing does, "
        "the text of whole windows counts as right",
    )
    parser.add_argument("--show", action="store_true", help="print what is kept for the model, and measure nothing")
    add_flag(parser, declared(TranscriptionOptions)["language"], default=None)
    add_engine_options(parser.add_argument_group("model"))
    parser.set_defaults(run=calibrate, parser=parser)


def calibrate(arguments: argparse.Namespace) -> int:
    """``transept calibrate``."""
    if arguments.show:
        if arguments.recordings:
            arguments.parser.error("--show measures nothing, and so takes no recordings; leave one of them out")
        return _show(arguments)
    if not arguments.recordings:
        arguments.parser.error(
            "name recordings of what the model is to hear, of a few seconds each, fifty or more; or a folder of them "
            f"with {TRANSCRIPTS}: " + '[{"audio": "one.flac", "text": "what is said"}, ...]'
        )
    samples = _samples(arguments.recordings)
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **engine_options(arguments))
    return _measure(arguments, transcriber, samples)


def _show(arguments: argparse.Namespace) -> int:
    from transept.core.checkpoints.source import locate
    from transept.speech.calibration import data_file, found_for

    found = found_for(locate(arguments.model, model_dir=arguments.model_dir, offline=True))
    if found is None:
        print_stderr(f"nothing is kept for {arguments.model} in {escape_name(str(data_file()))}")
        return 1
    print(_verdict(found))
    for margin, rate in found.error_rates.items():
        print(f"{margin} s: word error rate {rate:.2%}, of whole windows {found.whole_error_rate:.2%}")
    return 0


def _verdict(found: Calibration) -> str:
    if found.margin is None:
        return f"{found.model}: none; every margin loses words"
    return f"{found.model}: {found.margin:g} s after the sound"


def _samples(arguments: Sequence[str]) -> list[Sample]:
    """The recordings that are named, or lie in folders. Raises ParameterError for none, and for bad transcripts."""
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
        raise _refusal(f"there are no recordings in {', '.join(map(escape_name, arguments))}")
    return samples


def _refusal(message: str) -> ParameterError:
    return ParameterError(message, param="recordings")


def _with_transcripts(file: Path) -> list[Sample]:
    try:
        entries: Any = json.loads(file.read_text(encoding="utf-8"))
        samples = [Sample(file.parent / entry["audio"], entry["text"]) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        samples = []
    if not samples or not all(isinstance(sample.text, str) for sample in samples):
        raise _refusal(
            f"{escape_name(str(file))} must hold a list: " + '[{"audio": "one.flac", "text": "what is said"}, ...]'
        )
    return samples


def _check_place(folder: Path) -> None:
    """Raise TranseptError where it is plain that nothing could be kept."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise TranseptError(
            f"nothing can be kept in {escape_name(str(folder))}: {escape_name(str(there))} is no folder that may "
            "be written; XDG_DATA_HOME names another place"
        )


def _measure(arguments: argparse.Namespace, transcriber: Transcriber, samples: Sequence[Sample]) -> int:
    from transept.speech.calibration import Calibration, data_file, found_for, keep
    from transept.speech.word_errors import word_error_rate, words_of

    def error_rate(measured: Measured) -> float:
        heard = zip(samples, whole.texts, measured.texts, strict=True)
        return word_error_rate((was if sample.text is None else sample.text, text) for sample, was, text in heard)

    transcriber.model.check(transcriber.model.options({"encoder_context": MARGINS[0]}))
    found_for(transcriber.engine.view.path)  # a file that cannot be read is told before anything is measured
    _check_place(data_file().parent)
    whole = _transcribed(arguments, transcriber, samples, None)
    right = [heard if sample.text is None else sample.text for sample, heard in zip(samples, whole.texts, strict=True)]
    words = sum(len(words_of(text)) for text in right)
    if not words:
        raise TranseptError("no word is said in these recordings: nothing can be lost of them, and nothing is kept")
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
            "no margin saves work with these recordings, which are long or hard to hear, and nothing is kept: name "
            "recordings of a few seconds each"
        )
    best = next((margin for margin, rate in rates.items() if rate <= lowest + MOST_LOST), None)
    found = Calibration(arguments.model, best, lowest, {f"{margin:g}": rate for margin, rate in rates.items()})
    print(_verdict(found))
    try:
        file = keep(transcriber.engine.view.path, found)
    except OSError as error:
        raise TranseptError(f"cannot keep that: {error}") from None
    print_stderr(f"kept in {escape_name(str(file))}")
    if words < FEW_WORDS:
        print_stderr(
            f"measured with {words} words, of which {MOST_LOST:.1%} is less than one: fifty recordings say more"
        )
    return 0


def _transcribed(
    arguments: argparse.Namespace, transcriber: Transcriber, samples: Sequence[Sample], margin: float | None
) -> Measured:
    """The texts of all samples. margin: seconds; None: whole windows. Raises the error of one that cannot be read."""
    counts, statistics = transcriber.model.short_contexts, transcriber.engine.core.statistics
    decoded, again, work = counts.decoded, counts.again, statistics.num_encoder_tokens
    begin = time.process_time()
    # What was encoded for another margin must not count as saved.
    transcriber.engine.block_manager.forget_unused()
    texts = []
    options = {"language": arguments.language, "encoder_context": margin}
    for result in transcriber.transcribe_many([sample.file for sample in samples], **options):
        if isinstance(result, TranseptError):
            raise result
        texts.append(result.text)
    share = (counts.again - again) / max(counts.decoded - decoded, 1)
    return Measured(texts, share, statistics.num_encoder_tokens - work, time.process_time() - begin)
