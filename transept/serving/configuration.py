"""Where a server's settings come from: flags, then variables of the environment, then a TOML file, then the defaults.

Called by `transept serve`. How a setting is written follows from its declaration; nothing heavy is imported here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from transept.core.config import EngineConfig
from transept.errors import ParameterError, shown
from transept.option_names import Alias, by_own_names, refuse_unknown
from transept.options import DeclaredOption, Option, declared, written
from transept.serving.settings import ModelSource, ServerSettings, read_keys

PREFIX = "TRANSEPT_"  # of the variables: TRANSEPT_MAX_QUEUE is --max-queue
MODELS = declared(ServerSettings)["models"]  # the command's arguments
API_KEY_FILE = DeclaredOption(
    "api_key_file", Option("file of API keys, one a line", metavar="FILE"), (str,), (), False, None
)
CONFIG = DeclaredOption(
    "config", Option("TOML file of settings; flags and variables win", metavar="FILE"), (str,), (), False, None
)
_SERVER = {name: each for name, each in declared(ServerSettings).items() if name not in ("models", "engine")}
SETTINGS = (_SERVER.pop("api_keys"), API_KEY_FILE, *_SERVER.values())
ENGINE = declared(EngineConfig)  # flags of every command that runs a model; in the file they stand under [engine]

Given: TypeAlias = Mapping[str, Any]


def has_many(setting: DeclaredOption) -> bool:
    """True for a setting of several texts: a repeated flag, a list in TOML, in a variable texts with commas."""
    return tuple in setting.types


def read_settings(flags: Given, environment: Mapping[str, str]) -> ServerSettings:
    """The server's settings.

    flags: by the names of ServerSettings and of EngineConfig, None for one that was not given. environment: os.environ.
    Raises ParameterError for a value of a wrong type, naming the variable or the file that holds it, for an unknown
    name in the file, with the nearest one, and for what ServerSettings refuses.
    """
    file = flags.get("config") or environment.get(f"{PREFIX}CONFIG")
    sources = [
        _of_file(Path(file)) if file else {},
        _of_environment(environment),
        by_own_names(
            {name: value for name, value in flags.items() if value is not None and name != "config"}, ENGINE.values()
        ),
    ]
    found: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    places: dict[str, str] = {}  # of names in the file and in the environment
    for source, place in zip(sources, (partial(_in_file, file), _in_environment, None), strict=True):
        for name in (*source, *source.get("engine", {})):
            places.pop(name, None)
            if place is not None:
                places[name] = place(name)
        engine |= source.get("engine", {})
        engine |= {name: value for name, value in source.items() if name in ENGINE}
        found |= {name: value for name, value in source.items() if name not in {"engine", *ENGINE}}
    try:
        keys = tuple(found.pop("api_keys", ()))
        if (key_file := found.pop("api_key_file", None)) is not None:
            keys += read_keys(key_file)
        models = tuple(ModelSource.parse(each) for each in found.pop("models", ()))
        if "cors" in found:
            found["cors"] = tuple(found["cors"])
        return ServerSettings(models, api_keys=keys, engine=engine, **found)
    except ParameterError as error:
        raise error.renamed(partial(_place, places)) from None


def _place(places: Mapping[str, str], name: str) -> str:
    """Return the variable or the key that an option came from, or its name if a flag gave it."""
    whole, _, part = name.partition(".")
    return places.get(part) or (f"{places[whole]}{name[len(whole) :]}" if whole in places else name)


def _in_environment(name: str) -> str:
    """Return the variable of a setting, or of an option of the engine."""
    return _variable(next(written(each) for each in (MODELS, *SETTINGS, *ENGINE.values()) if each.name == name))


def _in_file(file: Any, name: str) -> str:
    """Return the place of a setting, or of an option of the engine, in a TOML file."""
    settings = {each.name: written(each) for each in (MODELS, *SETTINGS)}
    return f'"{file}": {settings.get(name) or (name if name == "engine" else f"engine.{name}")}'


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting in (MODELS, *SETTINGS, *ENGINE.values()):
        for alias in (Alias(written(setting)), *setting.aliases):
            variable = _variable(alias.name)
            text = environment.get(variable)
            if text is None or setting.name in ("model", "launcher"):
                continue
            name = setting.name if alias.name == written(setting) else alias.name
            if setting.name == "api_keys":
                found[name] = [text]  # which may hold a comma
            elif has_many(setting):
                found[name] = [part.strip() for part in text.split(",") if part.strip()]
            else:
                found[name] = _in(variable, partial((setting if alias.values is None else alias).from_text, text))
    try:
        return by_own_names(found, ENGINE.values())
    except ParameterError as error:
        raise error.renamed(_variable) from None


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _in(place: str, value: Callable[[], Any]) -> Any:
    """Return a value. Raises its ParameterError with the place that holds it in the option's stead."""
    try:
        return value()
    except ParameterError as error:
        raise error.renamed(lambda _: place) from None


def _of_file(file: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        message = f'the settings "{file}" cannot be read: {error.strerror}'
        raise ParameterError(message, param="config", value=file) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ParameterError(f'the settings "{file}" are not TOML: {error}', param="config", value=file) from None
    known = {written(setting): setting for setting in (MODELS, *SETTINGS)}
    refuse_unknown(f'"{file}" has an unknown setting', given, [*known, "engine"])
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "engine":
            if not isinstance(value, dict):
                message = f'"{file}": engine must be a table of the engine\'s options, not {shown(value)}'
                raise ParameterError(message, param="engine", value=value)
            try:
                found[name] = by_own_names(value, ENGINE.values())
            except ParameterError as error:
                raise error.renamed(lambda each: f"engine.{each}").at(f'"{file}"') from None
            continue
        setting, place = known[name], f'"{file}": {name}'
        if setting is MODELS and isinstance(value, dict):  # a table of name = model
            value = [each + "=" + _text(model, f'"{file}": {each}') for each, model in value.items()]
        if has_many(setting):
            values = value if isinstance(value, list) else [value]
            found[setting.name] = [_text(each, place) for each in values]
        else:
            found[setting.name] = _in(place, partial(setting.taken, value))
    if "api_key_file" in found:
        found["api_key_file"] = file.parent / found["api_key_file"]
    return found


def _text(value: Any, place: str) -> str:
    """Return a text. Raises ParameterError for a value of another kind; place: begins the message."""
    if not isinstance(value, str):
        raise ParameterError(f"{{{place}}} must be a text, not {shown(value)}", param=place, value=value)
    return value
