"""examples/transept-t5gemma, installed: texts as transformers has them."""

import json
from pathlib import Path

import pytest
import torch
from fresh_environment import FreshEnvironment
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, T5GemmaConfig, T5GemmaForConditionalGeneration

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
WINDOW = 8  # tokens
DOCUMENTS = {"short.txt": "bada gado", "long.txt": " ".join(["dugo gado buda lemo"] * 10)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model that writes made-up words."""
    directory = tmp_path_factory.mktemp("checkpoint")
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words = [f"▁{first}{second}" for first in syllables[::4] for second in syllables[1::4]]
    words += ["▁bada", "▁gado", "▁dugo", "▁buda", "▁lemo"]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*SPECIAL, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokens = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(directory)
    side = {
        "vocab_size": len(vocabulary),
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "max_position_embeddings": 60,
        "sliding_window": WINDOW,
        "attn_logit_softcapping": 3.0,
        "initializer_range": 0.15,
    }
    torch.manual_seed(0)
    sizes = {"encoder": side, "decoder": {**side, "hidden_size": 64}, "vocab_size": len(vocabulary)}
    config = T5GemmaConfig(**sizes, tie_word_embeddings=False)  # where they are tied, tokens predict themselves
    model = T5GemmaForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # of norms, which are zeros
            torch.nn.init.normal_(parameter, std=0.3)
    model.generation_config.update(max_length=40, decoder_start_token_id=config.decoder.bos_token_id)
    model.save_pretrained(directory)
    return directory


def test_texts_are_those_of_transformers(examples: FreshEnvironment, checkpoint: Path, tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    model = T5GemmaForConditionalGeneration.from_pretrained(checkpoint)
    expected = {}
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text)
        ids = model.generate(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))[0]
        expected[name] = tokenizer.decode(ids, skip_special_tokens=True)
        assert len({*ids.tolist()}) > WINDOW
    assert len({*expected.values()}) == len(DOCUMENTS)
    done = examples.transept("generate", *(tmp_path / name for name in DOCUMENTS), "--model", checkpoint, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {Path(line["file"]).name: line["text"] for line in lines} == expected
