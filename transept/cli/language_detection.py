"""``transept transcribe --detect-language FILE...``: the language of each file, and nothing of its text."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transept.cli.terminal import escape, escape_name
from transept.cli.transcribe_options import LAYOUT
from transept.errors import MediaError

if TYPE_CHECKING:
    from transept.cli.run_summary import RunSummary, TranscriptionTask
    from transept.speech.transcriber import Transcriber

OF_FILES = (
    *("output_format", "output_dir", "beside", "output_name", "skip_existing"),
    *("manifest", "verbose", "print_confidence"),
)
OPTIONS = ("audio_track", "channel", "language_detection_segments", "language_detection_threshold")


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave with a usage error for what asks for a transcript beside the language; before other options are looked at.

    Raises ParameterError for channels that are not one.
    """
    from transept.speech.option_values import language_or_none
    from transept.speech.options import TranscriptionOptions

    given = vars(arguments)
    if language_or_none("language", given.get("language")) is not None:
        parser.error("--detect-language finds out which language is spoken, and --language says it; leave one out")
    of_transcripts = {*TranscriptionOptions.names(), *LAYOUT} - {*OPTIONS, "language"}
    useless = [name for name in OF_FILES if given[name] not in (None, False)]
    useless += [name for name in given if name in of_transcripts or name.startswith("vad_")]  # there only if given
    if useless:
        off = isinstance(given[useless[0]], bool) and not given[useless[0]]
        option = f"--{'no-' if off else ''}{useless[0].replace('_', '-')}"
        parser.error(f"--detect-language transcribes nothing, so there is nothing for {option}; leave one out")
    TranscriptionOptions(**{name: given[name] for name in OPTIONS if name in given}).refuse_speakers()


def detect_languages(
    transcriber: Transcriber,
    arguments: argparse.Namespace,
    audios: Iterable[tuple[TranscriptionTask, Any]],
    summary: RunSummary,
    several: bool,
) -> None:
    """Print the language of each recording, with its probability; with --json, of all languages.

    audios: recordings, and what `Transcriber.detect_language` takes of each. several: whether files are named.
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
