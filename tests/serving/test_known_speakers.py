"""Speakers of requests are named after known voices: OpenAI's references, a file's JSON, and the server's own file."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from patience import PATIENCE
from plugin_folder import DIARIZER, environment, installed_module
from serve_process import ServeProcess
from speech.recordings import RATE, clip

from transept import Voices

pytestmark = pytest.mark.slow
SECONDS = 8  # of each speaker
PLUGIN = f'''{DIARIZER}

import numpy as np
from transept.authoring import VoiceModel


@hookimpl
def voice_model():
    return VoiceModel("spectra-1", threshold=0.9)


@hookimpl
def embed_voice(waveform, sample_rate):
    """Return the mean spectrum in bands, without its mean."""
    frames = waveform[: len(waveform) // 1024 * 1024].reshape(-1, 1024)
    bands = np.abs(np.fft.rfft(frames))[:, 1:161].reshape(len(frames), 40, 4).mean(axis=(0, 2))
    spectrum = np.log(bands + 1e-4)
    return spectrum - spectrum.mean()
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed_module("spectra", PLUGIN, tmp_path_factory.mktemp("plugin")) as site:
        yield site


@pytest.fixture(scope="module")
def voices(speech_dir: Path) -> dict[str, np.ndarray]:
    names = {"Ann": "librivox/austen-0870", "Bob": "prompts-en/queue-periodic-announce"}
    return {name: clip(speech_dir / f"{file}.flac")[: SECONDS * RATE] for name, file in names.items()}


def wav(waveform: np.ndarray) -> bytes:
    written = io.BytesIO()
    soundfile.write(written, waveform, RATE, format="WAV")
    return written.getvalue()


@pytest.fixture(scope="module")
def talk(voices: dict[str, np.ndarray]) -> bytes:
    return wav(np.concatenate([np.pad(each, (0, SECONDS * RATE - len(each))) for each in voices.values()]))


@pytest.fixture(scope="module")
def own_file(site: Path, voices: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("own") / "voices.json"
    Voices().enrolled("Robert", (voices["Bob"], RATE)).write(file)
    return file


@pytest.fixture(scope="module")
def client(
    tiny_en_dir: Path, site: Path, own_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("server")
    server = ServeProcess(folder, f"tiny.en={tiny_en_dir}", "--voices", own_file, environment=environment(site))
    server.wait_until_ready()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client
    server.stop()


def speakers(client: openai.OpenAI, talk: bytes, **fields: Any) -> list[str]:
    """The speakers of a recording, in the order in which they first speak."""
    extra = {"quality": "fast", **fields.pop("extra_body", {})}
    answer: Any = client.audio.transcriptions.create(
        file=("talk.wav", talk), model="tiny.en", response_format="diarized_json", extra_body=extra, **fields
    )
    return list(dict.fromkeys(each.speaker for each in answer.segments))


def test_openais_references_name_the_speakers(
    client: openai.OpenAI, talk: bytes, voices: dict[str, np.ndarray]
) -> None:
    urls = [f"data:audio/wav;base64,{base64.b64encode(wav(each)).decode()}" for each in voices.values()]
    fields = {"known_speaker_names": ["Bob", "Ann"], "known_speaker_references": urls[::-1]}
    assert speakers(client, talk, **fields) == ["Ann", "Bob"]
    short = f"data:audio/wav;base64,{base64.b64encode(wav(voices['Ann'][: RATE // 4])).decode()}"
    with pytest.raises(openai.BadRequestError, match=r"that of Ann: the recording has .* a voice needs at least 1 s"):
        speakers(client, talk, known_speaker_names=["Ann"], known_speaker_references=[short])


def test_the_servers_own_voices_name_the_speakers_of_other_requests(
    client: openai.OpenAI, talk: bytes, voices: dict[str, np.ndarray], own_file: Path
) -> None:
    assert speakers(client, talk) == ["speaker 1", "Robert"]
    assert len(speakers(client, talk, extra_body={"speakers": "1"})) == 1
    assert speakers(client, talk, extra_body={"speaker_names": "Anna"}) == ["Anna", "speaker 2"]
    own = own_file.read_text().replace("Robert", "Bobby")
    assert speakers(client, talk, extra_body={"voices": own}) == ["speaker 1", "Bobby"]
    cut = json.loads(own)
    cut["voices"]["Bobby"]["embedding"].pop()
    with pytest.raises(openai.BadRequestError, match="enroll the voices again"):
        speakers(client, talk, extra_body={"voices": json.dumps(cut)})
    Voices.read(own_file).enrolled("Anna", (voices["Ann"], RATE)).write(own_file)
    assert speakers(client, talk) == ["Anna", "Robert"]  # without a restart
