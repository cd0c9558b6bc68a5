"""SeamlessM4T's speech to text beside transformers on small random weights and recordings of several lengths."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    SeamlessM4TConfig,
    SeamlessM4TFeatureExtractor,
    SeamlessM4TForSpeechToText,
    SeamlessM4Tv2Config,
    SeamlessM4Tv2ForSpeechToText,
)

from transept.testing import CHECKS, Parity

SAMPLES = (13_000, 3_000, 800, 25_200)  # 79, 17, 3 and 156 frames, of which the odd ones have half a pair at the end
LANGUAGES = {"eng": 300, "fra": 301, "cmn_Hant": 302}
CHUNKED = {"speech_encoder_chunk_size": 20, "speech_encoder_left_chunk_num": 1, "right_max_position_embeddings": 3}
MODELS = {
    "first": (SeamlessM4TConfig, SeamlessM4TForSpeechToText, {}),
    "second": (SeamlessM4Tv2Config, SeamlessM4Tv2ForSpeechToText, {}),
    "chunked": (SeamlessM4Tv2Config, SeamlessM4Tv2ForSpeechToText, CHUNKED),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """Two layers a side and an adapter; the second generation also with chunks that a recording fills."""
    torch.manual_seed(0)
    config_class, model_class, given = request.param
    sizes: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "speech_encoder_layers": 2,
        "speech_encoder_attention_heads": 4,
        "speech_encoder_intermediate_size": 64,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "decoder_attention_heads": 6,
        "decoder_ffn_dim": 96,
        "max_position_embeddings": 160,
        "initializer_range": 0.15,
    }
    config = config_class(**sizes | given)
    reference = model_class(config)
    reference.generation_config.text_decoder_lang_to_code_id = LANGUAGES
    extractor = SeamlessM4TFeatureExtractor()
    inputs = []
    for length in SAMPLES:
        sound = np.random.default_rng(length).normal(0, 0.1, length).astype(np.float32)
        heard = extractor(sound, sampling_rate=16_000, return_tensors="pt")
        inputs.append(({"audio": (sound, 16_000)}, dict(heard)))
    prompt = [config.decoder_start_token_id, LANGUAGES["fra"]]
    return Parity(reference, tmp_path_factory.mktemp("seamless"), inputs=inputs, decoder_prompt=prompt)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
