"""Both Moonshine families beside transformers on small random weights and recordings of several lengths."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    MoonshineStreamingConfig,
    MoonshineStreamingForConditionalGeneration,
    PreTrainedModel,
)

from transept import Engine
from transept.multimodal import MediaError
from transept.testing import CHECKS, Parity, step_by_step

SAMPLES = (13_000, 3_000, 895, 25_040)  # 895 are one encoder token of Moonshine; 895 and 3,000 are not whole frames


def moonshine() -> PreTrainedModel:
    """Two layers a side; of a head's 12 numbers 10 turn."""
    config = MoonshineConfig(
        vocab_size=320,
        hidden_size=48,
        intermediate_size=64,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=150,
        initializer_range=0.2,
        pad_token_id=2,
    )
    return MoonshineForConditionalGeneration(config)


def streaming(**options: Any) -> PreTrainedModel:
    """Sides of different widths, and windows without and with later tokens."""
    side = {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    config = MoonshineStreamingConfig(
        encoder_config={"hidden_size": 48, "sliding_windows": [[5, 3], [4, 0]], **side},
        hidden_size=32,
        vocab_size=320,
        max_position_embeddings=150,
        initializer_range=0.2,
        decoder_start_token_id=1,
        **side,
        **options,
    )
    return MoonshineStreamingForConditionalGeneration(config)


def streaming_keywords(sound: np.ndarray) -> dict[str, torch.Tensor]:
    """The processor's: padded to whole frames. Without a mask, transformers leaves windows out."""
    padded = np.pad(sound, (0, -len(sound) % 80))
    mask = torch.arange(len(padded))[None] < len(sound)
    return {"input_values": torch.from_numpy(padded)[None], "attention_mask": mask.long()}


FAMILIES = {
    "moonshine": (moonshine, lambda sound: {"input_values": torch.from_numpy(sound)[None]}),
    "streaming": (streaming, streaming_keywords),
    "streaming, tied": (lambda: streaming(tie_word_embeddings=True), streaming_keywords),
}


@pytest.fixture(scope="module", params=FAMILIES)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    make, keywords = FAMILIES[request.param]
    generator = np.random.default_rng(0)
    sounds = [generator.normal(0, 0.1, length).astype(np.float32) for length in SAMPLES]
    inputs = [({"audio": (sound, 16_000)}, keywords(sound)) for sound in sounds]
    # transformers' streaming decoder adds positions to the encoder's output in place, once a call.
    run = None if request.param == "moonshine" else step_by_step
    return Parity(make().eval(), tmp_path_factory.mktemp("checkpoint"), inputs=inputs, run_reference=run)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)


def test_audio_beyond_the_positions_of_a_streaming_model_is_refused(tmp_path: Path) -> None:
    """150 positions are 3 s."""
    streaming().save_pretrained(tmp_path)
    engine = Engine(tmp_path)
    with pytest.raises(MediaError, match=r"the audio is 3\.01 s long, and one request carries at most 3 s"):
        engine.generate({"multi_modal_data": {"audio": (np.zeros(48_160, np.float32), 16_000)}})
