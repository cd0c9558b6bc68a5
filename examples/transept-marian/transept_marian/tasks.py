"""How a Marian model is told what to translate to."""

from __future__ import annotations

from transept.authoring import CheckpointView, ParameterError, TextTask, UnsupportedTaskError, suggest


def languages(view: CheckpointView) -> tuple[list[str], list[str]]:
    """The targets, where there are several to choose from."""
    return [], [code.strip("<>") for code in view.tokenizer.supported_language_codes]


def summarize(view: CheckpointView) -> TextTask:
    """Raises UnsupportedTaskError: the family translates, and a server lists it for nothing else."""
    raise UnsupportedTaskError("this model translates, and does not summarize. Call translate, or take a BART model")


def translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """A model of several targets reads the wanted one as a code before the document, ``>>fra<<``; others read nothing.

    source: never read, since the model was trained for it. Raises ParameterError for a language that the checkpoint
    does not name.
    """
    tokenizer = view.tokenizer
    targets = [code.strip("<>") for code in tokenizer.supported_language_codes]
    if not targets:
        for name, asked, own in (("source", source, tokenizer.source_lang), ("target", target, tokenizer.target_lang)):
            if None not in (asked, own) and asked != own:
                raise ParameterError(f"{name} is {own!r} in this model, not {asked!r}; it may be left out")
        return TextTask()
    if target is None:
        raise ParameterError(f"target is missing: this model translates to several languages.{suggest('', targets)}")
    if target not in targets:
        raise ParameterError(f"this model does not translate to {target!r}.{suggest(target, targets)}")
    return TextTask(prefix=f">>{target}<< ")
