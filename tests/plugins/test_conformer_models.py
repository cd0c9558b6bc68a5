"""Canary and Cohere Transcribe beside transformers, on small random weights and recordings of several lengths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CanaryConfig,
    CanaryForConditionalGeneration,
    CohereAsrConfig,
    CohereAsrFeatureExtractor,
    CohereAsrForConditionalGeneration,
    ParakeetFeatureExtractor,
    PreTrainedTokenizerFast,
)

from transept import ParameterError, Transcriber
from transept.testing import CHECKS, Parity

SAMPLES = (33_000, 3_000, 640, 61_234)
VOCABULARY, BINS, RATE = 120, 24, 16_000
ENCODER = {
    "model_type": "parakeet_encoder",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_mel_bins": BINS,
    "subsampling_conv_channels": 8,
    "scale_input": False,
    "initializer_range": 0.2,
}
DECODER = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 150,
    "initializer_range": 0.3,
    "attention_dropout": 0.0,
}


def canary() -> CanaryForConditionalGeneration:
    decoder = {"model_type": "canary_decoder", "hidden_size": 48, "head_dim": 12, **DECODER}
    config = CanaryConfig(encoder_config=ENCODER, decoder_config=decoder, vocab_size=VOCABULARY, initializer_range=0.3)
    return CanaryForConditionalGeneration(config)


def cohere() -> CohereAsrForConditionalGeneration:
    config = CohereAsrConfig(encoder_config=ENCODER, hidden_size=32, decoder_start_token_id=15, **DECODER)
    return CohereAsrForConditionalGeneration(config)


FAMILIES = {"canary": (canary, ParakeetFeatureExtractor), "cohere": (cohere, CohereAsrFeatureExtractor)}


@pytest.fixture(scope="module", params=FAMILIES)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    make, extractor = FAMILIES[request.param]
    extract, generator = extractor(feature_size=BINS), np.random.default_rng(0)
    inputs = []
    for length in SAMPLES:
        sound = generator.normal(0, 0.1, length).astype(np.float32)
        features = extract(sound, sampling_rate=RATE, return_tensors="pt")
        theirs = {"input_features": features.input_features, "attention_mask": features.attention_mask}
        inputs.append(({"audio": (sound, RATE)}, theirs))
    return Parity(make().eval(), tmp_path_factory.mktemp(request.param), inputs=inputs)


CONTROLS = (
    *("<unk>", "<|nospeech|>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>", "<|nopnc|>"),
    *("<|startofcontext|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>", "<|emo:undefined|>"),
    *("<|en|>", "<|de|>", "<|ja|>"),
)
WORDS = ("▁", *(f"▁word{token}" for token in range(VOCABULARY - len(CONTROLS) - 1)))


def save_tokenizer(directory: Path) -> None:
    """A word for each token of text, after the control tokens."""
    vocabulary = {token: index for index, token in enumerate((*CONTROLS, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = {"eos_token": "<|endoftext|>", "additional_special_tokens": [*CONTROLS]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **special).save_pretrained(directory)


THRESHOLDS = {"temperature": 0.0, "compression_ratio_threshold": None, "logprob_threshold": None}
PROMPT = (
    "<|startofcontext|><|startoftranscript|><|emo:undefined|><|{}|><|{}|><|pnc|><|noitn|><|notimestamp|><|nodiarize|>"
)


@pytest.mark.parametrize("family", FAMILIES)
def test_transcription(family: str, tmp_path: Path) -> None:
    """Text tokens of the window's greedy decode, after the family's prompt; a long recording is cut into windows."""
    torch.manual_seed(0)
    make, extractor = FAMILIES[family]
    model, extract = make().eval(), extractor(feature_size=BINS)
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    transcriber = Transcriber(tmp_path)
    sound = np.random.default_rng(1).normal(0, 0.1, 70_000).astype(np.float32)
    languages = {"language": "en", "target_language": "de"} if family == "canary" else {"language": "de"}
    result = transcriber.transcribe((sound, RATE), mode="sequential", quality="fast", **THRESHOLDS, **languages)

    blank = [] if family == "canary" else [len(CONTROLS)]
    prompt = PROMPT.format("en" if family == "canary" else "de", "de")
    ids = [*blank, *(CONTROLS.index(f"<{name}>") for name in prompt[1:-1].split("><"))]
    features = extract(sound, sampling_rate=RATE, return_tensors="pt")
    generated = model.generate(
        input_features=features.input_features,
        attention_mask=features.attention_mask,
        decoder_input_ids=torch.tensor([ids]),
        suppress_tokens=[token for token in range(len(CONTROLS)) if token != model.generation_config.eos_token_id],
        max_length=150,
    )[0, len(ids) :].tolist()
    ours = [token for segment in result.segments for token in segment.tokens]
    assert ours == generated[: len(ours)]
    assert len(ours) > 3
    with pytest.raises(ParameterError, match="does not detect which language is spoken; give language, one of"):
        transcriber.transcribe((sound, RATE))


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    parity.check(check)
