"""Calls of the functions that a plugin declares. What they raise, and why they cannot be imported, names the plugin.

Called wherever a ModelSpec's functions are needed. A TranseptError is an answer of the plugin's, and goes on as it is.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from transept.errors import PluginError, PluginFailedError, TranseptError, message_of, shown
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.spec import ModelSpec, one_tokenizer, resolve

REMEDY = "the fault is the plugin's, or of what it was given: tell its author, with the traceback of __cause__"


def call_declared(spec: ModelSpec, path: str, *arguments: Any, **keywords: Any) -> Any:
    """Call the function, or the reference to one, that a spec has by this path, such as ``"speech.languages"``.

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
        raise PluginFailedError(f"{what} of {spec.known_as} raised {_raised(error)} ({REMEDY})") from error


def _raised(error: Exception) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


def tokenizers_of(spec: ModelSpec, view: CheckpointView) -> tuple[Any, Any]:
    """The tokenizers of the encoder's text and of the decoder's, each None where there is none.

    Raises PluginError for what is no pair, and whatever reading the tokenizer raises.
    """
    if spec.tokenizers is one_tokenizer:
        return one_tokenizer(view)
    made = call_declared(spec, "tokenizers", view)
    what = f"tokenizers of {spec.known_as}"
    if not (isinstance(made, tuple) and len(made) == 2):
        raise PluginError(
            f"{what} returned {type(made).__name__}; it must return a pair, of the encoder's and decoder's"
        )
    for tokenizer in made:
        if tokenizer is not None and not (callable(tokenizer) and hasattr(tokenizer, "decode")):
            raise PluginError(f"{what} returned {shown(tokenizer)} in its pair, which is no tokenizer")
    return made[0], made[1]
