"""Trains the checkpoint beside this file on rendered numbers: `python train.py`. Seeded, on one thread.

Needs the extra `test`, and Debian's fonts-dejavu and fonts-liberation. The figures of what comes out: evaluate.py.
"""

from __future__ import annotations

import random
import time

import torch
from rendering import HERE, SYMBOLS, TRAINED, sample
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)

IMAGES = 40_000  # rendered once; held-out ones have seeds from 10**6 on
STEPS = 6_000
BATCH_SIZE = 64
WARMUP_STEPS = 200
LEARNING_RATE = 1.5e-3  # at its highest; linear down to zero
SIDE = 96  # hidden size of both sides
SHIFT = 3  # pixels by which an image is moved each time that it is seen
CHECKPOINT = HERE / "trocr-numbers"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A token a symbol. Special tokens have the ids that they have in microsoft/trocr-base-printed."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *SYMBOLS]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def make_model(vocabulary: int) -> VisionEncoderDecoderModel:
    """A ViT over columns of 4 pixels, and a decoder in TrOCR's form."""
    heads = {"num_attention_heads": 4, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = ViTConfig(
        hidden_size=SIDE,
        num_hidden_layers=3,
        intermediate_size=2 * SIDE,
        image_size=[32, 128],
        patch_size=[32, 4],
        **heads,
    )
    decoder = TrOCRConfig(
        vocab_size=vocabulary,
        d_model=SIDE,
        cross_attention_hidden_size=SIDE,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=2 * SIDE,
        max_position_embeddings=32,
        dropout=0.0,
        init_std=0.05,
        scale_embedding=True,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 1, 2
    return VisionEncoderDecoderModel(config)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    draws = random.Random(0)
    processor = ViTImageProcessorPil(size={"height": 32, "width": 128})
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    begin = time.perf_counter()
    images, labels = [], []
    for seed in range(IMAGES):
        image, text = sample(seed, TRAINED)
        images.append(processor(image, return_tensors="pt").pixel_values[0].half())
        labels.append(torch.tensor(tokenizer(text).input_ids))
    pixels = torch.stack(images)
    targets = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    print(f"{IMAGES} images in {time.perf_counter() - begin:.0f} s", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP_STEPS, (STEPS - step) / (STEPS - WARMUP_STEPS))
    )
    mean = 0.0
    for step in range(STEPS):
        chosen = torch.tensor(draws.choices(range(IMAGES), k=BATCH_SIZE))
        moved = pixels[chosen].float().roll((draws.randint(-SHIFT, SHIFT), draws.randint(-SHIFT, SHIFT)), (2, 3))
        target = targets[chosen]
        loss = model(pixel_values=moved, labels=target[:, : int((target >= 0).sum(1).max())]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mean += (loss.item() - mean) * (0.01 if step else 1)
        if step % 200 == 199:
            print(f"step {step + 1}: loss {mean:.3f}, {time.perf_counter() - begin:.0f} s", flush=True)
            model.save_pretrained(CHECKPOINT)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=2, bos_token_id=0, eos_token_id=2, pad_token_id=1, max_length=24, num_beams=1
    )
    for part in (model, tokenizer, processor):
        part.save_pretrained(CHECKPOINT)


if __name__ == "__main__":
    main()
