"""``transept voices SUBCOMMAND``: enroll voices in a file, list and remove them."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.run_summary import counted
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.errors import MediaError, ParameterError
from transept.speech.voices.store import Voices, checked_name, default_file, locked
from transept.writable import why_unwritable

if TYPE_CHECKING:
    from transept.speech.voices.heard import HeardVoice


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept voices`` and its subcommands."""
    parser = commands.add_parser(
        "voices",
        help=COMMANDS["voices"],
        description="Enroll voices in a file, list and remove them. `transept transcribe --voices FILE` names the "
        "speakers after them.",
    )
    subcommands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    about = "add a voice, or more speech of a known one"
    enroll_parser = subcommands.add_parser(
        "enroll",
        help=about,
        description=f"{about.capitalize()}. Ten seconds of clear speech of one person are enough.",
        epilog="Exit code: 0 enrolled, 1 a recording is unreadable or too short (nothing is enrolled), 2 bad usage.",
    )
    enroll_parser.add_argument("name", metavar="NAME", help="name of the speaker")
    enroll_parser.add_argument("files", nargs="+", metavar="FILE", help="recording of this voice alone")
    enroll_parser.set_defaults(run=enroll, parser=enroll_parser)

    about = "list the voices, each with the length of its speech"
    list_parser = subcommands.add_parser("list", help=about, description=about.capitalize() + ".")
    list_parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    list_parser.set_defaults(run=list_voices, parser=list_parser)

    about = "remove voices from the file"
    remove_parser = subcommands.add_parser("remove", help=about, description=about.capitalize() + ".")
    remove_parser.add_argument("names", nargs="+", metavar="NAME", help="name of a voice")
    remove_parser.set_defaults(run=remove, parser=remove_parser)

    for subparser in (enroll_parser, list_parser, remove_parser):
        subparser.add_argument(
            "--voices", metavar="FILE", type=Path, default=default_file(), help="file of voices (default: your own)"
        )


def enroll(arguments: argparse.Namespace) -> int:
    """Run ``transept voices enroll``."""
    known = Voices.read(arguments.voices, missing_ok=True)
    if (why := why_unwritable(arguments.voices)) is not None:
        raise _unwritable(arguments.voices, why)
    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        from transept.speech.voices.heard import installed_embedder, voice_in

        checked_name("name", arguments.name)
        model = (embedder := installed_embedder()).model
        known.check_model(model)
        heard: list[HeardVoice] = []
        for file in arguments.files:
            try:
                voice = voice_in(file, embedder)
            except MediaError as error:
                print_stderr(f"transept: {escape_name(file)}: {escape(str(error))}")
                return 1
            assert voice.embedding is not None
            known.check_length(len(voice.embedding))
            heard.append(voice)
        _warn(arguments, known, heard, model.threshold)

    def add(voices: Voices) -> Voices:
        for voice in heard:
            assert voice.embedding is not None
            voices = voices.with_voice(arguments.name, voice.embedding.tolist(), voice.seconds, model.name)
        return voices

    name = arguments.name.strip()
    enrolled = next(each for each in _changed(arguments.voices, add).voices if each.name == name)
    print(escape(f"{name}: {enrolled.seconds:.1f} s of speech in {counted(enrolled.recordings, 'recording')}"))
    print_stderr(f"wrote {escape_name(arguments.voices)}")
    return 0


def list_voices(arguments: argparse.Namespace) -> int:
    """Run ``transept voices list``."""
    known = Voices.read(arguments.voices, missing_ok=True)
    if arguments.json:
        listed = [{"name": each.name, "seconds": each.seconds, "recordings": each.recordings} for each in known.voices]
        print(escape(json.dumps({"file": str(arguments.voices), "model": known.model, "voices": listed})))
        return 0
    for voice in known.voices:
        print(escape(f"{voice.name}: {voice.seconds:.1f} s of speech in {counted(voice.recordings, 'recording')}"))
    where = escape_name(arguments.voices)
    print_stderr(f"{where}: voices of the model {escape(known.model)}" if known.voices else f"{where}: no voices")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Run ``transept voices remove``. Removes all the named voices, or none if one is unknown."""
    Voices.read(arguments.voices)  # raises for a missing file

    def drop(voices: Voices) -> Voices:
        for name in arguments.names:
            voices = voices.without(name)
        return voices

    left = _changed(arguments.voices, drop).voices
    print_stderr(f"{escape_name(arguments.voices)}: {counted(len(left), 'voice')} left")
    return 0


def _changed(file: Path, change: Any) -> Voices:
    """Change the file of voices, while no other process does. Raises ParameterError for a file that is not writable."""
    try:
        with locked(file):
            voices: Voices = change(Voices.read(file, missing_ok=True))
            voices.write(file)
    except OSError as error:
        raise _unwritable(file, error.strerror or str(error)) from None
    return voices


def _unwritable(file: Path, why: str) -> ParameterError:
    return ParameterError(f'{{voices}}: cannot write "{file}": {why}', param="voices", value=str(file))


def _warn(arguments: argparse.Namespace, known: Voices, heard: list[HeardVoice], threshold: float) -> None:
    """Warn of a recording whose voice differs from the enrolled one, or is enrolled under another name."""
    name, embeddings = arguments.name.strip(), {each.name: each.embedding for each in known.voices}
    own = embeddings.pop(name, None)
    for file, voice in zip(arguments.files, heard, strict=True):
        assert voice.embedding is not None
        own = own or voice.embedding.tolist()
        if (similarity := float(voice.embedding @ own)) < threshold:
            print_stderr(
                f"{escape_name(file)}: this may be another voice than {escape(name)}'s: their similarity is "
                f"{similarity:.2f}, below the threshold of {threshold:.2f}"
            )
        for other, embedding in embeddings.items():
            if (similarity := float(voice.embedding @ embedding)) >= threshold:
                print_stderr(f"{escape_name(file)}: sounds like {escape(other)}, with a similarity of {similarity:.2f}")
