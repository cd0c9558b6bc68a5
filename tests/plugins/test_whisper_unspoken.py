"""The tokens that are never transcribed against openai-whisper's, by the checkpoint's settings and by its tokenizer."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import PreTrainedTokenizerFast
from views import view_of
from whisper.decoding import DecodingOptions, DecodingTask
from whisper.tokenizer import LANGUAGES, TO_LANGUAGE_CODE, get_tokenizer

from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
from transept.plugins.whisper import alignment_heads
from transept.plugins.whisper.control_tokens import speech_tokens
from transept.plugins.whisper.languages import LANGUAGE_NAMES
from transept.plugins.whisper.unspoken import unspoken_tokens
from transept.plugins.whisper.weights import whisper_config, whisper_generation_config


@pytest.fixture(scope="module", params=["tiny_en_dir", "base_dir"])
def checkpoint(request: pytest.FixtureRequest) -> CTranslate2Checkpoint:
    return CTranslate2Checkpoint(request.getfixturevalue(request.param))


def test_suppressed_tokens_are_openai_whispers(checkpoint: CTranslate2Checkpoint) -> None:
    config = whisper_config(checkpoint)
    tokenizer = get_tokenizer(config.vocab_size >= 51865)
    theirs = DecodingTask._get_suppress_tokens(SimpleNamespace(options=DecodingOptions(), tokenizer=tokenizer))
    ours = PreTrainedTokenizerFast(tokenizer_file=str(Path(checkpoint.path) / "tokenizer.json"))
    said_by_checkpoint = unspoken_tokens(view_of(config, ours, whisper_generation_config(checkpoint, config)))
    found_in_tokenizer = unspoken_tokens(view_of(config, ours, SimpleNamespace(suppress_tokens=None)))
    assert said_by_checkpoint == found_in_tokenizer == tokenizer.non_speech_tokens
    assert tuple(sorted({*said_by_checkpoint, *speech_tokens(view_of(config)).prompt_only})) == theirs


def test_suppressed_tokens_outside_of_the_vocabulary_are_ignored(checkpoint: CTranslate2Checkpoint) -> None:
    settings = whisper_generation_config(checkpoint, config := whisper_config(checkpoint))
    settings.suppress_tokens = [1, 2, 60000, -1]
    assert unspoken_tokens(view_of(config, None, settings)) == (1, 2)


def test_control_tokens_are_openai_whispers(checkpoint: CTranslate2Checkpoint) -> None:
    config = whisper_config(checkpoint)
    theirs = get_tokenizer(config.vocab_size >= 51865)
    ours = speech_tokens(view_of(config))
    assert (ours.end_of_text, ours.start_of_transcript, ours.start_of_previous) == (
        theirs.eot,
        theirs.sot,
        theirs.sot_prev,
    )
    assert (ours.no_speech, ours.first_timestamp, ours.no_timestamps) == (
        theirs.no_speech,
        theirs.timestamp_begin,
        theirs.no_timestamps,
    )


def test_language_names_are_openai_whispers() -> None:
    other_codes = {"cmn", "fil", "iw", "jv", "nb"}  # which systems give, and openai-whisper does not know
    assert {name: code for name, code in LANGUAGE_NAMES.items() if name not in other_codes} == TO_LANGUAGE_CODE
    assert set(LANGUAGE_NAMES.values()) == set(LANGUAGES)


def test_alignment_heads_are_the_checkpoints_or_the_upper_half(checkpoint: CTranslate2Checkpoint) -> None:
    config = whisper_config(checkpoint)
    named = alignment_heads(view_of(config, None, whisper_generation_config(checkpoint, config)))
    assert len(named) == 8
    assert all(layer < config.decoder_layers and head < config.decoder_attention_heads for layer, head in named)
    half = alignment_heads(view_of(config, None, SimpleNamespace(alignment_heads=None)))
    layers, heads = config.decoder_layers, config.decoder_attention_heads
    assert half == tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))
