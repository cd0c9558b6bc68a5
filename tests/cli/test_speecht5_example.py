"""examples/transept-speecht5, installed: recordings as transformers hears them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import soundfile
import torch
from fresh_environment import FreshEnvironment
from safetensors.torch import load_file, save_file
from transformers import (
    SpeechT5Config,
    SpeechT5FeatureExtractor,
    SpeechT5ForSpeechToText,
    SpeechT5Processor,
    SpeechT5Tokenizer,
)

CLIPS = sorted((Path(__file__).parents[1] / "data" / "speech" / "librivox").glob("*.flac"))[:2]
TEXTS = ("the door is here and there", "a ship has sailed from lands of quiet joy", "vex my zebra", "kings who quit")
NO_TEXT = ["<mask>", "<ctc_blank>"]  # the released vocabulary ends with these
GREEDY = ("--temperature", "0", "--temperature-increment-on-fallback", "None", "--beam-size", "1")
OLD_NAMES = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with its tokenizer of letters, its weights under the names that released ones have."""
    directory = tmp_path_factory.mktemp("checkpoint")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(directory / "spm_char"),
        vocab_size=30,
        model_type="char",
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    tokenizer = SpeechT5Tokenizer(str(directory / "spm_char.model"))
    tokenizer.add_tokens(NO_TEXT)
    SpeechT5Processor(SpeechT5FeatureExtractor(), tokenizer).save_pretrained(directory)
    torch.manual_seed(0)
    config = SpeechT5Config(
        vocab_size=len(tokenizer),
        hidden_size=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        conv_dim=(24,) * 7,
        num_conv_pos_embedding_groups=4,
        max_text_positions=60,
        initializer_range=0.4,
    )
    SpeechT5ForSpeechToText(config).save_pretrained(directory)
    weights = load_file(directory / "model.safetensors")
    for name in [name for name in weights if "parametrizations" in name]:
        start, new = name[: name.index("parametrizations")], name[name.index("parametrizations") :]
        weights[start + OLD_NAMES[new]] = weights.pop(name)
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


def heard(checkpoint: Path, waveforms: list[np.ndarray]) -> list[str]:
    """What transformers makes of recordings, each alone, but for tokens that are no text."""
    model = SpeechT5ForSpeechToText.from_pretrained(checkpoint)
    processor = SpeechT5Processor.from_pretrained(checkpoint)
    tokenizer = processor.tokenizer
    texts = []
    for waveform in waveforms:
        given = processor(audio=waveform, sampling_rate=16_000, return_tensors="pt")
        unspoken = [0, 1, 3, *tokenizer.convert_tokens_to_ids(NO_TEXT)]
        ids = model.generate(**given, max_length=60, num_beams=1, suppress_tokens=unspoken)
        texts.append(str(tokenizer.decode(ids[0], skip_special_tokens=True)).strip())
    return texts


def samples(clip: Path) -> np.ndarray:
    waveform, rate = soundfile.read(clip, dtype="float32")
    assert rate == 16_000
    return waveform


@pytest.mark.slow
def test_recordings_are_transcribed_as_transformers_does(
    examples: FreshEnvironment, checkpoint: Path, tmp_path: Path
) -> None:
    long = tmp_path / "long.wav"
    recording = np.concatenate([samples(clip) for clip in (*CLIPS, *CLIPS, *CLIPS, *CLIPS)])[: 40 * 16_000]
    soundfile.write(long, recording, 16_000, subtype="FLOAT")
    asked: tuple[tuple[str | Path, ...], ...] = (
        ("transcribe", *CLIPS, long, "--model", checkpoint, "--json", *GREEDY, "--mode", "sequential"),
        ("transcribe", *CLIPS, "--model", checkpoint, "--json", *GREEDY, "--batched"),
        ("transcribe", CLIPS[0], "--model", checkpoint, "--language", "German"),
        ("transcribe", CLIPS[0], "--model", checkpoint, "--task", "translate"),
    )
    plain, batched, *refused = examples.commands(*asked)
    assert plain.returncode == batched.returncode == 0, plain.stderr + batched.stderr
    lines: list[dict[str, Any]] = [json.loads(line) for line in plain.stdout.splitlines()]
    windows = [recording[: 30 * 16_000], recording[30 * 16_000 :]]
    *expected, first, second = heard(checkpoint, [*map(samples, CLIPS), *windows])
    assert [line["text"] for line in lines[:-1]] == expected
    assert len(set(expected)) == len(CLIPS)
    assert {line["language"] for line in lines} == {"en"}
    assert [segment["text"].strip() for segment in lines[-1]["segments"]] == [first, second]
    assert [segment["start"] for segment in lines[-1]["segments"]] == [0.0, 30.0]
    for line in map(json.loads, batched.stdout.splitlines()):
        (segment,) = line["segments"]
        assert segment["text"].strip() == line["text"] != ""
        assert 0.0 <= segment["start"] < segment["end"] <= line["duration"]
    told = ("transcribes English only, not 'german'; leave --language out if", "cannot translate; leave --task out")
    for output, hint in zip(refused, told, strict=True):
        assert output.returncode != 0
        assert hint in " ".join(output.stderr.split())
