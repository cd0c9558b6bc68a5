"""Tokenizers for checkpoints with only vocabulary files, such as older and some fine-tuned ones.

`hf_configs` calls it if there is neither a tokenizer.json nor a tokenizer_config.json.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from transept.core.checkpoints.checkpoint import cause_of
from transept.json_files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

logger = logging.getLogger(__name__)

BLANK = "Ġ"  # a blank in the vocabularies of byte-level BPE
PAIRS = ("vocab.json", "merges.txt")  # of BPE
PIECES = ("*.model", "*.spm")  # of sentencepiece


def lone_vocabulary(path: Path) -> PreTrainedTokenizerBase | PlainTokenizer | None:
    """Return the tokenizer that transformers makes of the files for config.json's model_type; None without such files.

    If transformers does not know the model_type, the tokenizers library reads byte-level BPE. A sentencepiece model
    that transformers cannot read is skipped with a warning. Raises what transformers and tokenizers raise.
    """
    is_pair = all((path / name).is_file() for name in PAIRS)
    if not is_pair and not any(file.is_file() for pattern in PIECES for file in path.glob(pattern)):
        return None
    if not _is_known(path):
        return _byte_level(path) if is_pair else None
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        if is_pair:
            raise
        logger.warning('"%s": the tokenizer cannot be read, and only token ids work: %s', path, cause_of(error))
        return None
    return tokenizer


def _is_known(path: Path) -> bool:
    """True if transformers has a tokenizer for a model_type."""
    file = path / "config.json"
    model_type = read_json(file).get("model_type") if file.is_file() else None
    if not isinstance(model_type, str):
        return False
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    return model_type in TOKENIZER_MAPPING_NAMES


def _byte_level(path: Path) -> PlainTokenizer | None:
    """Return byte-level BPE, with the tokens of added_tokens.json as special tokens; None for other kinds of BPE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

    vocabulary, merges = (path / name for name in PAIRS)
    if not any(BLANK in token for token in read_json(vocabulary)):
        return None
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    file = path / "added_tokens.json"
    added = sorted((read_json(file) if file.is_file() else {}).items(), key=lambda each: each[1])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name, _ in added])
    return PlainTokenizer(tokenizer)
