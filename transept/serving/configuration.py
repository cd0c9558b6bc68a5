"""Where a server's settings come from: flags, then variables of the environment, then a TOML file, then the defaults.

Called by `transept serve`. One table says of every setting how it is written; nothing heavy is imported here.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from transept.core.config import EngineConfig
from transept.errors import ParameterError, shown
from transept.option_names import refuse_unknown
from transept.options import TRUTHS
from transept.serving.settings import ModelSource, ServerSettings, read_keys

PREFIX = "TRANSEPT_"  # of the variables: TRANSEPT_MAX_QUEUE is --max-queue
KINDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}

Given: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A setting as users write it.

    name: in the TOML file; with dashes it is the flag, in capitals behind TRANSEPT_ the variable. kind: of its value,
    or of each where there are many: a repeated flag, a list in TOML, and in a variable texts with commas between them.
    """

    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    metavar: str | None
    help: str
    many: bool = False

    @property
    def flag(self) -> str:
        """On the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """In the environment."""
        return PREFIX + self.name.upper()


MODELS = Setting("models", str, "MODEL", "what to serve", many=True)  # the command's arguments
SETTINGS = (
    Setting("host", str, "ADDRESS", "address to listen on; 0.0.0.0: every network (default: 127.0.0.1)"),
    Setting("port", int, "N", "port to listen on; 0: any that is free (default: 8000)"),
    Setting(
        "api_key",
        str,
        "KEY",
        "a key that clients must send; the list of processes shows it, so prefer a file",
        many=True,
    ),
    Setting("api_key_file", str, "FILE", "file of such keys, one a line"),
    Setting("max_queue", int, "N", "requests that may wait for a model, beyond which the answer is 429 (default: 64)"),
    Setting("max_running", int, "N", "recordings or documents that a model works on at a time (default: 16)"),
    Setting("max_uploads", int, "N", "requests that are received at a time (default: 512)"),
    Setting("max_upload_mb", float, "MB", "refuse larger requests, in MiB (default: 512)"),
    Setting("max_audio_seconds", float, "S", "refuse longer recordings (default: 4 hours)"),
    Setting("audio_memory_mb", float, "MB", "memory for the samples of all recordings, in MiB (default: 2048)"),
    Setting("max_text_characters", int, "N", "refuse longer documents (default: 33554432)"),
    Setting("upload_timeout", float, "S", "fail an upload that pauses this long (default: 30)"),
    Setting("cors", str, "ORIGIN", "let pages of this origin call it: https://example.org", many=True),
    Setting("root_path", str, "PATH", "path at which a proxy shows it, such as /speech"),
    Setting("shutdown_timeout", float, "S", "time for running requests after SIGTERM (default: 30)"),
    Setting("log_json", bool, None, "write the log as JSON"),
    Setting("log_probes", bool, None, "also log requests to /health, /ready and /metrics"),
)
ENGINE_SETTINGS = (  # flags of every command that runs a model; in the file they stand, with others, under [engine]
    Setting("plugin", str, "NAME", "see `transept serve --help`"),
    Setting("device", str, "NAME", "see `transept serve --help`"),
    Setting("dtype", str, "NAME", "see `transept serve --help`"),
    Setting("quantization", str, "NAME", "see `transept serve --help`"),
    Setting("threads", int, "N", "see `transept serve --help`"),
    Setting("tensor_parallel_size", int, "N", "processes, or GPUs, that share each of the model's layers"),
    Setting("pipeline_parallel_size", int, "N", "processes, or GPUs, that the model's layers are divided among"),
    Setting("model_dir", str, "DIR", "see `transept serve --help`"),
    Setting("offline", bool, None, "see `transept serve --help`"),
)
ENGINE_FIELDS = {"threads": "num_threads"}  # where EngineConfig's name is another
CONFIG = Setting("config", str, "FILE", "TOML file of settings; flags and variables win")


def read_settings(flags: Given, environment: Mapping[str, str]) -> ServerSettings:
    """The server's settings.

    flags: by the names of `Setting` and of EngineConfig, None for one that was not given. environment: os.environ.
    Raises ParameterError for a value of a wrong type, naming the variable or the file that holds it, for an unknown
    name in the file, with the nearest one, and for what ServerSettings refuses.
    """
    file = flags.get("config") or environment.get(CONFIG.variable)
    sources = [
        _of_file(Path(file)) if file else {},
        _of_environment(environment),
        {name: value for name, value in flags.items() if value is not None and name != "config"},
    ]
    found: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    engine_names = {field.name for field in dataclasses.fields(EngineConfig)}
    for source in sources:
        engine |= source.get("engine", {})
        engine |= {name: value for name, value in source.items() if name in engine_names}
        found |= {name: value for name, value in source.items() if name not in {"engine", *engine_names}}
    keys = tuple(found.pop("api_key", ()))
    if (key_file := found.pop("api_key_file", None)) is not None:
        keys += read_keys(key_file)
    models = tuple(ModelSource.parse(each) for each in found.pop("models", ()))
    for name in (each.name for each in SETTINGS if each.many):
        if name in found:
            found[name] = tuple(found[name])
    return ServerSettings(models, api_keys=keys, engine=engine, **found)


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting in (MODELS, *SETTINGS, *ENGINE_SETTINGS):
        text = environment.get(setting.variable)
        if text is None:
            continue
        name = ENGINE_FIELDS.get(setting.name, setting.name)
        if setting.name == "api_key":
            found[name] = [text]  # which may hold a comma
        elif setting.many:
            found[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            found[name] = _of_text(setting, text)
    return found


def _of_text(setting: Setting, text: str) -> Any:
    """The value that a variable's text stands for."""
    try:
        return TRUTHS[text.strip().lower()] if setting.kind is bool else setting.kind(text)
    except (KeyError, ValueError):
        raise ParameterError(f"{setting.variable} must be {KINDS[setting.kind]}, not {shown(text)}") from None


def _of_file(file: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f'the settings "{file}" cannot be read: {error.strerror}') from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ParameterError(f'the settings "{file}" are not TOML: {error}') from None
    known = {setting.name: setting for setting in (MODELS, *SETTINGS)}
    refuse_unknown(f'"{file}" has an unknown setting', given, [*known, "engine"])
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "engine":
            if not isinstance(value, dict):
                raise ParameterError(f'"{file}": engine must be a table of the engine\'s options, not {shown(value)}')
            found[name] = value
            continue
        if name == "models" and isinstance(value, dict):  # a table of name = model
            value = [f"{each}={model}" for each, model in value.items() if _is_a(str, model, file, each)]
        setting = known[name]
        if setting.many:
            values = value if isinstance(value, list) else [value]
            found[name] = [each for each in values if _is_a(setting.kind, each, file, name)]
        elif _is_a(setting.kind, value, file, name):
            found[name] = value
    if "api_key_file" in found:
        found["api_key_file"] = file.parent / found["api_key_file"]
    return found


def _is_a(kind: type, value: Any, file: Path, name: str) -> bool:
    """True. Raises ParameterError for a value of another kind."""
    fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        raise ParameterError(f'"{file}": {name} must be {KINDS[kind]}, not {shown(value)}')
    return True
