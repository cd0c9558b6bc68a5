"""Whisper's tokenizer without transformers: what its WhisperTokenizer makes of a checkpoint's files.

That class takes the vocabulary, the merges and the added tokens of the files, and the rest from itself: text is split
into bytes as GPT-2 does it, and ``<|startoftranscript|><|notimestamps|>`` and the end are the special tokens around it.
Files that say anything else are left to transformers. `normalizer.json` is for scores and not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from transept.authoring import PlainTokenizer

START, PREVIOUS, NO_TIMESTAMPS = "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"
TIMESTAMP = re.compile(r"<\|\d+\.\d+\|>")
CLASSES = ("WhisperTokenizer", "WhisperTokenizerFast")
NAMED = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>")  # with the default
LISTS = ("additional_special_tokens", "extra_special_tokens")  # of special tokens
# What else a tokenizer_config.json may hold, and the values of it that are read here; None: any, it matters nowhere.
OTHERS: dict[str, tuple[object, ...] | None] = {
    "add_bos_token": (False,),
    "add_eos_token": (False,),
    "add_prefix_space": (False,),
    "added_tokens_decoder": None,
    "backend": ("tokenizers",),
    "clean_up_tokenization_spaces": (False, True),
    "errors": None,
    "is_local": None,
    "language": (None,),
    "local_files_only": None,
    "model_max_length": None,
    "name_or_path": None,
    "predict_timestamps": (False,),
    "processor_class": None,
    "return_attention_mask": (False, True),
    "special_tokens_map_file": None,
    "task": (None,),
    "tokenizer_class": CLASSES,
    "tokenizer_file": None,
}


class WhisperTokenizer(PlainTokenizer):
    """Text to token ids, and back, as by transformers' class of this name.

    unknown: the token whose id stands for tokens that there are none of. clean_up: what a tokenizer_config.json says;
        transformers does not clean up after a tokenizer of bytes, whatever it says.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: str, clean_up: bool) -> None:
        super().__init__(tokenizer)
        self._unknown = unknown
        self.clean_up_tokenization_spaces = clean_up

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """The text of tokens, without timestamps. skip_special_tokens: and without the text before the transcript.

        clean_up_tokenization_spaces: changes nothing.
        """
        tokens = list(token_ids)
        if skip_special_tokens and tokens and tokens[0] == self.convert_tokens_to_ids(PREVIOUS):
            start = self.convert_tokens_to_ids(START)
            tokens = tokens[tokens.index(start) :] if start in tokens else []
        return TIMESTAMP.sub("", super().decode(tokens, skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token, or of the unknown token where there is no such token."""
        found = super().convert_tokens_to_ids(token)
        return super().convert_tokens_to_ids(self._unknown) if found is None else found


def read_tokenizer(directory: Path) -> WhisperTokenizer | None:
    """The tokenizer of a directory with a tokenizer_config.json; None where transformers must read it.

    The added tokens of a tokenizer.json have the ids that the tokenizers library gives them, whatever ids it says.
    Raises what that library and json raise for files that they cannot read.
    """
    settings = _settings(directory)
    if not _are_known(settings):
        return None
    named = {name: _content(settings.get(name, default)) for name, default in NAMED.items()}
    listed = [_content(token) for name in LISTS for token in settings.get(name) or ()]
    tokenizer = _with_vocabulary(directory)
    if tokenizer is None or not _add_tokens(tokenizer, directory, settings):
        return None
    special = {token.content: token.special for token in tokenizer.get_added_tokens_decoder().values()}
    needed = (START, PREVIOUS, NO_TIMESTAMPS, *listed)
    if not all(token in special for token in needed) or not all(special.get(token) for token in named.values()):
        return None  # transformers adds what is missing
    end = named["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} {NO_TIMESTAMPS} $A {end}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, NO_TIMESTAMPS, end)],
    )
    return WhisperTokenizer(tokenizer, named["unk_token"], bool(settings.get("clean_up_tokenization_spaces")))


def _settings(directory: Path) -> dict[str, Any]:
    """Those of tokenizer_config.json, and of the files beside it that a newer one makes superfluous."""
    settings = _read(directory / "tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings
    older = _read(directory / "special_tokens_map.json")
    for name in NAMED:
        if isinstance(older.get(name), dict):  # an AddedToken, which did not say so then
            older[name] = {"__type": "AddedToken", **older[name], "special": True}
    return {**settings, **older}


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _are_known(settings: dict[str, Any]) -> bool:
    for name, value in settings.items():
        if name not in (*NAMED, *LISTS, *OTHERS) or (name in LISTS and not isinstance(value, list | None)):
            return False
        values = OTHERS.get(name)
        if values is not None and (type(value), value) not in [(type(each), each) for each in values]:
            return False
    return isinstance(settings.get("model_max_length", 0), int | float) and "tokenizer_class" in settings


def _content(token: object) -> str:
    """A special token, which the files hold as a text or as an AddedToken; of another form it is no token."""
    if isinstance(token, dict) and token.get("__type") == "AddedToken":
        token = AddedToken(**{name: value for name, value in token.items() if name != "__type"}).content
    return token if isinstance(token, str) else ""


def _with_vocabulary(directory: Path) -> Tokenizer | None:
    """The vocabulary and the merges; and of a tokenizer.json the added tokens."""
    file, vocabulary, merges = (directory / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if file.is_file():
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception:  # the library's own; transformers reads less of the file
            return None
    elif vocabulary.is_file() and merges.is_file():
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    else:
        return None
    model = tokenizer.model
    if not isinstance(model, models.BPE) or tokenizer.normalizer is not None:
        return None
    if model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix or model.ignore_merges:
        return None
    model.unk_token, model.byte_fallback = None, False
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, directory: Path, settings: dict[str, Any]) -> bool:
    """Add what tokenizer_config.json lists. Returns whether the tokens have then the ids that the files give them."""
    there = tokenizer.get_added_tokens_decoder()
    if "added_tokens_decoder" not in settings:
        ids = {token.content: token_id for token_id, token in there.items()}
        return all(ids.get(content) == token_id for content, token_id in _read(directory / "added_tokens.json").items())
    listed = {int(token_id): AddedToken(**token) for token_id, token in settings["added_tokens_decoder"].items()}
    tokenizer.add_tokens([token for token_id, token in sorted(listed.items()) if token_id not in there])
    added = tokenizer.get_added_tokens_decoder()
    return {key: repr(token) for key, token in added.items()} == {key: repr(token) for key, token in listed.items()}
