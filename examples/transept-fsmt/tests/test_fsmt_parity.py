"""FSMTForConditionalGeneration beside transformers on small random weights: a vocabulary for each side, and one."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import FSMTConfig

from transept.testing import Parity

SOURCE, TARGET = 320, 250  # tokens of the vocabularies
SIZES = {
    "langs": ["en", "de"],
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 150,
    "init_std": 0.15,  # wide, since embeddings are scaled
}
CONFIGURATIONS = {
    "two vocabularies": FSMTConfig(**SIZES, src_vocab_size=SOURCE, tgt_vocab_size=TARGET),
    "fewer source tokens": FSMTConfig(**SIZES, src_vocab_size=TARGET, tgt_vocab_size=SOURCE),
    "one vocabulary": FSMTConfig(**SIZES, src_vocab_size=SOURCE, tgt_vocab_size=SOURCE, tie_word_embeddings=True),
}
SETTINGS = {"num_beams": 5, "max_length": 60, "forced_eos_token_id": 2, "length_penalty": 1.1}


class FSMTForConditionalGeneration(transformers.FSMTForConditionalGeneration):
    """The reference. Without a cache it hides later tokens only where it sees encoder ids, too."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """As transformers', with any ids for those of an encoder that has run."""
        if not keywords.get("use_cache") and keywords.get("input_ids") is None:
            keywords["input_ids"] = keywords["decoder_input_ids"]
        return super().forward(*arguments, **keywords)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The model is tiny: every operation is slower on more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """A random model, under the settings of facebook/wmt19-*, that never writes padding: transformers skips that."""
    torch.manual_seed(0)
    reference = FSMTForConditionalGeneration(request.param)
    with torch.no_grad():
        reference.model.decoder.output_projection.weight[request.param.pad_token_id] = 0.0
    reference.generation_config.update(**SETTINGS)
    return Parity(reference, tmp_path_factory.mktemp("fsmt"))


def test_prefill(parity: Parity) -> None:
    """Logits after the decoder prompt."""
    parity.check_prefill()


def test_decode(parity: Parity) -> None:
    """Greedy tokens and their logits, each prompt alone."""
    parity.check_decode()


def test_batch(parity: Parity) -> None:
    """Greedy tokens in a batch that requests join one by one."""
    parity.check_batch()


def test_preemption(parity: Parity) -> None:
    """Greedy tokens with too little cache."""
    parity.check_preemption()


def test_beam_search(parity: Parity) -> None:
    """Hypotheses and scores of four beams."""
    parity.check_beam_search()


def test_bfloat16(parity: Parity) -> None:
    """The most likely tokens in bfloat16."""
    parity.check_low_precision(("bfloat16",))
