"""Summaries and translations by T5, mT5 and UMT5: a prefix before the document names the task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from transept.authoring import CheckpointView, ParameterError, TextTask, UnsupportedTaskError

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "ro": "Romanian"}  # Raffel et al. 2020, section 3.1.3
TRANSLATES = "this model translates, and does not summarize. Call translate, or take a BART, Pegasus or T5 model"
_TRANSLATION = re.compile(r"translation_(.+?)_to_(.+)")
_TARGET = re.compile(r"<2(\w+)>")


def summarize(view: CheckpointView) -> TextTask:
    """Return T5's prefix, unless the checkpoint's config has its own. Raises UnsupportedTaskError for MADLAD-400."""
    if _marks(view, "en"):
        raise UnsupportedTaskError(TRANSLATES, param="model")
    return TextTask("summarization", prefix="summarize: ")


def summarize_plainly(view: CheckpointView) -> TextTask:
    """Pass the document without a prefix, as fine-tuned checkpoints of mT5, UMT5 and LongT5 read it.

    Raises UnsupportedTaskError if the checkpoint's config names translations but no summary.
    """
    named = getattr(view.config, "task_specific_params", None) or {}
    if _named_translations(view.config) and "summarization" not in named:
        raise UnsupportedTaskError(TRANSLATES, param="model")
    return TextTask("summarization")


def _marks(view: CheckpointView, language: str) -> bool:
    """True if the vocabulary has MADLAD-400's token for a target language."""
    mark = f"<2{language}>"
    token_id = view.tokenizer.convert_tokens_to_ids(mark)
    return token_id not in (None, view.tokenizer.convert_tokens_to_ids("<unk>"))


def translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Return the matching translation among those in the checkpoint's config, else among T5's four languages.

    MADLAD-400's vocabulary has a prefix for each target and none for the source (Kudugunta et al. 2023).
    """
    if target is not None and _marks(view, target):
        return TextTask(prefix=f"<2{target}> ")
    named = _named_translations(view.config)
    if all(name in LANGUAGES for pair in named for name in pair):
        return _choose(source, target, named, list(permutations(LANGUAGES, 2)))
    return _choose(source, target, named)


def translate_multilingual(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Return a translation by mT5 or UMT5, which know only those that they were trained for and the config names."""
    named = _named_translations(view.config)
    if not named and source is None and target is None:
        return TextTask("translation")
    if not named:
        raise ParameterError(
            'this checkpoint names no languages (no "translation_en_to_de" or the like in its config.json\'s '
            "task_specific_params): leave {source} and {target} out, and put the model's prefix into the document",
            param="target" if source is None else "source",
            value=target or source,
            others=("source", "target"),
        )
    return _choose(source, target, named)


def languages(view: CheckpointView) -> tuple[list[str], list[str]]:
    """Return T5's four languages, or those in the checkpoint's config; for MADLAD-400, only the targets."""
    if targets := [match[1] for match in map(_TARGET.fullmatch, view.tokenizer.get_vocab()) if match]:
        return [], sorted(targets)
    named = _named_translations(view.config)
    if all(name in LANGUAGES for pair in named for name in pair):
        return list(LANGUAGES), list(LANGUAGES)
    return named_languages(view)


def named_languages(view: CheckpointView) -> tuple[list[str], list[str]]:
    """Return the languages of the translations that the config names."""
    named = _named_translations(view.config)
    return list(dict.fromkeys(x for x, _ in named)), list(dict.fromkeys(y for _, y in named))


def _named_translations(config: Any) -> list[tuple[str, str]]:
    """Return (source, target) of each ``translation_X_to_Y`` in config.json's task_specific_params."""
    matches = map(_TRANSLATION.fullmatch, getattr(config, "task_specific_params", None) or {})
    return [(match[1], match[2]) for match in matches if match]


def _choose(source: str | None, target: str | None, *choices: list[tuple[str, str]]) -> TextTask:
    """Return the translation that fits the user's languages, from the first list that has one."""
    given = {"source": source, "target": target}
    asked = (source and _code(source), target and _code(target))
    for pairs in choices:
        fitting = [
            pair for pair in pairs if all(want in (None, has.casefold()) for want, has in zip(asked, pair, strict=True))
        ]
        if len(fitting) == 1:
            ((x, y),) = fitting
            prefix = f"translate {LANGUAGES[x]} to {LANGUAGES[y]}: " if {x, y} <= LANGUAGES.keys() else ""
            return TextTask(f"translation_{x}_to_{y}", prefix=prefix)
        if fitting:
            missing = [name for name, language in given.items() if language is None]
            add = " and ".join(f"{{{name}}}" for name in missing) or "languages of which the config has one pair"
            message = f"several translations fit {_given(given)}; give {add}: {_list(fitting)}"
            raise ParameterError(message, param=missing[0] if missing else "target", others=given)
    known = choices[-1] or choices[0]
    wrong = "source" if target is None or asked[0] not in (None, *(x.casefold() for x, _ in known)) else "target"
    message = f"this model makes no translation with {_given(given)}. It makes: {_list(known)}"
    raise ParameterError(message, param=wrong, value=given[wrong], others=given)


def _given(languages: Mapping[str, str | None]) -> str:
    """Return the languages that the user named, for a message."""
    return ", ".join(f"{{{name}=}}" for name, language in languages.items() if language is not None) or "this model"


def _list(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{x} to {y}" for x, y in pairs)


def _code(language: str) -> str:
    """Return the code of a language: ``"de"`` for ``"German"`` and ``"de"``."""
    codes = {name.casefold(): code for code, name in LANGUAGES.items()}
    return codes.get(language.casefold(), language.casefold())
