"""The commands, in the order of ``transept --help``, each with its description. Imports none of them."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "transcribe": "transcribe audio and video files, or translate their speech to English",
    "live": "transcribe speech while it is spoken, from a microphone or standard input",
    "watch": "transcribe recordings as they appear in a folder",
    "align": "find the time of each word of a known text in a recording",
    "voices": "enroll voices, list and remove them, so that transcripts name their speakers",
    "convert": "convert and edit transcripts and subtitles",
    "check-subtitles": "report the subtitle rules that files break",
    "calibrate": "find the shortest encoder input that loses no words",
    "summarize": "summarize text files",
    "translate": "translate text files",
    "translate-subtitles": "translate subtitles, and keep their times",
    "generate": "give text files to a model unchanged, and print its output",
    "score": "print how likely a model finds given texts",
    "embed": "print texts as vectors, or write them to a .npy file",
    "read": "read the text in images",
    "batch": "run a model over many files, on replicas of it on this machine or a Ray cluster",
    "serve": "serve models over HTTP: OpenAI's API, and a page for the browser",
    "models": "list the models that have short names, show which are on this machine, and download them",
    "plugins": "list, check, install and write plugins",
    "env": "show the installed versions and the hardware, for a bug report",
}
TEXT_COMMANDS = ("summarize", "translate", "generate")  # all in the module `documents`
