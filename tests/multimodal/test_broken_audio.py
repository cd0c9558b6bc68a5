"""Damaged files of every kind: samples or a MediaError, soon, in bounded memory, and no decoder's words on stderr."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from media_files import SPEECH, media_file, sound_file
from mutations import mutated
from patience import PATIENCE
from peak_memory import forget_peak, peak, run_python

from transept.errors import MediaError
from transept.multimodal.audio import load_audio

RATE = 16_000
NUM_MUTATIONS = 400


def speech() -> np.ndarray:
    return soundfile.read(SPEECH / "librivox" / "austen-0930.flac", dtype="float32")[0][: 2 * RATE]


FILES: dict[str, Callable[[], bytes]] = {
    "wav": lambda: sound_file(speech(), RATE),
    "flac": lambda: sound_file(speech(), RATE, "FLAC"),
    "ogg": lambda: sound_file(speech(), RATE, "OGG", "VORBIS"),
    "mp3": lambda: sound_file(speech(), RATE, "MP3"),
    "m4a": lambda: media_file("ipod", "aac", speech()[None], RATE, "mono"),
    "w64": lambda: sound_file(speech(), RATE, "W64"),
    "aiff": lambda: sound_file(speech(), RATE, "AIFF"),
    "caf": lambda: sound_file(speech(), RATE, "CAF"),
    "mkv": lambda: media_file("matroska", "libopus", speech()[None], RATE, "mono"),
}


def load_mutations(kind: str) -> dict[str, int]:
    """What has become of them; run in a process of its own."""
    data = FILES[kind]()
    load_audio(data)
    before = forget_peak()
    num_read, most_samples = 0, 0
    for seed in range(NUM_MUTATIONS):
        try:
            samples = load_audio(mutated(data, seed, head=200))
        except MediaError:
            continue
        num_read += 1
        most_samples = max(most_samples, len(samples))
        assert np.isfinite(samples).all()
    kilobytes = peak() - before
    return {"num_read": num_read, "most_samples": most_samples, "kilobytes": kilobytes}


@pytest.mark.sampled(2)
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is not told there")
@pytest.mark.parametrize("kind", FILES)
def test_mutations_are_read_or_refused(kind: str) -> None:
    program = f"import json, test_broken_audio\nprint(json.dumps(test_broken_audio.load_mutations({kind!r})))"
    done = run_python(program, timeout=PATIENCE, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-2000:]
    said = [line for line in done.stderr.splitlines() if " is damaged: " not in line]
    assert said == []
    result = json.loads(done.stdout)
    assert 0 < result["num_read"] < NUM_MUTATIONS
    assert result["kilobytes"] < 200_000
