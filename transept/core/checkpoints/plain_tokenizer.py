"""PlainTokenizer: a tokenizer that uses only the `tokenizers` library, so that checkpoints load without transformers.

`load_tokenizer` makes it from a tokenizer.json without a tokenizer_config.json, as in CTranslate2's folders. It has the
methods of transformers' tokenizers that Transept calls, with the results of PreTrainedTokenizerFast for the same file.
Special tokens have no names here, because a tokenizer.json does not name them. A family that reads its
tokenizer_config.json derives a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True)
class Encoded:
    """The token ids of a text. encodings: of the `tokenizers` library, with the tokens' offsets in the text."""

    input_ids: list[int]
    encodings: list[Encoding] = field(default_factory=list, compare=False, repr=False)


class PlainTokenizer:
    """Converts text to token ids and back. Several threads may call it.

    It has the methods of transformers' tokenizers that Transept calls. Derive a class if a family decodes differently.

    tokenizer: of the tokenizers library; the new object owns it, and switches off the padding and truncation that a
        file may request. Methods raise what that library raises.
    """

    clean_up_tokenization_spaces = False
    is_fast = True  # transformers' attribute of tokenizers that use the tokenizers library

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Encoded:
        """Encode a text. add_special_tokens: True to add those around it. verbose: ignored."""
        encoding = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return Encoded(encoding.ids, [encoding])

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Special tokens in the text are encoded as such."""
        return self(text, add_special_tokens=add_special_tokens).input_ids

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """Return the text of tokens. Unknown ids are skipped; invalid UTF-8 becomes U+FFFD.

        Raises ValueError for clean_up_tokenization_spaces, which is for tokenizers that have a tokenizer_config.json.
        """
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces needs a tokenizer_config.json beside tokenizer.json")
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token, or None for an unknown token."""
        return self._tokenizer.token_to_id(token)

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Return the token of an id, in the vocabulary's spelling, or None for an unknown id."""
        return self._tokenizer.id_to_token(token_id)

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of the tokens that ``skip_special_tokens`` omits."""
        return [number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special]

    def get_vocab(self) -> dict[str, int]:
        """Return token -> id, including added tokens."""
        return dict(self._tokenizer.get_vocab())
