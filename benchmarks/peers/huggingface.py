"""Whisper's weights as a Hugging Face folder, which peers' exporters read. Runs in the project's environment."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import whisper
from benchmarks.peers.environment import REPOSITORY
from benchmarks.text import CACHE


def write(model: str) -> Path:
    """The folder of `benchmarks.whisper`'s weights of a model, in float32; made if it is not there."""
    from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor

    directory = CACHE / model / "huggingface"
    if (directory / "tokenizer.json").exists():
        return directory
    sys.path.insert(0, str(REPOSITORY / "tests" / "parity"))
    from whisper_reference import reference_model

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = whisper.checkpoint(model, Path(scratch))
        network = reference_model(checkpoint)
        network.save_pretrained(directory)
        WhisperFeatureExtractor(feature_size=network.config.num_mel_bins).save_pretrained(directory)
        end = "<|endoftext|>"
        PreTrainedTokenizerFast(
            tokenizer_file=str(checkpoint / "tokenizer.json"), bos_token=end, eos_token=end, pad_token=end
        ).save_pretrained(directory)
    return directory
