"""Speech2TextForConditionalGeneration beside transformers on small random weights and recordings of several lengths."""

import numpy as np
import pytest
import torch
from transformers import Speech2TextConfig, Speech2TextFeatureExtractor, Speech2TextForConditionalGeneration

from transept.testing import CHECKS, Parity

SAMPLES = (13_000, 3_000, 400, 25_000)  # 400 are one frame, of whose variance transformers makes NaN
FRENCH = 5  # the token that a checkpoint of several target languages is made to begin with


TRANSLATION = {
    "conv_kernel_sizes": (3,),
    "num_conv_layers": 1,
    "scale_embedding": False,
    "max_target_positions": 60,
}


@pytest.fixture(scope="module", params=[({}, None), (TRANSLATION, FRENCH)], ids=["recognition", "translation"])
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """Two layers a side; as released recognisers, and other convolutions with a language token that is forced."""
    torch.manual_seed(0)
    given, forced = request.param
    sizes = {
        "vocab_size": 320,
        "d_model": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 96,
        "conv_channels": 64,
        "max_source_positions": 300,
        "max_target_positions": 160,
        "init_std": 0.15,
    }
    config = Speech2TextConfig(**sizes | given)
    reference = Speech2TextForConditionalGeneration(config)
    reference.generation_config.forced_bos_token_id = forced
    extractor = Speech2TextFeatureExtractor()
    generator = np.random.default_rng(0)
    inputs = []
    for length in SAMPLES:
        sound = generator.normal(0, 0.1, length).astype(np.float32)
        heard = extractor(sound, sampling_rate=16_000, return_tensors="pt", return_attention_mask=False)
        inputs.append(({"audio": (sound, 16_000)}, {"input_features": heard.input_features.nan_to_num()}))
    prompt = None if forced is None else [config.decoder_start_token_id, forced]
    return Parity(reference, tmp_path_factory.mktemp("speech2text"), inputs=inputs, decoder_prompt=prompt)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
