"""A small Whisper with seeded random weights, saved as a Hugging Face directory: quick to run, hard to fool."""

from pathlib import Path

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

SECONDS = 1.0  # of audio in a window
END_OF_TEXT = 400  # text tokens come before it, 107 control tokens and 1501 timestamps from it on
START, NO_TIMESTAMPS = END_OF_TEXT + 1, END_OF_TEXT + 106


def save_random_whisper(directory: Path, seed: int = 0, heads: int = 4) -> Path:
    """One-second windows, few text tokens, weights wide enough to avoid near ties. It never ends by itself."""
    torch.manual_seed(seed)
    config = WhisperConfig(
        vocab_size=END_OF_TEXT + 107 + 1501,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=50,
        max_target_positions=448,
        init_std=0.4,
        bos_token_id=END_OF_TEXT,
        eos_token_id=END_OF_TEXT,
        pad_token_id=END_OF_TEXT,
        decoder_start_token_id=START,
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        eos_token_id=END_OF_TEXT,
        pad_token_id=END_OF_TEXT,
        decoder_start_token_id=START,
        max_length=448,
        suppress_tokens=[1, 2, 7, END_OF_TEXT],
        begin_suppress_tokens=[22, END_OF_TEXT],
        no_timestamps_token_id=NO_TIMESTAMPS,
    )
    model.save_pretrained(directory)
    return directory
