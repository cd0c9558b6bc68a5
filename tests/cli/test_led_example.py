"""examples/transept-led, installed: summaries as transformers has them."""

import json
from pathlib import Path

import pytest
import torch
from fresh_environment import FreshEnvironment
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LEDConfig, LEDForConditionalGeneration, PreTrainedTokenizerFast

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
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
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokens = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(directory)
    torch.manual_seed(0)
    config = LEDConfig(
        vocab_size=len(vocabulary),
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
        attention_window=WINDOW,
        init_std=0.3,
    )
    model = LEDForConditionalGeneration(config)
    torch.nn.init.normal_(model.final_logits_bias)
    model.generation_config.update(num_beams=2, max_length=40, min_length=20, no_repeat_ngram_size=2)
    model.save_pretrained(directory)
    return directory


@pytest.mark.slow
def test_the_first_token_of_what_is_summarized_attends_globally(
    examples: FreshEnvironment, checkpoint: Path, tmp_path: Path
) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    model = LEDForConditionalGeneration.from_pretrained(checkpoint)
    expected: dict[str, dict[str, str]] = {"summarize": {}, "generate": {}}
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text)
        inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        first = torch.zeros_like(inputs.input_ids)
        first[:, 0] = 1
        for task, keywords in (("summarize", {"global_attention_mask": first}), ("generate", {})):
            expected[task][name] = tokenizer.decode(model.generate(**inputs, **keywords)[0], skip_special_tokens=True)
    assert len({text for texts in expected.values() for text in texts.values()}) == 4
    files = [tmp_path / name for name in DOCUMENTS]
    done = examples.commands(*((task, *files, "--model", checkpoint, "--json") for task in expected))
    for texts, each in zip(expected.values(), done, strict=True):
        assert each.returncode == 0, each.stderr
        lines = [json.loads(line) for line in each.stdout.splitlines()]
        assert {Path(line["file"]).name: line["text"] for line in lines} == texts
