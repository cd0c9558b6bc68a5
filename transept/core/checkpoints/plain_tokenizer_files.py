"""PlainTokenizerFiles: tokenizer.json and tokenizer_config.json of a Hugging Face checkpoint, without transformers.

For some classes, transformers uses a tokenizer.json unchanged. For others, it uses only the vocabulary and the added
tokens, and the class builds the rest in code; families declare that rest here. Files with unknown contents, and files
in which transformers would change or add a token, are left to transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from transept.core.checkpoints.plain_tokenizer import PlainTokenizer
from transept.json_files import read_json

AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that use a tokenizer.json unchanged
MOST_TOKENS = 100_000  # with more, transformers checks for a bug of Mistral's tokenizers
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
SIDES = ("left", "right")
# Further settings of a tokenizer_config.json, and their supported values; None: any value, because it has no effect.
SETTINGS: dict[str, tuple[object, ...] | None] = {
    "add_prefix_space": (False,),
    "added_tokens_decoder": None,
    "backend": ("tokenizers",),
    "clean_up_tokenization_spaces": (False, True),
    "errors": None,
    "is_local": None,
    "local_files_only": None,
    "model_input_names": (["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]),
    "model_max_length": None,
    "name_or_path": None,
    "padding_side": SIDES,
    "processor_class": None,
    "special_tokens_map_file": None,
    "split_special_tokens": (False,),
    "tokenizer_class": None,
    "tokenizer_file": None,
    "truncation_side": SIDES,
}
CLEANED_UP = (  # in this order, as in transformers
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


class NamedTokenizer(PlainTokenizer):
    """A PlainTokenizer with the special tokens that a tokenizer_config.json names or lists.

    special: special tokens -> their ids. unknown: the id for unknown tokens, or None.
    clean_up: default of clean_up_tokenization_spaces, which removes blanks before punctuation; always False for BPE.
    """

    def __init__(self, tokenizer: Tokenizer, special: Mapping[str, int], unknown: int | None, clean_up: bool) -> None:
        super().__init__(tokenizer)
        self.clean_up_tokenization_spaces = clean_up
        self._special, self._unknown = dict(special), unknown
        self._may_clean_up = not isinstance(tokenizer.model, models.BPE)

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """Return the text of tokens, see PlainTokenizer. clean_up_tokenization_spaces: None: the files' setting."""
        text = super().decode(token_ids, skip_special_tokens=skip_special_tokens)
        asked = clean_up_tokenization_spaces
        if self._may_clean_up and (self.clean_up_tokenization_spaces if asked is None else asked):
            for blank, clean in CLEANED_UP:
                text = text.replace(blank, clean)
        return text

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token; for an unknown token the id of the unknown token, or None."""
        found = super().convert_tokens_to_ids(token)
        return self._unknown if found is None else found

    @property
    def all_special_tokens(self) -> list[str]:
        """The named special tokens, then the others, each once."""
        return list(self._special)

    @property
    def all_special_ids(self) -> list[int]:
        """Their ids."""
        return list(self._special.values())


def tokenizer_json(directory: Path, settings: Mapping[str, Any], content: Mapping[str, Any]) -> Tokenizer | None:
    """Return the tokenizer of tokenizer.json; None if it pads or cuts, or if its added tokens are not those listed.

    settings: content of tokenizer_config.json, which may list the added tokens.
    content: that of tokenizer.json.
    """
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    if "added_tokens_decoder" not in settings and (directory / "added_tokens.json").is_file():
        return None
    if tokenizer.padding or tokenizer.truncation:
        return None
    listed = settings.get("added_tokens_decoder")
    if listed is None:
        listed = {token["id"]: token for token in content["added_tokens"]}
    expected = {
        int(number): repr(AddedToken(**{name: value for name, value in token.items() if name != "id"}))
        for number, token in listed.items()
    }
    found = {number: repr(token) for number, token in tokenizer.get_added_tokens_decoder().items()}
    return tokenizer if found == expected else None


@dataclass(frozen=True)
class PlainTokenizerFiles:
    """The rules by which a family's tokenizer class in transformers makes a tokenizer from a checkpoint's files.

    Some classes use ``tokenizer.json`` unchanged; others build all but the vocabulary and the added tokens in code.
    Pass `read` to PlainFiles as its `tokenizer`.

    classes: valid values of ``tokenizer_class``; None among them if it may be missing. ``PreTrainedTokenizerFast`` and
        ``TokenizersBackend``, which use tokenizer.json unchanged, are always valid.
    named: the class's default special tokens, such as ``{"eos_token": "</s>"}``.
    settings: further settings that tokenizer_config.json may have: name -> the supported values; None: any.
    build: (tokenizer, model, settings, named) -> the class's special tokens that are not in the files, or None if
        transformers must read the files. Changes the ``Tokenizer`` in place, like the class. model: the object "model"
        of tokenizer.json. named: name -> (token, id).
    load: (directory, settings, content) -> the ``Tokenizer`` with all its added tokens, or None if transformers must
        read the files. content: that of tokenizer.json. The default reads tokenizer.json, whose added tokens must be
        those that the files list.
    tokenizer_class: the class of the result. Derive one if a family's tokenizer decodes differently.
    """

    classes: tuple[str | None, ...]
    named: Mapping[str, str]
    settings: Mapping[str, tuple[object, ...] | None]
    build: Callable[[Tokenizer, Mapping[str, Any], Mapping[str, Any], dict[str, tuple[str, int]]], list[str] | None]
    load: Callable[[Path, Mapping[str, Any], Mapping[str, Any]], Tokenizer | None] = tokenizer_json
    tokenizer_class: type[NamedTokenizer] = NamedTokenizer

    def read(self, directory: Path) -> NamedTokenizer | None:
        """Return the tokenizer of a directory with a tokenizer_config.json; None if transformers must read it.

        That is so for files with other contents, such as a setting that is not listed or a special token that
        tokenizer.json lacks.
        """
        try:
            return self._read(directory)
        except Exception:  # corrupt files, and errors of the tokenizers library: transformers reports them
            return None

    def _read(self, directory: Path) -> NamedTokenizer | None:
        options = _options(directory)
        if options is None:
            return None
        as_written = options.get("tokenizer_class") in AS_WRITTEN
        if not as_written and options.get("tokenizer_class") not in self.classes:
            return None
        if not _are_known(options, SETTINGS if as_written else {**SETTINGS, **self.settings}):
            return None
        content = _read_json(directory / "tokenizer.json")
        tokenizer = (tokenizer_json if as_written else self.load)(directory, options, content)
        if tokenizer is None or tokenizer.get_vocab_size() > MOST_TOKENS:
            return None
        defaults = {} if as_written else self.named
        given = {**defaults, **{name: options[name] for name in NAMES if name in options}}
        texts = {name: _text(token) for name, token in given.items() if token is not None or name in defaults}
        listed = [_text(token) for name in LISTS for token in options.get(name) or ()]
        added = tokenizer.get_added_tokens_decoder()
        ids = {token.content: number for number, token in added.items() if token.special}
        if not ids.keys() >= {*texts.values(), *listed}:  # transformers adds missing tokens
            return None
        named = {name: (text, ids[text]) for name, text in texts.items()}
        extra = [] if as_written else self.build(tokenizer, content.get("model", {}), options, named)
        if extra is None or not ids.keys() >= set(extra):
            return None
        in_order = [*(texts[name] for name in NAMES if name in texts), *listed, *extra]
        unknown = named["unk_token"][1] if "unk_token" in named else None
        clean_up = bool(options.get("clean_up_tokenization_spaces"))
        made = NamedTokenizer if as_written else self.tokenizer_class
        return made(tokenizer, {text: ids[text] for text in in_order}, unknown, clean_up)


def _options(directory: Path) -> dict[str, Any] | None:
    """Merge tokenizer_config.json and an older special_tokens_map.json; None if their lists differ."""
    options = _read_json(directory / "tokenizer_config.json")
    if "added_tokens_decoder" in options:  # then the older file is unused
        return options
    older = _read_json(directory / "special_tokens_map.json")
    lists = [{name: each[name] for name in LISTS if name in each} for each in (options, older)]
    if all(lists) and lists[0] != lists[1]:
        return None
    for name in NAMES:
        if isinstance(older.get(name), dict):  # an AddedToken, without its type in older files
            older[name] = {"__type": "AddedToken", **older[name], "special": True}
    return {**options, **older}


def _text(token: object) -> str:
    """Return a special token's text, from a string or an AddedToken of a file. Returns "" for anything else."""
    if isinstance(token, dict) and token.get("__type") == "AddedToken":
        token = AddedToken(**{name: value for name, value in token.items() if name != "__type"}).content
    return token if isinstance(token, str) else ""


def _read_json(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _are_known(options: Mapping[str, Any], known: Mapping[str, tuple[object, ...] | None]) -> bool:
    for name, value in options.items():
        if name not in (*NAMES, *LISTS, *known) or (name in LISTS and not isinstance(value, list | None)):
            return False
        values = known.get(name)
        if values is not None and (type(value), value) not in [(type(each), each) for each in values]:
            return False
    if all(options.get(name) for name in LISTS):  # transformers uses only one of them
        return False
    return isinstance(options.get("model_max_length", 0), int | float)
