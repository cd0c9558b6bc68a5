"""Audio that is none, or too much of it: paths, bytes, open files, pipes and waveforms."""

import io
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from random_whisper import save_random_whisper
from refusal import Table, refused, table, watched

from transept import Engine, Transcriber
from transept.multimodal.audio import load_audio

RATE = 16_000
SPEECH = Path(__file__).parents[1] / "data" / "speech" / "librivox" / "austen-0930.flac"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde"
PLAYLIST = b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
FLAC = SPEECH.read_bytes()


def encoded(samples: np.ndarray, file_format: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=file_format, subtype=subtype)
    return file.getvalue()


def wav(data: bytes = bytes(3200), *, channels: int = 1, rate: int = RATE, bits: int = 16, tag: int = 1) -> bytes:
    block = channels * bits // 8
    form = struct.pack("<IHHIIHH", 16, tag, channels, rate, rate * block % 2**32, block % 2**16, bits)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data)) + data
    )


def floats(value: float, at: int = 50) -> np.ndarray:
    samples = np.zeros(RATE, np.float32)
    samples[at] = value
    return samples


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def loop(path: Path) -> Path:
    (path / "a.wav").symlink_to(path / "b.wav")
    (path / "b.wav").symlink_to(path / "a.wav")
    return path / "a.wav"


def dangling(path: Path) -> Path:
    (path / "gone.wav").symlink_to(path / "nowhere.wav")
    return path / "gone.wav"


def locked(path: Path) -> Path:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    written(path / "locked.wav", wav()).chmod(0)
    return path / "locked.wav"


def bound_socket(path: Path) -> Path:
    """A socket's file stays when it is closed."""
    with socket.socket(socket.AF_UNIX) as opened:
        here = os.getcwd()
        os.chdir(path)  # names of sockets are short
        opened.bind("talk.wav")
        os.chdir(here)
    return path / "talk.wav"


def bomb(path: Path) -> Path:
    """Three hours of silence in 150 kB."""
    with soundfile.SoundFile(path / "bomb.flac", "w", RATE, 1) as file:
        for _ in range(180):
            file.write(np.zeros(60 * RATE, np.int16))
    return path / "bomb.flac"


def sparse(path: Path) -> Path:
    """A file of a terabyte that takes no place on the disk."""
    with (path / "sparse.wav").open("wb") as file:
        file.write(wav()[:44])
        file.truncate(1 << 40)
    return path / "sparse.wav"


def fed(path: Path, pieces: Iterator[bytes]) -> Path:
    """A named pipe into which a thread writes."""
    os.mkfifo(path / "pipe.wav")

    def write() -> None:
        with (path / "pipe.wav").open("wb", buffering=0) as opened:
            try:
                for piece in pieces:
                    opened.write(piece)
            except BrokenPipeError:
                return

    threading.Thread(target=write, daemon=True).start()
    return path / "pipe.wav"


