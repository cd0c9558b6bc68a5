"""Read a server's settings from flags, environment variables and a TOML file, in this order, else the defaults.

Called by `transept serve`. A setting's names follow from its declaration. This module does not import torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from transept.core.config import EngineConfig
from transept.errors import ParameterError, shown
from transept.option_names import Alias, aliases_in, by_own_names, hint, refuse_unknown
from transept.options import DeclaredOption, Option, declared, written
from transept.serving.settings import ModelSource, ServerSettings, read_keys

PREFIX = "TRANSEPT_"  # of the variables: TRANSEPT_MAX_QUEUE is --max-queue
OTHER_VARIABLES = ("TRANSEPT_CPU_LEVEL", "TRANSEPT_DISABLE_PLUGINS", "TRANSEPT_EXCHANGE")  # read by other modules
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
    """True for a setting of several texts: a repeated flag, a list in TOML, or a variable with commas."""
    return tuple in setting.types


def read_settings(flags: Given, environment: Mapping[str, str]) -> ServerSettings:
    """Return the server's settings.

    flags: by the names of ServerSettings and EngineConfig; None if a flag is missing. environment: os.environ.
    Raises ParameterError for an invalid value, with the variable or the file that contains it, for an unknown name in
    the file, with the nearest known one, and as ServerSettings.
    """
    file = flags.get("config") or environment.get(f"{PREFIX}CONFIG")
    flags = {name: value for name, value in flags.items() if value is not None and name != "config"}
    sources = [
        _of_file(Path(file)) if file else ({}, {}),
        _of_environment(environment),
        (by_own_names(flags, ENGINE.values()), {}),
    ]
    found: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    places: dict[str, str] = {}  # variable or key that an option came from
    for source, its_places in sources:
        for name in (*source, *source.get("engine", {})):
            places.pop(name, None)
        places |= its_places
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
        raise _as_written(error, partial(_place, places)) from None


def _place(places: Mapping[str, str], name: str) -> str:
    """Return the variable or the key that an option came from, or its name if a flag gave it."""
    whole, _, part = name.partition(".")
    return places.get(part) or (f"{places[whole]}{name[len(whole) :]}" if whole in places else name)


def _as_written(error: ParameterError, place_of: Callable[[str], str]) -> ParameterError:
    """Return an error that names the place of each option in the file, and writes values as in TOML."""
    message = error.spelt("{{{}}}".format, lambda name, value: f"{{{name}}}={_toml(value)}", _toml)
    if error.param and f"{{{error.param}}}" not in message and (place := place_of(error.param)) != error.param:
        message = f"{place}: {message}"
    plain = ParameterError(message, param=error.param, value=error.value, others=error.others)
    return plain.renamed(lambda name: place_of(name) if name == error.param else place_of(name).rpartition('": ')[2])


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else shown(value)


def variables_without_effect(environment: Mapping[str, str], *, serves: bool) -> list[str]:
    """Return sentences about the TRANSEPT_ variables that have no effect on a command. serves: True for the server."""
    of_server = [f"{PREFIX}CONFIG", *(variable for variable, *_ in _variables())]
    known = [*OTHER_VARIABLES, *(of_server if serves else ())]
    useless = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    unknown = [name for name in useless if name not in of_server]
    sentences = [f"the variable {name} is unknown and has no effect.{_near(name, known)}" for name in unknown]
    if unread := [name for name in useless if name in of_server]:
        sentences.append(f"only transept serve reads {' and '.join(unread)}; other commands take flags")
    return sentences


def _near(variable: str, known: list[str]) -> str:
    names = {name.removeprefix(PREFIX).lower(): name for name in known}
    return hint(variable.removeprefix(PREFIX).lower(), names, lambda name: names[name])


def _variables() -> Iterator[tuple[str, DeclaredOption, Alias]]:
    """Yield each variable of a setting, or of an option of the engine, and the alias that it is named after."""
    for setting in (MODELS, *SETTINGS, *ENGINE.values()):
        if setting.name not in ("model", "launcher"):
            for alias in (Alias(written(setting)), *setting.aliases):
                yield PREFIX + alias.name.upper(), setting, alias


def _of_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options that variables set, and the variable of each."""
    found: dict[str, Any] = {}
    places: dict[str, str] = {}
    for variable, setting, alias in _variables():
        text = environment.get(variable)
        if text is None:
            continue
        name = setting.name if alias.name == written(setting) else alias.name
        places[name] = variable
        if alias.values is None:
            places[setting.name] = variable
        if setting.name == "api_keys":
            found[name] = [text]  # which may hold a comma
        elif has_many(setting):
            found[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            found[name] = _in(variable, partial((setting if alias.values is None else alias).from_text, text))
    try:
        return by_own_names(found, ENGINE.values()), places
    except ParameterError as error:
        raise _as_written(error, lambda name: PREFIX + name.upper()) from None


def _in(place: str, value: Callable[[], Any]) -> Any:
    """Return a value. Raises its ParameterError with the place that holds it in the option's stead."""
    try:
        return value()
    except ParameterError as error:
        raise _as_written(error, lambda _: place) from None


def _of_file(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options that a TOML file sets, and the key of each."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        message = f'the settings "{file}" cannot be read: {error.strerror}'
        raise ParameterError(message, param="config", value=file) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ParameterError(f'the settings "{file}" are not TOML: {error}', param="config", value=file) from None
    known = {written(setting): setting for setting in (MODELS, *SETTINGS)}
    of_engine = [name for each in ENGINE.values() for name in (each.name, *(alias.name for alias in each.aliases))]
    for name in given:
        if name in of_engine and name not in (*known, "model"):
            message = f'"{file}": {name} is an option of the engine; write it under [engine]'
            raise ParameterError(message, param=name, value=given[name])
    refuse_unknown(f'"{file}" has an unknown setting', given, [*known, "engine"])
    found: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, value in given.items():
        if name == "engine":
            if not isinstance(value, dict):
                message = f'"{file}": engine must be a table of the engine\'s options, not {shown(value)}'
                raise ParameterError(message, param="engine", value=value)
            refuse_unknown(f'"{file}": engine has no option', value, of_engine)
            try:
                found[name] = by_own_names(value, ENGINE.values())
            except ParameterError as error:
                raise _as_written(error, f'"{file}": engine.{{}}'.format) from None
            keys = {each: each for each in found[name]} | aliases_in(value, ENGINE.values())
            places |= {"engine": f'"{file}": engine', **{own: f'"{file}": engine.{key}' for own, key in keys.items()}}
            continue
        setting, place = known[name], f'"{file}": {name}'
        places[setting.name] = place
        if setting is MODELS and isinstance(value, dict):  # a table of name = model
            value = [each + "=" + _text(model, f'"{file}": models.{each}') for each, model in value.items()]
        if has_many(setting):
            values = value if isinstance(value, list) else [value]
            found[setting.name] = [_text(each, place) for each in values]
        else:
            found[setting.name] = _in(place, partial(setting.taken, value))
    if "api_key_file" in found:
        found["api_key_file"] = file.parent / found["api_key_file"]
    return found, places


def _text(value: Any, place: str) -> str:
    """Return a text. Raises ParameterError for a value of another kind; place: begins the message."""
    if not isinstance(value, str):
        raise ParameterError(f"{{{place}}} must be a text, not {shown(value)}", param=place, value=value)
    return value
