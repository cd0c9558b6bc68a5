"""examples/transept-seamless, installed: recordings as transformers hears them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from fresh_environment import FreshEnvironment
from random_seamless import UNHEARD, save_seamless
from transformers import (
    SeamlessM4TConfig,
    SeamlessM4TForSpeechToText,
    SeamlessM4TProcessor,
    SeamlessM4Tv2Config,
    SeamlessM4Tv2ForSpeechToText,
    SeamlessM4Tv2Model,
)

CLIPS = sorted((Path(__file__).parents[1] / "data" / "speech" / "librivox").glob("*.flac"))[:2]
GREEDY = ("--temperature", "0", "--temperature-increment-on-fallback", "None", "--beam-size", "1")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_seamless(tmp_path_factory.mktemp("first"), SeamlessM4TConfig, SeamlessM4TForSpeechToText)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole model, as released."""
    return save_seamless(tmp_path_factory.mktemp("second"), SeamlessM4Tv2Config, SeamlessM4Tv2Model, **UNHEARD)


def heard(model_class: Any, checkpoint: Path, waveforms: list[np.ndarray], language: str) -> list[str]:
    """What transformers makes of recordings, each alone, but for tokens that are no text."""
    model = model_class.from_pretrained(checkpoint)
    processor = SeamlessM4TProcessor.from_pretrained(checkpoint)
    tokenizer = processor.tokenizer
    unspoken = sorted(set(tokenizer.all_special_ids) - {tokenizer.eos_token_id})
    texts = []
    for waveform in waveforms:
        given = processor.feature_extractor(waveform, sampling_rate=16_000, return_tensors="pt")
        limits = {"max_length": 60, "max_new_tokens": None, "num_beams": 1}
        ids = model.generate(**given, tgt_lang=language, suppress_tokens=unspoken, **limits)
        texts.append(str(tokenizer.decode(ids[0], skip_special_tokens=True)).strip())
    return texts


def samples(clip: Path) -> np.ndarray:
    waveform, rate = soundfile.read(clip, dtype="float32")
    assert rate == 16_000
    return waveform


REFUSED = (
    ((), "say --target-language, or language where it is the one that is spoken: one of cmn_Hant, deu, eng, fra"),
    (("--target-language", "Polish"), "--target-language may be cmn_Hant, deu, eng, fra"),
    (("--language", "Polish"), "this model has no language 'Polish'"),
    (("--target-language", "fr", "--word-timestamps"), "times of words"),
)


@pytest.fixture(scope="module")
def recording() -> np.ndarray:
    """Two windows."""
    return np.concatenate([samples(clip) for clip in (*CLIPS, *CLIPS, *CLIPS, *CLIPS)])[: 40 * 16_000]


@pytest.fixture(scope="module")
def done(
    examples: FreshEnvironment,
    first: Path,
    second: Path,
    recording: np.ndarray,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[Any, Any]:
    """The commands of the tests below, run where the plugin is installed."""
    long = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(long, recording, 16_000, subtype="FLOAT")
    of_first, of_second = ("--model", first, "--json", *GREEDY), ("--model", second, "--json", *GREEDY)
    commands: dict[Any, tuple[str | Path, ...]] = {
        "french": ("transcribe", *CLIPS, *of_first, "--target-language", "French"),
        "german": ("transcribe", *CLIPS, *of_first, "--language", "de"),
        "chinese": ("transcribe", *CLIPS, *of_second, "--target-language", "cmn_Hant", "--language", "eng"),
        "long": ("transcribe", long, *of_second, "--mode", "sequential", "--target-language", "zh-TW"),
        "english": ("transcribe", *CLIPS, *of_second, "--task", "translate"),
        "batched": ("transcribe", *CLIPS, *of_second, "--target-language", "en", "--batched"),
        **{options: ("transcribe", CLIPS[0], "--model", first, *options) for options, _ in REFUSED},
    }
    return dict(zip(commands, examples.commands(*commands.values()), strict=True))


def lines(output: Any) -> list[dict[str, Any]]:
    assert output.returncode == 0, output.stderr
    return [json.loads(line) for line in output.stdout.splitlines()]


@pytest.mark.slow
def test_recordings_are_written_in_the_language_that_is_asked_for(
    done: dict[Any, Any], first: Path, second: Path
) -> None:
    clips = [samples(clip) for clip in CLIPS]
    found = {name: lines(done[name]) for name in ("french", "german", "chinese", "english")}
    for name, model, checkpoint, written, spoken in (
        ("french", SeamlessM4TForSpeechToText, first, "fra", "und"),
        ("german", SeamlessM4TForSpeechToText, first, "deu", "deu"),
        ("chinese", SeamlessM4Tv2ForSpeechToText, second, "cmn_Hant", "eng"),
        ("english", SeamlessM4Tv2ForSpeechToText, second, "eng", "und"),
    ):
        assert [line["text"] for line in found[name]] == heard(model, checkpoint, clips, written)
        assert {line["language"] for line in found[name]} == {spoken}
    assert len({line["text"] for each in found.values() for line in each}) > len(found)


@pytest.mark.slow
def test_windows_and_pieces_are_segments(done: dict[Any, Any], second: Path, recording: np.ndarray) -> None:
    # What a request carries are whole frames, the last of which ends 15 ms after the window's last hop.
    windows = [recording[: 30 * 16_000 + 240], recording[30 * 16_000 :]]
    (long,) = lines(done["long"])
    expected = heard(SeamlessM4Tv2ForSpeechToText, second, windows, "cmn_Hant")
    assert [segment["text"].strip() for segment in long["segments"]] == expected
    for line in lines(done["batched"]):
        (segment,) = line["segments"]
        assert segment["text"].strip() == line["text"] != ""


@pytest.mark.slow
@pytest.mark.parametrize(("options", "told"), REFUSED, ids=str)
def test_it_says_what_to_say(done: dict[Any, Any], options: tuple[str, ...], told: str) -> None:
    assert done[options].returncode != 0
    assert told in " ".join(done[options].stderr.split())
