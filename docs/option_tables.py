"""Writes docs/options.md, the reference of all declared options, from their declarations: `make option-tables`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from transept.cli.chapters import ChapterOptions
from transept.cli.convert import EditOptions
from transept.cli.documents import DECODING, SEVERAL
from transept.cli.engine_options import LIMITS, NAMES
from transept.cli.flags import flag
from transept.cli.transcribe_options import CommandOptions
from transept.cli.watch import WatchOptions
from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.page_options import PageOptions
from transept.option_names import Alias
from transept.options import DeclaredOption, declared, written
from transept.serving.configuration import API_KEY_FILE, CONFIG, PREFIX
from transept.serving.settings import ServerSettings
from transept.speech.live_options import LiveOptions
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import VadOptions
from transept.text.options import EmbeddingOptions, ScoringOptions, TranslationOptions
from transept.vision.options import ReadingOptions

PAGE = Path(__file__).parent / "options.md"
LONGEST_DEFAULT = 30  # characters
HEAD = """# All options

Every option is declared once, in the class that its section names. The command line, the HTTP API and the server's
settings take it from there, with the same type, bounds and default. `make option-tables` writes this page from the
declarations. `make option-types` writes the types of public calls: editors complete the names of options, and type
checkers refuse wrong ones.

In Python, options are keyword arguments. A flag may be written with underscores (`--beam_size`). A flag without a value
may be followed by `True` or `False`. A form field of `POST /v1/audio/transcriptions` has the option's own name.
`vad_options` is sent as JSON, or with a field such as `vad_options[threshold]` for each of its options. Only
`transept serve` reads options from environment variables. The other commands report such variables as ignored.
"""
ALIASES = """## Other programs' names

Names of openai-whisper, faster-whisper, transformers, vLLM and OpenAI's API that mean the same as an option. They are
accepted as keywords, flags, fields of HTTP requests, and settings of `transept serve`. Giving an option by two names is
an error.
"""


SECTIONS = [  # title, class, where its options are accepted
    ("Transcription", TranscriptionOptions, "`transept.transcribe`, `Transcriber`, `transept transcribe`, HTTP"),
    ("Live transcription", LiveOptions, "`Transcriber.live`, `live_stream`, `transept live`"),
    ("Voice activity", VadOptions, "`vad_options=`, `transept transcribe`, HTTP"),
    ("Subtitles", SubtitleLayout, "`Transcript.write`, `transept transcribe`, `align` and `convert`, HTTP"),
    ("Edits", EditOptions, "`transept convert`"),
    ("The command alone", CommandOptions, "`transept transcribe`"),
    ("Watching", WatchOptions, "`transept watch`"),
    ("Generation", SamplingParams, "`Engine.generate`, text tasks, `/v1/completions`"),
    ("Text tasks", TranslationOptions, "`transept.summarize`, `translate`, `generate`, `TextGenerator`, HTTP"),
    (
        "Scores",
        ScoringOptions,
        "`transept.score`, `TextGenerator.score`, `transept score`. `chunk` and `decoder_prompt` are refused",
    ),
    (
        "Embeddings",
        EmbeddingOptions,
        "`transept.embed`, `TextGenerator.encode`, `transept embed`, HTTP. `chunk` and `decoder_prompt` are refused",
    ),
    ("Chapters", ChapterOptions, "`transept summarize`"),
    ("Images", ReadingOptions, "`transept.read_text`, `caption`, `VisionReader`, `transept read`, HTTP"),
    ("Pages of a PDF", PageOptions, "`pdf_pages`, `transept read`, HTTP"),
    ("Engine", EngineConfig, "`Engine`, `Transcriber`, `TextGenerator`, `VisionReader`, every command"),
    ("Limits", Limits, "`limits=` of an engine"),
    ("Server", ServerSettings, "`transept serve`"),
]
WITH_FLAG = {
    SamplingParams: (*DECODING, *SEVERAL),
    PageOptions: ("dpi",),
    EngineConfig: (*NAMES, "model"),
    Limits: LIMITS,
}
WITHOUT_FLAG = ("vad_options", "models", "engine")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Return the page's Markdown."""
    tables = [_section(*section) for section in SECTIONS]
    return "\n".join([HEAD, *tables, ALIASES, "| name | option |\n| --- | --- |", *alias_rows(), ""])


def _section(title: str, kind: Any, doors: str) -> str:
    options = list(declared(kind).values())
    if kind is ServerSettings:
        options += [API_KEY_FILE, CONFIG]
    rows = []
    for each in options:
        name = f"vad_options.{each.name}" if kind is VadOptions else written(each)
        if kind is ServerSettings:
            each = dataclasses.replace(each, name=name)  # the key in TOML
        called = flag(name) if each.name in WITH_FLAG.get(kind, [each.name]) and each.name not in WITHOUT_FLAG else ""
        variable = PREFIX + name.upper() if kind is ServerSettings and each.name != "engine" else ""
        rows.append(row(each, called, variable))
    head = "| option | flag | values | default | |\n| --- | --- | --- | --- | --- |"
    return "\n".join([f"## {title}\n\n`{kind.__name__}`: {doors}.\n", head, *rows, ""])


def alias_rows() -> list[str]:
    """Return the rows of other programs' names."""
    found: dict[str, list[str]] = {}
    for kind in (TranscriptionOptions, SamplingParams, TranslationOptions, EngineConfig):
        for each in declared(kind).values():
            for alias in each.aliases:
                found.setdefault(alias.name, []).extend(meaning(alias, f"{kind.__name__}.{each.name}"))
    return [f"| `{name}` | {', '.join(dict.fromkeys(means))} |" for name, means in sorted(found.items())]


def meaning(alias: Alias, name: str) -> list[str]:
    """Return what an alias stands for: an option, or values of it."""
    if alias.values is None:
        return [f"`{name}`"]
    return [f"`{value}` `{name}={ours!r}`" for value, ours in alias.values.items() if ours is not None]


def row(each: DeclaredOption, called: str, variable: str = "") -> str:
    """Return the row of an option. called: its flag. variable: of the environment."""
    code = [f"`{name}`" for name in (called, variable) if name]
    about = f"{each.option.help[:1].upper()}{each.option.help[1:]}. {each.option.more}".strip()
    about = re.sub(r"(?<![`-])(--[a-z]+(?:-[a-z]+)*-?)", r"`\1`", about)
    cells = [f"`{each.name}`", " ".join(code), values(each), default(each), about]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def values(each: DeclaredOption) -> str:
    """Return what an option's values are."""
    option = each.option
    kinds = [kind.__name__ for kind in each.types if not (each.choices and kind is str)]
    words = ", ".join(f"`{word}`" for word in each.choices)
    named = " or ".join(filter(None, [*kinds, words]))
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in (("≥", option.ge), (">", option.gt), ("<", option.lt), ("≤", option.le))
        if bound is not None and abs(bound) < 1 << 20
    ]
    return ", ".join([named, *bounds]) + (" or None" if each.optional else "")


def default(each: DeclaredOption) -> str:
    """Return an option's default, in Python."""
    value = each.default
    if value is dataclasses.MISSING:
        return ""
    shown = repr(value)
    return f"`{shown}`" if len(shown) <= LONGEST_DEFAULT else "see the class"


if __name__ == "__main__":
    main()
