"""LoneTokenizer: a tokenizer.json that no tokenizer_config.json stands beside. Made by `load_tokenizer`.

It runs on the `tokenizers` library alone, so that a checkpoint like CTranslate2's loads without transformers. It has
the methods that Transept calls, under the names of transformers' tokenizers and with the results of its
PreTrainedTokenizerFast for the same file. Special tokens have no names here: the file says which tokens are special,
not what for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """What a text is encoded to."""

    input_ids: list[int]


class LoneTokenizer:
    """Text to token ids, and back. May be called from several threads.

    file: tokenizer.json; what it says of padding and truncation is left out. Raises what the tokenizers library raises.
    """

    clean_up_tokenization_spaces = False

    def __init__(self, file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Encoded:
        """Encode a text; add_special_tokens: those that the file puts around it. verbose: changes nothing here."""
        return Encoded(self.encode(text, add_special_tokens=add_special_tokens))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text. Special tokens that are written in it are encoded as such."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """The text of tokens; ids that there are no tokens for are left out, bytes that are no UTF-8 become U+FFFD.

        Raises ValueError for clean_up_tokenization_spaces, which is for tokenizers that have a tokenizer_config.json.
        """
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces needs a tokenizer_config.json beside tokenizer.json")
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token, or None where there is no such token."""
        return self._tokenizer.token_to_id(token)

    def get_vocab(self) -> dict[str, int]:
        """Token -> id, added tokens included."""
        return dict(self._tokenizer.get_vocab())
