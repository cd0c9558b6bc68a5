"""Fixtures of the text tests: one thread, and each family's small checkpoint, made once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import small_checkpoints
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from transept import TextGenerator

SAVE: dict[str, Callable[[Path], nn.Module]] = {
    "t5": small_checkpoints.save_t5,
    "bart": small_checkpoints.save_bart,
    "mbart": small_checkpoints.save_mbart,
    "mbart50": small_checkpoints.save_mbart50,
    "nllb": small_checkpoints.save_nllb,
    "m2m100": small_checkpoints.save_m2m100,
}


@dataclass
class Case:
    """A checkpoint, the transformers model and tokenizer in it, and it in our hands."""

    directory: Path
    reference: nn.Module
    tokenizer: PreTrainedTokenizerBase
    generator: TextGenerator


@pytest.fixture(scope="package")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def case(family: str) -> Case:
        if family not in made:
            directory = tmp_path_factory.mktemp(family)
            reference = SAVE[family](directory)
            tokenizer = AutoTokenizer.from_pretrained(directory)
            made[family] = Case(directory, reference, tokenizer, TextGenerator(directory, kv_cache_bytes=1 << 24))
        return made[family]

    return case
