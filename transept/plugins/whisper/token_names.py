"""Look up Whisper's control tokens by name, in a loaded tokenizer or in the files of a checkpoint.

`control_tokens` looks here first, and uses the size of the vocabulary only as a last resort: a padded or extended
vocabulary differs in size from openai-whisper's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tokenizers import Tokenizer

NO_SUCH_TOKEN = "<|no such token|>"

TokenIds: TypeAlias = Callable[[str], int | None]  # returns the id of a token's name, or None


def no_names(name: str) -> int | None:
    """Return None for any name."""
    return None


def names_of_tokenizer(tokenizer: Any) -> TokenIds:
    """Look names up in a tokenizer. Returns None, not the unknown token, for unknown names and without a tokenizer."""
    if tokenizer is None:
        return no_names
    unknown = tokenizer.convert_tokens_to_ids(NO_SUCH_TOKEN)

    def token_id(name: str) -> int | None:
        found: int | None = tokenizer.convert_tokens_to_ids(name)
        return None if found == unknown else found

    return token_id


def names_of_ctranslate2(checkpoint: Any) -> TokenIds:
    """Look names up in the vocabulary beside a CTranslate2 model, or else in its tokenizer.json.

    A vocabulary may name a token twice, because the converter pads it with timestamps: the first one counts.
    Raises CheckpointError for a vocabulary that cannot be read.
    """
    if tokens := checkpoint.vocabulary():
        control = [(name, token) for token, name in enumerate(tokens) if name.startswith("<|")]
        return dict(reversed(control)).get
    try:
        names: TokenIds = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json")).token_to_id
    except Exception:  # raised by the library without the file; loading the tokenizer reports a corrupt one
        return no_names
    return names
