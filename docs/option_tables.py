"""Writes docs/options.md, the reference of all declared options, from their declarations: `make option-tables`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from transept.cli.documents import DECODING
from transept.cli.engine_options import LIMITS, NAMES
from transept.cli.flags import flag
from transept.cli.transcribe_options import CommandOptions
from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.page_options import PageOptions
from transept.option_names import Alias
from transept.options import DeclaredOption, declared, written
from transept.serving.configuration import API_KEY_FILE, CONFIG, PREFIX
from transept.serving.settings import ServerSettings
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import VadOptions
from transept.text.options import TranslationOptions
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
`vad_options` is sent as JSON, or with a field such as `vad_options[threshold]` for each of its options.
"""
ALIASES = """## Other programs' names

Names of openai-whisper, faster-whisper, transformers, vLLM and OpenAI's API that mean the same as an option. They are
accepted as keywords, flags, fields of HTTP requests, environment variables and settings. Giving an option by two names
is an error.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Return the page's Markdown."""
    speech, of_text = declared(TranscriptionOptions).values(), declared(SamplingParams)
    sections = [
        ("Transcription", "TranscriptionOptions", "`transept.transcribe`, `Transcriber`, `transept transcribe`, HTTP"),
        ("Voice activity", "VadOptions", "`vad_options=`, `transept transcribe`, HTTP"),
        ("Subtitles", "SubtitleLayout", "`Transcript.write`, `transept transcribe`, `transept align`, HTTP"),
        ("The command alone", "CommandOptions", "`transept transcribe`"),
        ("Generation", "SamplingParams", "`Engine.generate`, text tasks, `/v1/completions`"),
        ("Text tasks", "TranslationOptions", "`transept.summarize`, `translate`, `generate`, `TextGenerator`, HTTP"),
        ("Images", "ReadingOptions", "`transept.read_text`, `caption`, `VisionReader`, `transept read`, HTTP"),
        ("Pages of a PDF", "PageOptions", "`pdf_pages`, `transept read`, HTTP"),
        ("Engine", "EngineConfig", "`Engine`, `Transcriber`, `TextGenerator`, `VisionReader`, every command"),
        ("Limits", "Limits", "`limits=` of an engine"),
        ("Server", "ServerSettings", "`transept serve`"),
    ]
    rows = {
        "TranscriptionOptions": [row(each, "" if each.is_object else flag(each.name)) for each in speech],
        "VadOptions": [row(each, flag(f"vad_options.{name}")) for name, each in declared(VadOptions).items()],
        "SubtitleLayout": [row(each, flag(name)) for name, each in declared(SubtitleLayout).items()],
        "CommandOptions": [row(each, flag(name)) for name, each in declared(CommandOptions).items()],
        "SamplingParams": [
            row(each, flag(written(each)) if name in DECODING else "") for name, each in of_text.items()
        ],
        "TranslationOptions": [row(each, flag(written(each))) for each in declared(TranslationOptions).values()],
        "ReadingOptions": [row(each, flag(name)) for name, each in declared(ReadingOptions).items()],
        "PageOptions": [row(each, flag(name) if name == "dpi" else "") for name, each in declared(PageOptions).items()],
        "EngineConfig": [
            row(each, flag(written(each)) if name in (*NAMES, "model") else "")
            for name, each in declared(EngineConfig).items()
        ],
        "Limits": [row(each, flag(name) if name in LIMITS else "") for name, each in declared(Limits).items()],
        "ServerSettings": [
            row(
                each,
                "" if name in ("models", "engine") else flag(written(each)),
                variable=PREFIX + written(each).upper(),
            )
            for name, each in declared(ServerSettings).items()
        ]
        + [row(each, flag(each.name), variable=PREFIX + each.name.upper()) for each in (API_KEY_FILE, CONFIG)],
    }
    parts = [HEAD]
    for title, name, doors in sections:
        parts.append(f"## {title}\n\n`{name}`: {doors}.\n")
        parts.append(
            "| option | flag | values | default | |\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows[name])
        )
        parts.append("")
    parts += [ALIASES, "| name | option |\n| --- | --- |", *alias_rows(), ""]
    return "\n".join(parts)


def alias_rows() -> list[str]:
    """Return the rows of other programs' names."""
    kinds = (TranscriptionOptions, SamplingParams, TranslationOptions, EngineConfig)
    found: dict[str, list[str]] = {}
    for kind in kinds:
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
    if each.choices:
        named = ", ".join(f"`{word}`" for word in each.choices)
    else:
        named = " or ".join(kind.__name__ for kind in each.types)
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
