"""Whisper's tokenizer without transformers: the one that its WhisperTokenizer makes of a checkpoint's files.

That class takes the vocabulary, the merges and the added tokens from the files. It splits text into bytes like GPT-2,
and puts ``<|startoftranscript|><|notimestamps|>`` and the end-of-text token around it. `normalizer.json` is for scores,
and is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from transept.authoring import NamedTokenizer, PlainTokenizerFiles

START, PREVIOUS, NO_TIMESTAMPS = "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"
TIMESTAMP = re.compile(r"<\|\d+\.\d+\|>")


class WhisperTokenizer(NamedTokenizer):
    """Converts text to token ids and back, like transformers' class of this name."""

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """Return the text of tokens, without timestamps. skip_special_tokens: also leave out the text before START.

        clean_up_tokenization_spaces: no effect.
        """
        tokens = list(token_ids)
        if skip_special_tokens and tokens and tokens[0] == self.convert_tokens_to_ids(PREVIOUS):
            start = self.convert_tokens_to_ids(START)
            tokens = tokens[tokens.index(start) :] if start in tokens else []
        return TIMESTAMP.sub("", super().decode(tokens, skip_special_tokens=skip_special_tokens))


def load_tokenizer(directory: Path, settings: Mapping[str, Any], content: Mapping[str, Any]) -> Tokenizer | None:
    """Return the vocabulary and merges with the added tokens; None if their ids differ from those in the files.

    Files without tokenizer.json have a vocab.json and a merges.txt.
    """
    file, vocabulary, merges = (directory / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if file.is_file():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    there = tokenizer.get_added_tokens_decoder()
    if "added_tokens_decoder" not in settings:
        older = directory / "added_tokens.json"
        ids = {token.content: token_id for token_id, token in there.items()}
        expected = json.loads(older.read_text(encoding="utf-8")) if older.is_file() else {}
        return tokenizer if expected.items() <= ids.items() else None
    listed = {int(token_id): AddedToken(**token) for token_id, token in settings["added_tokens_decoder"].items()}
    tokenizer.add_tokens([token for token_id, token in sorted(listed.items()) if token_id not in there])
    added = tokenizer.get_added_tokens_decoder()
    same = {key: repr(token) for key, token in added.items()} == {key: repr(token) for key, token in listed.items()}
    return tokenizer if same else None


def build_tokenizer(
    tokenizer: Tokenizer, model: Mapping[str, Any], settings: Mapping[str, Any], named: Mapping[str, tuple[str, int]]
) -> list[str] | None:
    """Split text into bytes and frame it; None for another model, or without the tokens that transformers adds."""
    bpe = tokenizer.model
    if not isinstance(bpe, models.BPE) or tokenizer.normalizer is not None:
        return None
    if bpe.dropout or bpe.continuing_subword_prefix or bpe.end_of_word_suffix or bpe.ignore_merges:
        return None
    added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    if not added.keys() >= {START, PREVIOUS, NO_TIMESTAMPS}:
        return None
    bpe.unk_token, bpe.byte_fallback = None, False
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = named["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} {NO_TIMESTAMPS} $A {end[0]}",
        special_tokens=[(START, added[START]), (NO_TIMESTAMPS, added[NO_TIMESTAMPS]), end],
    )
    return []


TOKENIZER = PlainTokenizerFiles(
    classes=("WhisperTokenizer", "WhisperTokenizerFast"),
    named=dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>"),
    settings={
        "add_bos_token": (False,),
        "add_eos_token": (False,),
        "language": (None,),
        "predict_timestamps": (False,),
        "return_attention_mask": (False, True),
        "task": (None,),
    },
    build=build_tokenizer,
    load=load_tokenizer,
    tokenizer_class=WhisperTokenizer,
)
