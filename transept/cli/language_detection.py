"""``transept transcribe --detect-language FILE...``: print the language of each file, and no text."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transept.cli.terminal import escape, escape_name
from transept.cli.transcribe_options import LAYOUT, CommandOptions
from transept.errors import MediaError
from transept.options import declared

if TYPE_CHECKING:
    from transept.cli.run_summary import RunSummary, TranscriptionTask
    from transept.speech.transcriber import Transcriber

OF_FILES = (
    *("output_format", "output_dir", "beside", "output_name", "skip_existing"),
    *("manifest", "verbose", "print_confidence"),
)
OPTIONS = ("audio_track", "channel", "even_loudness", "language_detection_segments", "language_detection_threshold")


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit with a usage error for an option of transcripts. Raises ParameterError for more than one channel."""
    from transept.speech.option_values import language_or_none
    from transept.speech.options import TranscriptionOptions

    given = vars(arguments)
    if language_or_none("language", given.get("language")) is not None:
        parser.error("--detect-language detects the spoken language, and --language says it; leave one out")
    of_transcripts = {*declared(TranscriptionOptions), *declared(CommandOptions), *LAYOUT}
    of_transcripts -= {*OPTIONS, "language", "detect_language"}
    useless = [name for name in OF_FILES if given[name] not in (None, False)]
    useless += [name for name in given if name in of_transcripts or name.startswith("vad_")]  # there only if given
    if useless:
        off = isinstance(given[useless[0]], bool) and not given[useless[0]]
        option = f"--{'no-' if off else ''}{useless[0].replace('_', '-')}"
        parser.error(f"--detect-language transcribes nothing, so {option} has no effect; leave one out")
    TranscriptionOptions(**{name: given[name] for name in OPTIONS if name in given}).refuse_speakers()


def detect_languages(
    transcriber: Transcriber,
    arguments: argparse.Namespace,
    audios: Iterable[tuple[TranscriptionTask, Any]],
    summary: RunSummary,
    several: bool,
) -> None:
    """Print the language of each recording and its probability; with --json, the probability of every language.

    audios: recordings, each with the argument of `Transcriber.detect_language`. several: True to print file names.
    """
    options = {name: getattr(arguments, name) for name in OPTIONS if hasattr(arguments, name)}
    for task, audio in audios:
        file = task.recording.file
        try:
            with contextlib.redirect_stdout(sys.stderr):
                language, probability, probabilities = transcriber.detect_language(audio, **options)
        except MediaError as error:
            summary.fail(file, str(error))
            continue
        if arguments.json:
            ranked = dict(sorted(probabilities.items(), key=lambda each: -each[1]))
            found = {"language": language, "language_probability": probability, "language_probabilities": ranked}
            print(escape(json.dumps({"file": file, **found}, ensure_ascii=False)), flush=True)
        else:
            name = f"{escape_name(file)}: " if several else ""
            print(f"{name}{language} {probability:.2f}", flush=True)
