"""The table of README.md, decoded by transformers; and the images in heldout/. `python evaluate.py`."""

from __future__ import annotations

import json

import jiwer
import torch
from rendering import HELD_OUT, HERE, TRAINED, sample
from transformers import AutoTokenizer, VisionEncoderDecoderModel, ViTImageProcessorPil

FIRST_SEED = 1_000_000  # training takes those from 0 on
COUNT = 1_000
BATCH_SIZE = 100
SHOWN = 24  # images that are kept as files, of fonts that training had not
CHECKPOINT = HERE / "trocr-numbers"


@torch.inference_mode()
def main() -> None:
    """Print the table and write the files."""
    processor = ViTImageProcessorPil.from_pretrained(CHECKPOINT)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    model = VisionEncoderDecoderModel.from_pretrained(CHECKPOINT).eval()
    print("| fonts | images | character error rate | lines right |\n| --- | --- | --- | --- |")
    for name, fonts in (("those of training", TRAINED), ("others", HELD_OUT)):
        images, texts = zip(*(sample(FIRST_SEED + index, fonts) for index in range(COUNT)), strict=True)
        read: list[str] = []
        for begin in range(0, COUNT, BATCH_SIZE):
            pixels = processor(list(images[begin : begin + BATCH_SIZE]), return_tensors="pt").pixel_values
            read += tokenizer.batch_decode(model.generate(pixels), skip_special_tokens=True)
        right = sum(ours == text for ours, text in zip(read, texts, strict=True))
        print(f"| {name} | {COUNT} | {100 * jiwer.cer(list(texts), read):.2f} % | {100 * right / COUNT:.1f} % |")
    folder = HERE / "heldout"
    folder.mkdir(exist_ok=True)
    for index in range(SHOWN):
        images[index].save(folder / f"{index:02}.png", optimize=True)
    shown = {f"{index:02}.png": {"text": texts[index], "transformers": read[index]} for index in range(SHOWN)}
    (folder / "texts.json").write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
