"""A small Whisper with seeded random weights, saved as a Hugging Face directory: quick to run, hard to fool."""

from pathlib import Path

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

SECONDS = 1.0  # of audio in a window


def save_random_whisper(directory: Path, seed: int = 0) -> Path:
    """One-second windows, the vocabulary of the English-only checkpoints, weights wide enough to avoid near ties."""
    torch.manual_seed(seed)
    end_of_text = 50256
    config = WhisperConfig(
        vocab_size=51864,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=50,
        max_target_positions=448,
        init_std=0.4,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        decoder_start_token_id=end_of_text + 1,
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        decoder_start_token_id=end_of_text + 1,
        max_length=448,
        suppress_tokens=[1, 2, 7],
        begin_suppress_tokens=[220, end_of_text],
        no_timestamps_token_id=50362,
    )
    model.save_pretrained(directory)
    return directory
