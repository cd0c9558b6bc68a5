"""The commands, in the order of ``transept --help``, with what each does: known without importing any of them."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "transcribe": "transcribe audio and video files, or translate their speech to English",
    "align": "find when each word of a known text is said in a recording",
    "calibrate": "find how little of short audio a model's encoder may read",
    "summarize": "summarize text files",
    "translate": "translate text files",
    "generate": "give text files to a model as they are, and print what it writes",
    "read": "read the text in images",
    "batch": "run a model over many files, on replicas of it on this machine or a Ray cluster",
    "serve": "serve models over HTTP: OpenAI's API, and a page for the browser",
    "models": "show the models that have short names and which are on this machine; download some",
    "plugins": "show, check, install and write plugins",
    "env": "show what is installed and what it runs on, for a bug report",
}
