"""Call the functions that a plugin declares. Errors name the plugin, including errors of an import.

Called wherever a ModelSpec's functions or its model are needed. A TranseptError of a plugin is raised unchanged.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from transept.errors import PluginError, PluginFailedError, TranseptError, message_of, shown
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.spec import ModelSpec, one_tokenizer, resolve

REMEDY = "the plugin, or its input, is at fault: report it to its author with the traceback of __cause__"


def call_declared(spec: ModelSpec, path: str, *arguments: Any, **keywords: Any) -> Any:
    """Call a function of a spec, or a reference to one, by its path, such as ``"speech.languages"``.

    Raises as `call_plugin`.
    """
    return call_plugin(spec, path, attrgetter(path)(spec), *arguments, **keywords)


def call_plugin(spec: ModelSpec, what: str, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call a function of a spec, or a reference to one. what: begins the message, such as ``the "image" mapper``.

    Raises the function's own TranseptErrors, and PluginFailedError for anything else that it raises, and for a
    reference that cannot be imported.
    """
    try:
        imported = resolve(function)
    except Exception as error:
        reason = str(error) if isinstance(error, PluginError) else f'"{function}" cannot be imported: {_raised(error)}'
        raise PluginFailedError(f"{what} of {spec.known_as}: {reason}") from error
    try:
        return imported(*arguments, **keywords)
    except TranseptError:
        raise
    except Exception as error:
        raise plugin_failure(spec, what, error) from error


def plugin_failure(spec: ModelSpec, what: str, error: Exception) -> PluginFailedError:
    """Make the error for an exception that a plugin's code raised. what: see `call_plugin`."""
    return PluginFailedError(f"{what} of {spec.known_as} raised {_raised(error)}{_place(spec, error)} ({REMEDY})")


@contextmanager
def plugin_named(spec: ModelSpec) -> Iterator[None]:
    """Context that adds the plugin's name to each PluginError without it."""
    try:
        yield
    except PluginError as error:
        if spec.known_as in str(error):
            raise
        raise PluginError(f"{spec.known_as}: {error}") from error


def _place(spec: ModelSpec, error: Exception) -> str:
    """Return the place in the plugin's code that raised an error; empty if that code had not begun.

    It is the last call within the package of the spec's model. For a function from another package, it is the first
    call.
    """
    module = spec.model_class.partition(":")[0]
    package = module.rpartition(".")[0] if module.startswith("transept.") else module.partition(".")[0]
    below = list(traceback.walk_tb(error.__traceback__))[1:]  # without the frame that caught it
    own = [call for call in below if f"{call[0].f_globals.get('__name__')}.".startswith(f"{package}.")]
    if not below:
        return ""
    frame, line = own[-1] if own else below[0]
    return f", at {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"


def _raised(error: Exception) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


def call_prompt_rule(spec: ModelSpec, name: str, *arguments: Any) -> list[Any]:
    """Call one of the family's rules for decoder prompts. Raises PluginError unless it returns a list of token ids."""
    made: Any = call_declared(spec, name, *arguments)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise PluginError(
            f"the {name} of {spec.known_as} returned {shown(made)}, of type {type(made).__name__}; it must return a "
            "list of token ids"
        )
    return list(made)


def tokenizers_of(spec: ModelSpec, view: CheckpointView) -> tuple[Any, Any]:
    """Return the tokenizers of the encoder's and the decoder's text, each None if the checkpoint has none.

    Raises PluginError for anything but a pair, and errors of reading the tokenizer.
    """
    if spec.tokenizers is one_tokenizer:
        return one_tokenizer(view)
    made = call_declared(spec, "tokenizers", view)
    what = f"tokenizers of {spec.known_as}"
    if not (isinstance(made, tuple) and len(made) == 2):
        raise PluginError(
            f"{what} returned {type(made).__name__}; it must return a pair, for the encoder and the decoder"
        )
    for tokenizer in made:
        if tokenizer is not None and not (callable(tokenizer) and hasattr(tokenizer, "decode")):
            raise PluginError(f"{what} returned {shown(tokenizer)} in its pair; each must be a tokenizer or None")
    return made[0], made[1]
