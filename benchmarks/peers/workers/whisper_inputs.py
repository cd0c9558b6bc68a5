"""For engines that compute Whisper from features to logits only: features, the decoder's prompt, a greedy loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_RATE = 16_000  # Hz
WINDOW = 30 * SAMPLE_RATE  # samples
BATCH = 16  # windows at a time, as CTranslate2 has them
MAX_TOKENS = 448  # of the decoder, its prompt included

# token ids [batch, tokens] int64 -> logits of the last of them [batch, vocab_size] float32
Step = Callable[[np.ndarray], np.ndarray]


class Decoding:
    """Greedy decoding without timestamps, as the checkpoint's generation config says.

    directory: Hugging Face's files of the model.
    """

    def __init__(self, directory: Path) -> None:
        given: dict[str, Any] = json.loads((directory / "generation_config.json").read_text())
        spoken = [given["lang_to_id"]["<|en|>"], given["task_to_id"]["transcribe"]] if given["is_multilingual"] else []
        self.prompt = [given["decoder_start_token_id"], *spoken, given["no_timestamps_token_id"]]
        self.end = given["eos_token_id"]
        self.suppressed = given["suppress_tokens"]
        self.suppressed_first = given["begin_suppress_tokens"]

    def greedy(self, batch: int, step: Step) -> list[list[int]]:
        """New tokens of each of `batch` rows, without the end-of-text token."""
        tokens = np.tile(np.array(self.prompt, dtype=np.int64), (batch, 1))
        rows: list[list[int]] = [[] for _ in range(batch)]
        running = np.ones(batch, dtype=bool)
        for position in range(len(self.prompt), MAX_TOKENS + 1):
            logits = step(tokens)
            logits[:, self.suppressed] = -np.inf
            if position == len(self.prompt):
                logits[:, self.suppressed_first] = -np.inf
            chosen = np.where(running, logits.argmax(axis=1), self.end)
            running &= chosen != self.end
            if not running.any():
                break
            for row, token in zip(rows, chosen.tolist(), strict=True):
                if token != self.end:
                    row.append(token)
            tokens = chosen[:, None].astype(np.int64)
        return rows


def feature_batches(directory: Path, waveforms: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Log-mel features by transformers, [at most BATCH, mels, 3000] float32 each."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor.from_pretrained(directory)
    for first in range(0, len(waveforms), BATCH):
        batch = waveforms[first : first + BATCH]
        yield extractor(batch, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features
