"""Moonshine by the command: recordings are transcribed as transformers does it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from fresh_environment import FreshEnvironment
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import MoonshineConfig, MoonshineForConditionalGeneration, PreTrainedTokenizerFast

CLIPS = sorted((Path(__file__).parents[1] / "data" / "speech" / "librivox").glob("*.flac"))
SPECIAL = ["<unk>", "<s>", "</s>"]
UNSPOKEN = "<<ST_0>>"
GREEDY = ("--temperature", "0", "--temperature-increment-on-fallback", "None", "--beam-size", "1")
REFUSED = """
import sys
import numpy, transept
_, checkpoint, clip = sys.argv
transcriber = transept.Transcriber(checkpoint)
refused = {"task": "translate", "language": "de", "word_timestamps": True, "multilingual": True, "hotwords": "nave"}
for options in ({name: value} for name, value in refused.items()):
    try:
        transcriber.transcribe(clip, **options)
    except transept.TranseptError as error:
        print(f"{type(error).__name__}: {error}")
try:
    transcriber.engine.generate({"multi_modal_data": {"audio": (numpy.zeros(500_000, numpy.float32), 16_000)}})
except transept.TranseptError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model that hears made-up words."""
    directory = tmp_path_factory.mktemp("checkpoint")
    words = [f"▁{a}{b}" for a in "bdfgklmnprst" for b in ("a", "ei", "i", "o", "ou", "u", "an", "er")]
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, "▁a", *words, UNSPOKEN])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokens = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens, additional_special_tokens=[UNSPOKEN])
    wrapped.save_pretrained(directory)
    torch.manual_seed(0)
    config = MoonshineConfig(
        vocab_size=len(vocabulary),
        hidden_size=96,
        intermediate_size=128,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=60,
        initializer_range=0.2,
        pad_token_id=2,
    )
    MoonshineForConditionalGeneration(config).save_pretrained(directory)
    return directory


def heard(checkpoint: Path, waveform: np.ndarray) -> str:
    """What transformers makes of a recording, but for tokens that are no text."""
    model = MoonshineForConditionalGeneration.from_pretrained(checkpoint)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    no_text = tokenizer.convert_tokens_to_ids(["<unk>", "<s>", UNSPOKEN])
    ids = model.generate(input_values=torch.from_numpy(waveform)[None], max_length=60, suppress_tokens=no_text)
    return str(tokenizer.decode(ids[0], skip_special_tokens=True)).strip()


def samples(clip: Path) -> np.ndarray:
    waveform, rate = soundfile.read(clip, dtype="float32")
    assert rate == 16_000
    return waveform


@pytest.fixture(scope="module")
def recording() -> np.ndarray:
    """Two windows of 30 s."""
    return np.concatenate([samples(clip) for clip in (*CLIPS, *CLIPS)])


@pytest.fixture(scope="module")
def done(
    examples: FreshEnvironment, checkpoint: Path, recording: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The commands of the three tests below, and the folder of what they wrote."""
    folder = tmp_path_factory.mktemp("long")
    soundfile.write(folder / "long.wav", recording, 16_000, subtype="FLOAT")
    options = ("--model", checkpoint, *GREEDY)
    commands = {
        "clips": ("transcribe", *CLIPS, "--json", *options),
        "long": ("transcribe", folder / "long.wav", "--mode", "sequential", "-f", "json,txt", "-o", folder, *options),
        "batched": ("transcribe", *CLIPS[:2], "--batched", "--json", *options),
    }
    outputs = dict(zip(commands, examples.commands(*commands.values()), strict=True))
    for output in outputs.values():
        assert output.returncode == 0, output.stderr
    return {**outputs, "folder": folder}


@pytest.mark.slow
def test_recordings_are_transcribed_as_transformers_does(done: dict[str, Any], checkpoint: Path) -> None:
    lines = [json.loads(line) for line in done["clips"].stdout.splitlines()]
    assert [line["text"] for line in lines] == [heard(checkpoint, samples(clip)) for clip in CLIPS]
    assert len({line["text"] for line in lines}) == len(CLIPS)
    for line in lines:
        (segment,) = line["segments"]
        assert (line["language"], segment["start"]) == ("en", 0.0)
        assert segment["end"] == pytest.approx(line["duration"])


def test_windows_of_a_long_recording_follow_one_another(
    done: dict[str, Any], checkpoint: Path, recording: np.ndarray
) -> None:
    windows = [recording[begin : begin + 480_000] for begin in range(0, len(recording), 480_000)]
    expected = [heard(checkpoint, window) for window in windows]
    assert len(expected) == 2
    assert json.loads((done["folder"] / "long.json").read_text())["text"].strip() == " ".join(expected)
    assert (done["folder"] / "long.txt").read_text().splitlines() == expected


def test_batched_mode_cuts_silence_out(done: dict[str, Any]) -> None:
    for line in map(json.loads, done["batched"].stdout.splitlines()):
        (segment,) = line["segments"]
        assert segment["text"].strip() == line["text"] != ""
        assert 0.0 <= segment["start"] < segment["end"] <= line["duration"]


@pytest.mark.slow
def test_what_it_cannot_do_is_told(examples: FreshEnvironment, checkpoint: Path) -> None:
    done = examples.run("-c", REFUSED, checkpoint, CLIPS[0])
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["ParameterError"] * 5 + ["MediaError"]
    for hint in (
        "cannot translate; leave task out",
        "transcribes English only, not 'de'; leave language out if English is spoken",
        "times of words",
        "one language",
        "no text before a window",
        "Use transept.transcr",
    ):
        assert hint in done.stdout