def endless(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


class Stream:
    """What a program may pass for an open file."""

    name = "a stream"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read(self, size: int = -1) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Deep:
    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise RuntimeError("this array is broken")


class Pathless:
    def __fspath__(self) -> int:
        return 5  # type: ignore[return-value]


def closed() -> io.BytesIO:
    file = io.BytesIO(FLAC)
    file.close()
    return file


def released() -> memoryview:
    view = memoryview(FLAC)
    view.release()
    return view


# ------------------------------------------------------------------------------------------------------------- paths

PATHS: Table = {
    "a path to nothing": (lambda path: path / "missing.wav", "missing.wav"),
    "a path in a folder that is none": (lambda path: written(path / "file", b"x") / "talk.wav", "talk.wav"),
    "an empty path": (lambda path: "", "cannot be opened"),
    "a folder": (lambda path: path, "directory"),
    "a path with a zero byte": (lambda path: f"{path}/talk\0.wav", "null byte"),
    "a path with half a surrogate pair": (lambda path: f"{path}/talk\ud800.wav", "cannot be opened"),
    "a path too long for the system": (lambda path: f"{path}/{'talk' * 2000}.wav", "too long"),
    "a link to itself": (loop, "symbolic links"),
    "a link to nothing": (dangling, "gone.wav"),
    "a file that may not be read": (locked, "locked.wav"),
    "a socket": (bound_socket, "talk.wav"),
    "an https URL": (lambda path: "https://example.com/talk.mp3", "local file"),
    "a file URL": (lambda path: SPEECH.as_uri(), "local file"),
    "a home folder's file that is missing": (lambda path: "~/no such recording.wav", "no such recording"),
    "the null device": (lambda path: "/dev/null", "/dev/null"),
    "the zero device": (lambda path: "/dev/zero", "/dev/zero"),
    "this process's memory": (lambda path: "/proc/self/mem", "/proc/self/mem"),
    "a path object that gives a number": (lambda path: Pathless(), "Pathless"),
    "a sparse file of a terabyte": (sparse, "max_audio_bytes"),
    "an empty file": (lambda path: written(path / "empty.wav", b""), "empty.wav"),
    "a text called wav": (lambda path: written(path / "letter.wav", b"Dear Sir or Madam,\n" * 99), "letter.wav"),
    "a picture called mp3": (lambda path: written(path / "cover.mp3", PNG + bytes(500)), "cover.mp3"),
    "headerless samples called raw": (lambda path: written(path / "talk.raw", bytes(range(256)) * 20), "talk.raw"),
    "a playlist called wav": (lambda path: written(path / "list.wav", PLAYLIST), "list.wav"),
    "half a flac header": (lambda path: written(path / "half.flac", FLAC[:30]), "half.flac"),
}

# ------------------------------------------------------------------------------------------------------------- bytes

BYTES: Table = {
    "no bytes": (lambda: b"", "is empty"),
    "one byte": (lambda: b"R", "1 bytes"),
    "zeros": (lambda: bytes(1000), "1000 bytes"),
    "a text": (lambda: b"this is not a recording", "23 bytes"),
    "the text of a path": (lambda: str(SPEECH).encode(), "audio data"),
    "a web page": (lambda: b"<!DOCTYPE html><html><body>404</body></html>" * 9, "396 bytes"),
    "a PNG": (lambda: PNG + bytes(100), "audio data"),
    "a PDF": (lambda: b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" * 9, "audio data"),
    "a zip archive": (lambda: b"PK\3\4" + bytes(200), "audio data"),
    "a Python pickle": (lambda: b"\x80\4\x95" + bytes(100), "audio data"),
    "a playlist that names a file": (lambda: PLAYLIST, "audio data"),
    "an ffconcat script": (lambda: b"ffconcat version 1.0\nfile '/etc/passwd'\n", "audio data"),
    "the word RIFF": (lambda: b"RIFF", "4 bytes"),
    "a wav header without samples": (lambda: wav(b""), "44 bytes"),
    "a wav of 0 channels": (lambda: wav(channels=0), "audio data"),
    "a wav of 1000 channels": (lambda: wav(bytes(8000), channels=1000), "1000 channels"),
    "a wav of 0 Hz": (lambda: wav(rate=0), "audio data"),
    "a wav of 5 Hz": (lambda: wav(rate=5), "5 Hz"),
    "a wav of 4 GHz": (lambda: wav(rate=4_000_000_000), "audio data"),
    "a wav of 0 bits": (lambda: wav(bits=0), "audio data"),
    "a wav in a codec that nobody has": (lambda: wav(tag=0x7777), "audio data"),
    "a wav with NaN in it": (lambda: encoded(floats(np.nan), subtype="FLOAT"), "NaN"),
    "a wav with infinity in it": (lambda: encoded(floats(np.inf), subtype="FLOAT"), "inf"),
    "a wav of floats as loud as integers": (lambda: encoded(floats(32_000.0), subtype="FLOAT"), "32000"),
    "a wav of numbers over float32": (lambda: encoded(np.full(99, 1e300), subtype="DOUBLE"), "inf"),
    "the magic of flac alone": (lambda: b"fLaC", "4 bytes"),
    "the magic of ogg alone": (lambda: b"OggS" + bytes(30), "34 bytes"),
    "an ID3 tag alone": (lambda: b"ID3\4\0\0\0\0\0\0", "10 bytes"),
    "an mp4 without its index": (lambda: b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42isom", "audio data"),
    "an mkv header alone": (lambda: b"\x1aE\xdf\xa3\x9fB\x86\x81\1", "audio data"),
    "a memory view with gaps": (lambda: memoryview(FLAC)[::2], "audio data"),
    "a memory view that is released": (released, "memoryview"),
}

# ----------------------------------------------------------------------------------------------------- files and types

OBJECTS: Table = {
    "None": (lambda: None, "NoneType"),
    "a number": (lambda: 3, "int"),
    "a list of numbers": (lambda: [0.0, 0.1], "list"),
    "a dict": (lambda: {"array": np.zeros(99), "sampling_rate": RATE}, "dict"),
    "a set": (lambda: {1}, "set"),
    "an array of integers without its rate": (lambda: np.zeros(RATE, np.int16), "int16"),
    "a tensor of integers without its rate": (lambda: torch.zeros(RATE, dtype=torch.int32), "int32"),
    "the class Path": (lambda: Path, "type"),
    "the class of arrays": (lambda: np.ndarray, "shape"),
    "a file of text": (lambda: io.StringIO("words"), '"rb"'),
    "a file that is closed": (closed, "closed"),
    "a stream that gives nothing": (lambda: Stream(b""), "empty"),
    "a stream that gives None": (lambda: Stream(None), "empty"),
    "a stream that gives numbers": (lambda: Stream([1, 2]), "list"),
    "a stream whose connection broke": (lambda: Stream(ConnectionResetError("the peer is gone")), "the peer is gone"),
    "a stream that raises what it likes": (lambda: Stream(KeyError("no such chunk")), "no such chunk"),
    "a stream whose read is no method": (lambda: type("Odd", (), {"read": 5})(), "Odd"),
    "a stream without end": (lambda: Stream(bytes(1 << 20)), "max_stream_bytes"),
}

# --------------------------------------------------------------------------------------------------------- waveforms

WAVEFORMS: Table = {
    "a tuple of one": (lambda: (np.zeros(9),), "tuple of 1"),
    "a tuple of three": (lambda: (np.zeros(9), RATE, 1), "tuple of 3"),
    "an empty tuple": (lambda: (), "tuple of 0"),
    "rate and waveform in the wrong order": (lambda: (RATE, np.zeros(9)), "sample rate"),
    "a rate in text": (lambda: (np.zeros(9), "16000"), "str"),
    "no rate": (lambda: (np.zeros(9), None), "NoneType"),
    "a rate of True": (lambda: (np.zeros(9), True), "bool"),
    "a rate of 0": (lambda: (np.zeros(9), 0), "0 Hz"),
    "a rate below 0": (lambda: (np.zeros(9), -RATE), "-16000 Hz"),
    "a rate in kHz": (lambda: (np.zeros(9), 16), "16 Hz"),
    "a rate of NaN": (lambda: (np.zeros(9), float("nan")), "nan"),
    "a rate of infinity": (lambda: (np.zeros(9), float("inf")), "inf"),
    "a rate beyond any float": (lambda: (np.zeros(9), 10**400), "sample rate"),
    "a complex rate": (lambda: (np.zeros(9), 16_000 + 0j), "complex"),
    "a scalar": (lambda: (np.float32(0.5), RATE), "shape []"),
    "no waveform": (lambda: (None, RATE), "waveform"),
    "a path for a waveform": (lambda: (str(SPEECH), RATE), "waveform"),
    "bytes for a waveform": (lambda: (b"\0\1", RATE), "waveform"),
    "three dimensions": (lambda: (np.zeros((1, 2, 99)), RATE), "shape [1, 2, 99]"),
    "channels of unequal length": (lambda: ([[0.0, 0.1], [0.0]], RATE), "array of numbers"),
    "words": (lambda: (["a", "b"], RATE), "dtype"),
    "objects": (lambda: ([object(), object()], RATE), "dtype object"),
    "complex numbers": (lambda: (np.zeros(99, np.complex64), RATE), "complex64"),
    "truth values": (lambda: (np.zeros(99, bool), RATE), "bool"),
    "int64": (lambda: (np.zeros(99, np.int64), RATE), "int64"),
    "dates": (lambda: (np.zeros(99, "datetime64[s]"), RATE), "datetime64"),
    "NaN": (lambda: (floats(np.nan), RATE), "NaN"),
    "infinity": (lambda: (floats(-np.inf), RATE), "inf"),
    "floats as loud as integers": (lambda: (floats(20_000.0), RATE), "20000"),
    "doubles over float32": (lambda: (np.full(99, 1e300), RATE), "inf"),
    "300 channels": (lambda: (np.zeros((300, 400)), RATE), "300 channels"),
    "a terabyte that takes no memory": (
        lambda: (np.broadcast_to(np.float32(0), (1 << 38,)), RATE),
        "max_audio_seconds",
    ),
    "a million channels": (lambda: (np.broadcast_to(np.int16(0), (10**6, 10**6)), RATE), "1000000 channels"),
    "a sparse tensor": (lambda: (torch.zeros(9).to_sparse(), RATE), "tensor"),
    "a tensor without data": (lambda: (torch.zeros(9, device="meta"), RATE), "tensor"),
    "an array that raises": (lambda: (Deep(), RATE), "this array is broken"),
}

LIMITED = {"max_audio_seconds": 600, "max_audio_bytes": 1 << 30, "max_stream_bytes": 5_000_000}


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    load_audio(FLAC)
    load_audio((np.zeros((2, 800)), 8000))
    with pytest.raises(ValueError, match="audio data"):
        load_audio(b"nothing for FFmpeg either")


@table(PATHS)
def test_path(call, names, tmp_path):
    data = call(tmp_path)
    refused(lambda: watched(lambda: load_audio(data, **LIMITED)), names)


@table(BYTES)
def test_bytes(call, names):
    data = call()
    refused(lambda: load_audio(data), names)


@table(OBJECTS)
def test_object(call, names):
    data = call()
    refused(lambda: watched(lambda: load_audio(data, **LIMITED)), names)


@table(WAVEFORMS)
def test_waveform(call, names):
    data = call()
    refused(lambda: load_audio(data), names)


@table(
    {
        "a file of hours in some bytes": (bomb, "max_audio_seconds"),
        "a pipe of zeros without end": (lambda path: fed(path, endless(bytes(1 << 16))), "max_stream_bytes"),
        "a pipe of noise without end": (lambda path: fed(path, endless(wav())), "max_stream_bytes"),
        "a pipe that is closed at once": (lambda path: fed(path, iter(())), "pipe.wav"),
        "a pipe of a text": (lambda path: fed(path, iter([b"Dear Sir"])), "pipe.wav"),
    }
)
def test_pipes_and_bombs(call, names, tmp_path):
    data = call(tmp_path)
    refused(lambda: watched(lambda: load_audio(data, **LIMITED)), names)


# --------------------------------------------------------------------------------------- the same through an engine


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    engine = Engine(save_random_whisper(tmp_path_factory.mktemp("whisper")), device="cpu", kv_cache_bytes=1 << 24)
    engine.generate({"multi_modal_data": {"audio": (np.zeros(800, np.float32), RATE)}})
    return engine


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    made = Transcriber(tiny_en_dir, device="cpu", kv_cache_bytes=1 << 26, limits=LIMITED)
    made.transcribe((np.zeros(RATE, np.float32), RATE), temperature=0.0, max_new_tokens=1)
    return made


REQUESTS: Table = {
    "audio that is None": (lambda: {"audio": None}, "NoneType"),
    "audio that is missing": (lambda: {"audio": "missing.wav"}, "missing.wav"),
    "audio longer than a window": (lambda: {"audio": (np.zeros(3 * RATE), RATE)}, "3.00 s"),
    "hours of audio": (lambda: {"audio": (np.broadcast_to(np.float32(0), (1 << 30,)), RATE)}, "600 s"),
    "features that are a list": (lambda: {"audio_features": [[0.0]]}, "list"),
    "features of another number of mels": (lambda: {"audio_features": torch.zeros(79, 10)}, "[79, 10]"),
    "features longer than a window": (lambda: {"audio_features": torch.zeros(80, 4000)}, "4000 frames"),
    "features of one dimension": (lambda: {"audio_features": torch.zeros(80)}, "[80]"),
    "features without data": (lambda: {"audio_features": torch.zeros(80, 10, device="meta")}, "audio_features"),
    "features of complex numbers": (lambda: {"audio_features": torch.zeros(80, 10) * 1j}, "audio_features"),
    "features that are sparse": (lambda: {"audio_features": torch.zeros(80, 10).to_sparse()}, "audio_features"),
    "features of text": (lambda: {"audio_features": "a talk"}, "str"),
}


@table(REQUESTS)
def test_request(call, names, whisper):
    data = call()
    refused(lambda: whisper.generate({"multi_modal_data": data}), names)


RECORDINGS: Table = {
    "a recording that is None": (lambda ours, path: ours.transcribe(None), "NoneType"),
    "a recording that is missing": (lambda ours, path: ours.transcribe(path / "missing.mp3"), "missing.mp3"),
    "a recording of hours": (lambda ours, path: ours.transcribe(path / "bomb.flac"), "max_audio_seconds"),
    "a stream that raises": (lambda ours, path: ours.transcribe(Stream(OSError("line cut"))), "line cut"),
    "a stream of segments of nothing": (lambda ours, path: list(ours.stream(b"")), "empty"),
    "one recording where a list is wanted": (lambda ours, path: ours.transcribe_many("talk.wav"), "list of recordings"),
    "recordings that are None": (lambda ours, path: list(ours.transcribe_many(None)), "NoneType"),
    "recordings that are a number": (lambda ours, path: list(ours.transcribe_many(3)), "int"),
    "one open file where a list is wanted": (
        lambda ours, path: list(ours.transcribe_many(io.BytesIO(FLAC))),
        "list of recordings",
    ),
    "one waveform where a list is wanted": (
        lambda ours, path: list(ours.transcribe_many((np.zeros(9), RATE))),
        "list of recordings",
    ),
    "a language of a model of one": (lambda ours, path: ours.detect_language(FLAC), "one language"),
}


@table(RECORDINGS)
def test_recording(call, names, transcriber, tmp_path):
    if names == "max_audio_seconds":
        bomb(tmp_path)  # which takes longer than it may take to refuse it
    refused(lambda: watched(lambda: call(transcriber, tmp_path)), names)
