"""Adapters of speech: a transcription computes all of its windows with the adapter that it began with."""

from pathlib import Path

import numpy as np
from random_adapters import save_adapter
from recordings import RATE, joined
from transformers import WhisperConfig, WhisperForConditionalGeneration

from transept import Transcriber


def test_a_transcription_keeps_its_adapter(tiny_en_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    """Also while the name is given to another adapter, or to none."""
    layers = {"encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6}
    sizes = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    model = WhisperForConditionalGeneration(WhisperConfig(**layers, **sizes))
    names = {"a": 6, "b": 9}
    folders = {
        name: str(save_adapter(model, tmp_path / name, seed=alpha, lora_alpha=alpha)) for name, alpha in names.items()
    }
    audio = (np.tile(joined(speech_dir / "librivox"), 4)[: 65 * RATE], RATE)
    off = dict.fromkeys(("no_speech_threshold", "compression_ratio_threshold", "logprob_threshold"))
    options = {
        "mode": "sequential",
        "temperature": 0.0,
        "max_new_tokens": 5,
        "condition_on_previous_text": False,
        **off,
    }
    with Transcriber(tiny_en_dir, adapters=folders) as transcriber:
        expected = {name: [each.text for each in transcriber.stream(audio, lora=name, **options)] for name in names}
        assert expected["a"] != expected["b"]
        assert len(expected["a"]) > 1
        stream = transcriber.stream(audio, lora="a", **options)
        texts = [next(stream).text]
        transcriber.engine.unload_adapter("a")
        texts.append(next(stream).text)
        transcriber.engine.load_adapter("a", folders["b"])
        assert [*texts, *(each.text for each in stream)] == expected["a"]
        assert [each.text for each in transcriber.stream(audio, lora="a", **options)] == expected["b"]
