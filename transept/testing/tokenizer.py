"""A tokenizer for checkpoints with random weights, so that commands can be run with them. Called by Parity."""

from __future__ import annotations

from pathlib import Path


def save_word_tokenizer(directory: Path, vocab_size: int, end: int | None) -> None:
    """Save a tokenizer in which every token is one word, "word5" for 5, and `end` is special."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [f"word{token}" for token in range(vocab_size)]
    tokenizer = Tokenizer(models.WordLevel({word: token for token, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {} if end is None else {"eos_token": words[end]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(directory)
