"""Translations by Marian models, and their target languages."""

from __future__ import annotations

import re
from typing import Any

from transept.authoring import CheckpointView, ParameterError, TextTask, UnsupportedTaskError, suggest

CODE = re.compile(r">>(.+)<<")  # names the target's language in front of a document


def languages(view: CheckpointView) -> tuple[list[str], list[str]]:
    """Return the targets, if there are several."""
    return [], _targets(view.tokenizer)


def summarize(view: CheckpointView) -> TextTask:
    """Raise UnsupportedTaskError, so that a server lists the family only for translation."""
    raise UnsupportedTaskError("this model translates, and does not summarize. Call translate, or take a BART model")


def translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Return a translation. A model of several targets reads a code before the document, such as ``>>fra<<``.

    source: not passed to the model, which was trained for it. Raises ParameterError for a language that the checkpoint
    does not name.
    """
    tokenizer = view.tokenizer
    targets = _targets(tokenizer)
    if not targets:
        for name, asked in (("source", source), ("target", target)):
            if asked is not None and not hasattr(tokenizer, f"{name}_lang"):
                raise ParameterError(
                    f"this checkpoint's tokenizer does not say its languages, and {{{name}}} is {asked!r}; leave "
                    "{source} and {target} out to use its only translation",
                    param=name,
                    value=asked,
                    others=("source", "target"),
                )
            own = getattr(tokenizer, f"{name}_lang", None)
            if None not in (asked, own) and asked != own:
                message = f"{{{name}}} is {own!r} in this model, not {asked!r}; it may be left out"
                raise ParameterError(message, param=name, value=asked)
        return TextTask()
    if target is None:
        message = f"{{target}} is missing: this model translates to several languages.{suggest('', targets)}"
        raise ParameterError(message, param="target")
    if target not in targets:
        message = f"this model has no {{target}} {target!r}.{suggest(target, targets)}"
        raise ParameterError(message, param="target", value=target)
    return TextTask(prefix=f">>{target}<< ")


def _targets(tokenizer: Any) -> list[str]:
    """The languages that the vocabulary has codes for; MarianTokenizer lists them, a plain fast tokenizer does not."""
    names = getattr(tokenizer, "supported_language_codes", None)
    if names is None:
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        names = sorted(vocabulary, key=lambda name: vocabulary[name])
    return [match[1] for match in map(CODE.fullmatch, names) if match]
