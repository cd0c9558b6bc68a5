"""Audio against independent references: the samples that were written, librosa, transformers' feature extractor."""

import functools
import io
import logging
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading

import av
import librosa
import numpy as np
import pytest
import soundfile
import torch
from media_files import SPEECH, media_file, sound_file
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from transept.multimodal.audio import SAMPLE_RATE, load_audio
from transept.multimodal.log_mel import log_mel_spectrogram, mel_filters
from transept.multimodal.mapping import MediaError

CLIPS = sorted((SPEECH / "librivox").glob("*.flac")) + sorted((SPEECH / "prompts-en").glob("*.flac"))[::9]
WINDOW = 480_000  # samples, 30 s


def clip() -> np.ndarray:
    """Speech, float32 [num_samples] at 16 kHz."""
    return soundfile.read(CLIPS[0], dtype="float32")[0]


def noise(num_samples: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(num_samples)
    return (rng.standard_normal((*shape, num_samples)) * 0.1).astype(np.float32)


def signal_to_noise(samples: np.ndarray, reference: np.ndarray) -> float:
    """In dB, over the reference's length; a shift by one sample costs most of it."""
    error = samples[: len(reference)] - reference
    return 10 * np.log10(np.square(reference).sum() / max(np.square(error).sum(), 1e-10))


# --- files


@pytest.mark.parametrize("path", CLIPS, ids=lambda path: path.stem)
def test_speech_files_decode_to_their_samples(path):
    reference, rate = soundfile.read(path, dtype="int16")
    assert rate == SAMPLE_RATE
    for data in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        samples = load_audio(data)
        assert samples.dtype == np.float32
        assert samples.ndim == 1
        np.testing.assert_array_equal(samples, reference / np.float32(32768))


@pytest.mark.parametrize(
    ("file_format", "subtype", "step"),
    [
        ("WAV", "PCM_U8", 2**-7),
        ("WAV", "PCM_16", 2**-15),
        ("WAV", "PCM_24", 2**-23),
        ("WAV", "FLOAT", 0.0),
        ("WAV", "DOUBLE", 0.0),
        ("FLAC", "PCM_16", 2**-15),
        ("FLAC", "PCM_24", 2**-23),
        ("AIFF", "PCM_16", 2**-15),
    ],
)
def test_lossless_files(tmp_path, file_format, subtype, step):
    reference = clip()
    encoded = sound_file(reference, SAMPLE_RATE, file_format, subtype)
    path = tmp_path / "clip.audio"
    path.write_bytes(encoded)
    for data in (path, encoded):
        np.testing.assert_allclose(load_audio(data), reference, rtol=0, atol=step)


@pytest.mark.parametrize(
    ("file_format", "subtype", "rate"),
    [("OGG", "VORBIS", 16_000), ("OGG", "OPUS", 48_000), ("MP3", "MPEG_LAYER_III", 44_100)],
)
def test_lossy_files(file_format, subtype, rate):
    reference = clip()
    written = librosa.resample(reference, orig_sr=SAMPLE_RATE, target_sr=rate)
    samples = load_audio(sound_file(written, rate, file_format, subtype))
    assert abs(len(samples) - len(reference)) <= 1
    assert signal_to_noise(samples, reference[: len(samples)]) > 8


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels", "video"),
    [
        ("ipod", "aac", 16_000, 1, False),  # .m4a
        ("mp4", "aac", 44_100, 2, False),
        ("mp4", "aac", 48_000, 2, True),
        ("mov", "pcm_s16le", 16_000, 2, True),
        ("matroska", "aac", 48_000, 1, True),
        ("matroska", "pcm_s24le", 22_050, 1, False),
        ("webm", "libopus", 48_000, 1, False),
        ("adts", "aac", 16_000, 1, False),
    ],
)
def test_files_that_only_ffmpeg_reads(tmp_path, container, codec, rate, channels, video):
    reference = clip()
    written = librosa.resample(reference, orig_sr=SAMPLE_RATE, target_sr=rate)
    layout = {1: "mono", 2: "stereo"}[channels]
    encoded = media_file(container, codec, np.stack([written] * channels), rate, layout, video=video)
    with pytest.raises(soundfile.LibsndfileError):
        soundfile.read(io.BytesIO(encoded))
    path = tmp_path / "clip.media"
    path.write_bytes(encoded)
    samples = load_audio(path)
    np.testing.assert_array_equal(samples, load_audio(encoded))
    if container == "adts":  # a bare stream, which cannot say how much the encoder put in front
        samples = samples[1024:]
    assert -2 <= len(samples) - len(reference) < 0.2 * SAMPLE_RATE  # the last frame may be padded
    assert signal_to_noise(samples, reference[: len(samples)]) > 8


def test_ffmpeg_keeps_pcm_exact_and_takes_the_mean_of_the_channels():
    left, right = (noise(5000), noise(5001)[:5000])
    encoded = media_file("matroska", "pcm_f32le", np.stack([left, right]), SAMPLE_RATE, "stereo")
    np.testing.assert_allclose(load_audio(encoded), (left + right) / 2, rtol=0, atol=1e-7)


def test_eight_channels_of_planar_audio():
    reference = clip()
    samples = load_audio(media_file("mp4", "aac", np.stack([reference] * 8), SAMPLE_RATE, "7.1"))
    assert len(samples) >= len(reference)
    assert np.corrcoef(samples[: len(reference)], reference)[0, 1] > 0.9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("decoder", ["libsndfile", "ffmpeg"])
def test_a_pipe_is_read(tmp_path, decoder):
    encoded = CLIPS[0].read_bytes()
    if decoder == "ffmpeg":
        encoded = media_file("matroska", "aac", clip()[None], SAMPLE_RATE, "mono")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(encoded,))
    writer.start()
    samples = load_audio(pipe)
    writer.join()
    np.testing.assert_array_equal(samples, load_audio(encoded))


# --- rates and channels


RATES = [8_000, 22_050, 44_100, 48_000, 96_000]


@pytest.mark.parametrize("rate", RATES)
def test_waveforms_are_resampled_as_by_librosa(rate):
    written = noise(rate * 7 + 13)  # of several blocks, not a whole number of output samples
    expected = librosa.resample(written, orig_sr=rate, target_sr=SAMPLE_RATE, res_type="soxr_hq")
    samples = load_audio((written, rate))
    assert abs(len(samples) - len(expected)) <= 1  # librosa appends a zero to round up
    shared = min(len(samples), len(expected)) - 1
    np.testing.assert_allclose(samples[:shared], expected[:shared], rtol=0, atol=1e-6)


def as_peers_hear(encoded: bytes) -> np.ndarray:
    """As openai-whisper and faster-whisper have FFmpeg decode: to 16-bit mono at 16 kHz."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
    with av.open(io.BytesIO(encoded)) as container:
        frames = [*container.decode(audio=0), None]
    return np.concatenate([part.to_ndarray()[0] for frame in frames for part in resampler.resample(frame)]) / 32768


@pytest.mark.parametrize(
    "encode",
    [
        *(functools.partial(lambda rate, x: sound_file(x.T, rate, "WAV", "FLOAT"), rate) for rate in RATES),
        lambda x: sound_file(x.T, 48_000, "FLAC", "PCM_24"),
        lambda x: sound_file(x.T, 44_100, "MP3"),
        lambda x: media_file("ipod", "aac", x, 44_100, "stereo"),
        lambda x: media_file("webm", "libopus", x, 48_000, "stereo"),
    ],
    ids=[*map(str, RATES), "flac", "mp3", "m4a", "webm"],
)
def test_files_are_heard_as_peers_hear_them(encode):
    encoded = encode(noise(200_013, 2))
    expected = as_peers_hear(encoded)
    samples = load_audio(encoded)
    assert len(samples) == len(expected)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=0.52 / 32768)  # half of what they round to


def test_another_rate_may_be_asked_for():
    written = noise(16_000)
    expected = librosa.resample(written, orig_sr=16_000, target_sr=8_000, res_type="soxr_hq")
    np.testing.assert_allclose(load_audio((written, 16_000), sample_rate=8_000), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("channels", [2, 6])
def test_channels_of_a_file_are_averaged(channels):
    written = noise(50_000, channels)
    samples = load_audio(sound_file(written.T, SAMPLE_RATE, "WAV", "FLOAT"))
    np.testing.assert_allclose(samples, written.mean(axis=0), rtol=0, atol=1e-6)


def test_the_shorter_axis_is_the_channels():
    written = noise(1000, 2)
    expected = written.mean(axis=0)
    for waveform in (written, written.T, written.T.copy(), torch.from_numpy(written), written.tolist()):
        np.testing.assert_allclose(load_audio((waveform, SAMPLE_RATE)), expected, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(load_audio((written[:1], SAMPLE_RATE)), written[0])
    np.testing.assert_array_equal(load_audio((written[:1].T, SAMPLE_RATE)), written[0])


@pytest.mark.parametrize("rate", [SAMPLE_RATE, float(SAMPLE_RATE), np.int64(SAMPLE_RATE), np.float32(SAMPLE_RATE)])
@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.float64,
        lambda samples: samples[::-1][::-1],
        list,
        torch.from_numpy,
        lambda samples: torch.from_numpy(samples).requires_grad_(),
    ],
)
def test_forms_of_a_waveform(convert, rate):
    written = noise(500)
    np.testing.assert_array_equal(load_audio((convert(written), rate)), written)


@pytest.mark.parametrize("convert", [np.asarray, np.float64, torch.from_numpy, lambda samples: samples[None]])
def test_an_array_alone_is_at_16_khz(convert):
    written = noise(500)
    np.testing.assert_array_equal(load_audio(convert(written)), written)
    at_8_khz = load_audio((written, SAMPLE_RATE), sample_rate=8_000)
    np.testing.assert_array_equal(load_audio(convert(written), sample_rate=8_000), at_8_khz)


def test_half_precision():
    written = np.array([0.0, 0.5, -0.25, 1.0], np.float32)  # exact in every precision
    for waveform in (written.astype(np.float16), torch.from_numpy(written).bfloat16()):
        np.testing.assert_array_equal(load_audio((waveform, SAMPLE_RATE)), written)


@pytest.mark.parametrize(
    ("waveform", "expected"),
    [
        (np.array([-32768, -1, 0, 16384, 32767], np.int16), [-1, -1 / 32768, 0, 0.5, 32767 / 32768]),
        (np.array([-32768, 0, 16384], ">i2"), [-1, 0, 0.5]),
        (np.array([-(2**31), 0, 2**30], np.int32), [-1, 0, 0.5]),
        (np.array([0, 128, 192, 255], np.uint8), [-1, 0, 0.5, 127 / 128]),
        (torch.tensor([-32768, 0, 16384], dtype=torch.int16), [-1, 0, 0.5]),
        (np.array([[16384] * 3, [-16384] * 3], np.int16), [0, 0, 0]),
    ],
)
def test_integer_pcm(waveform, expected):
    np.testing.assert_array_equal(load_audio((waveform, SAMPLE_RATE)), np.array(expected, np.float32))


def test_the_callers_array_is_left_alone():
    written = noise(100)
    load_audio((written, SAMPLE_RATE))[:] = 0
    np.testing.assert_array_equal(written, noise(100))


# --- damaged files


def test_truncated_files_decode_what_is_there(tmp_path):
    reference = clip()
    for encoded, step in [
        (sound_file(reference, SAMPLE_RATE, "WAV", "PCM_16"), 2**-15),
        (sound_file(reference, SAMPLE_RATE, "FLAC", "PCM_16"), 2**-15),
        (media_file("matroska", "pcm_f32le", reference[None], SAMPLE_RATE, "mono"), 0),
    ]:
        samples = load_audio(encoded[: len(encoded) // 2])
        assert len(reference) / 4 < len(samples) < len(reference)
        np.testing.assert_allclose(samples, reference[: len(samples)], rtol=0, atol=step)
    for encoded in (
        sound_file(reference, SAMPLE_RATE, "MP3"),
        media_file("webm", "libopus", reference[None], SAMPLE_RATE, "mono"),
    ):
        samples = load_audio(encoded[: len(encoded) // 2])
        assert len(reference) / 4 < len(samples) < len(reference)


@pytest.mark.parametrize("announced", [0, 0xFFFFFFFF], ids=["zero", "endless"])
def test_a_wav_whose_header_was_never_completed(announced):
    reference = clip()
    encoded = bytearray(sound_file(reference, SAMPLE_RATE, "WAV", "PCM_16"))
    size = encoded.index(b"data") + 4
    encoded[size : size + 4] = struct.pack("<I", announced)
    np.testing.assert_allclose(load_audio(bytes(encoded)), reference, rtol=0, atol=2**-15)


def test_a_flac_that_does_not_say_how_long_it_is():
    reference = clip()
    encoded = bytearray(sound_file(reference, SAMPLE_RATE, "FLAC", "PCM_16"))
    encoded[21] &= 0xF0  # the 36 bits of STREAMINFO's total samples: zero means unknown
    encoded[22:26] = bytes(4)
    np.testing.assert_allclose(load_audio(bytes(encoded)), reference, rtol=0, atol=2**-15)


def test_damaged_packets_are_left_out_and_reported(caplog):
    encoded = bytearray(media_file("matroska", "aac", clip()[None], SAMPLE_RATE, "mono"))
    middle = len(encoded) // 2
    encoded[middle : middle + 500] = np.random.default_rng(0).bytes(500)
    with caplog.at_level(logging.WARNING):
        samples = load_audio(bytes(encoded))
    assert samples.size
    assert "is damaged" in caplog.text


# --- errors


def test_files_that_are_not_there(tmp_path):
    missing = tmp_path / "missing.wav"
    with pytest.raises(MediaError, match=re.escape(f'"{missing}" cannot be opened: No such file')):
        load_audio(missing)
    (tmp_path / "mising.wav").touch()
    with pytest.raises(MediaError, match=r"No such file or directory\. Did you mean '.*mising\.wav'\?$"):
        load_audio(missing)
    with pytest.raises(MediaError, match="cannot be opened"):
        load_audio(tmp_path)
    with pytest.raises(MediaError, match="cannot be opened"):
        load_audio("a\0b.wav")
    with pytest.raises(MediaError, match="local file"):
        load_audio("https://example.com/talk.mp3")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (sound_file(np.zeros(0), SAMPLE_RATE), "no audio"),
        ((np.zeros(1), 48_000), "no audio"),  # not one sample at 16 kHz
        (b"Not audio, but a text. " * 100, "cannot be decoded, by libsndfile .* or by FFmpeg"),
        (np.random.default_rng(0).bytes(20_000), "cannot be decoded"),
        (b"\0" * 10_000, "cannot be decoded"),
        (sound_file(noise(1000), SAMPLE_RATE)[:20], "cannot be decoded"),
        (media_file("mp4", "aac", noise(16_000, 1), SAMPLE_RATE, "mono")[:2000], "cannot be decoded"),
        (media_file("mp4", None, noise(1, 1), SAMPLE_RATE, "mono", video=True), "no audio stream .*streams: video"),
        (sound_file(np.array([0.0, np.nan, 0.0]), SAMPLE_RATE, "WAV", "FLOAT"), "not finite"),
        (sound_file(noise(1000), 100), "sample rate of 100 Hz"),
        (sound_file(noise(1000), 2_000_000), "sample rate of 2e\\+06 Hz"),
        (sound_file(noise(1000) * 32768, SAMPLE_RATE, "WAV", "FLOAT"), "full scale"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",  # a file's bytes hold the time at which it was made
)
def test_data_that_is_no_audio(data, message):
    with pytest.raises(MediaError, match=message):
        load_audio(data)


@pytest.mark.parametrize(
    "data",
    [
        sound_file(noise(16_000) * 60, SAMPLE_RATE, "OGG", "VORBIS"),
        media_file("mp4", "aac", noise(16_000, 1) * 60, SAMPLE_RATE, "mono"),
    ],
    ids=["vorbis", "aac"],
)
def test_samples_of_a_codec_far_over_full_scale_are_clipped(data, caplog):
    loaded = load_audio(data)
    assert 0.5 < np.abs(loaded).max() <= 1.0
    assert re.search(r"audio data of \d+ bytes is damaged: \d+ samples far over full scale were clipped", caplog.text)


def test_a_codec_that_nobody_knows():
    encoded = media_file("matroska", "aac", noise(16_000, 1), SAMPLE_RATE, "mono")
    with pytest.raises(MediaError, match="no audio stream that FFmpeg decodes"):
        load_audio(encoded.replace(b"A_AAC", b"A_XYZ"))


def test_headerless_samples(tmp_path):
    path = tmp_path / "clip.raw"
    path.write_bytes(np.int16(noise(16_000) * 32767).tobytes())
    with pytest.raises(MediaError, match=re.escape("(waveform, sample_rate)")):
        load_audio(path)


def test_a_playlist_opens_no_other_file(tmp_path):
    (tmp_path / "secret.wav").write_bytes(sound_file(noise(16_000), SAMPLE_RATE))
    playlist = tmp_path / "list.ffconcat"
    playlist.write_text("ffconcat version 1.0\nfile secret.wav\n")
    with pytest.raises(MediaError, match="cannot be decoded"):
        load_audio(playlist)


def test_a_file_that_was_read_to_its_end_is_told_from_an_empty_one(tmp_path):
    path = tmp_path / "noise.wav"
    soundfile.write(path, noise(16_000), 16_000)
    with path.open("rb") as file:
        expected = load_audio(file)
        with pytest.raises(MediaError, match=r"has no unread data.* seek\(0\) first"):
            load_audio(file)
        file.seek(0)
        assert np.array_equal(load_audio(file), expected)
    with tempfile.TemporaryFile() as written:
        written.write(path.read_bytes())
        with pytest.raises(MediaError, match="has no unread data"):
            load_audio(written)
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader, "rb") as pipe, pytest.raises(MediaError, match="is empty"):
        load_audio(pipe)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (noise(100).astype(np.int16), "an array of int16 alone does not say its sample rate"),
        (torch.zeros(100, dtype=torch.int16), "an array of int16 alone does not say its sample rate"),
        (np.zeros((2, 2, 100)), r"shape \[2, 2, 100\]"),
        (np.float32(0.5), r"shape \[\]"),
        (noise(100) * 32768, "full scale"),
        (noise(0), "no audio"),
        ([0.0, 0.5], r"type list .* an array of floats at 16000 Hz"),
        (None, "type NoneType"),
        (io.BytesIO(b""), "is empty"),
        ((noise(100),), "a tuple of 1"),
        ((16_000, noise(100)), "sample rate of type ndarray"),
        ((noise(100), "16000"), "sample rate of type str"),
        ((noise(100), True), "sample rate of type bool"),
        ((noise(100), None), "sample rate of type NoneType"),
        ((noise(100), 0), "sample rate of 0 Hz"),
        ((noise(100), -16_000), "sample rate of -16000 Hz"),
        ((noise(100), float("nan")), "sample rate of nan Hz"),
        ((noise(100), float("inf")), "sample rate of inf Hz"),
        ((noise(0), 16_000), "no audio"),
        ((np.zeros((2, 0), np.float32), 16_000), "no audio"),
        ((np.zeros((0, 100), np.float32), 16_000), "no audio"),
        (([], 16_000), "no audio"),
        ((np.zeros((2, 2, 100)), 16_000), r"shape \[2, 2, 100\]"),
        ((0.5, 16_000), r"shape \[\]"),
        (([[0.0, 1.0], [0.0]], 16_000), "not an array of numbers"),
        (("talk.wav", 16_000), "shape"),
        (([0, 1, 2], 16_000), "dtype int64"),
        ((np.zeros(10, bool), 16_000), "dtype bool"),
        ((np.zeros(10, complex), 16_000), "dtype complex128"),
        (([0.0, None], 16_000), "dtype object"),
        (([0.0, float("nan")], 16_000), "not finite"),
        (([0.0, -float("inf")], 16_000), "not finite"),
        ((noise(1000) * 32768, 16_000), "full scale"),
    ],
)
def test_waveforms_that_cannot_be_meant(data, message):
    with pytest.raises(MediaError, match=message):
        load_audio(data)


# --- log-mel features


extractor_of = functools.cache(WhisperFeatureExtractor)


def reference_features(samples: np.ndarray, num_mels: int) -> np.ndarray:
    extractor = extractor_of(feature_size=num_mels)
    return extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features[0]


@pytest.mark.parametrize("num_mels", [80, 128])
@pytest.mark.parametrize("path", CLIPS, ids=lambda path: path.stem)
def test_features_of_speech(path, num_mels):
    samples = soundfile.read(path, dtype="float32")[0]
    features = log_mel_spectrogram(load_audio(path), num_mels, WINDOW)
    assert features.dtype == torch.float32
    assert features.shape == (num_mels, 3000)
    assert features.is_contiguous()
    np.testing.assert_allclose(features.numpy(), reference_features(samples, num_mels), rtol=0, atol=1e-4)


# Around the ends of the window, where signal, padding and reflection meet.
@pytest.mark.parametrize("num_samples", [1, 2, 159, 160, 200, 201, 5000, 479_799, 479_801, 479_960, 479_999, WINDOW])
@pytest.mark.parametrize("num_mels", [80, 128])
def test_features_of_noise_and_of_silence(num_samples, num_mels):
    for samples in (noise(num_samples), np.zeros(num_samples, np.float32)):
        features = log_mel_spectrogram(samples, num_mels, WINDOW)
        np.testing.assert_allclose(features.numpy(), reference_features(samples, num_mels), rtol=0, atol=1e-4)


def test_features_of_another_window():
    samples = noise(20_000)
    extractor = WhisperFeatureExtractor(chunk_length=2)
    expected = extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features[0]
    np.testing.assert_allclose(log_mel_spectrogram(samples, 80, 32_000).numpy(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("num_mels", [40, 80, 128])
def test_filters_are_those_of_librosa(num_mels):
    expected = librosa.filters.mel(sr=SAMPLE_RATE, n_fft=400, n_mels=num_mels)
    np.testing.assert_allclose(mel_filters(num_mels).numpy(), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("num_mels", [40, 64, 80, 96, 128])
def test_filters_are_those_of_transformers_to_the_last_bit(num_mels):
    scale = {"norm": "slaney", "mel_scale": "slaney"}
    expected = mel_filter_bank(201, num_mels, 0.0, 8000.0, SAMPLE_RATE, **scale).T.astype(np.float32)
    assert np.array_equal(mel_filters(num_mels).numpy(), expected)


def test_features_never_cut():
    with pytest.raises(MediaError, match="480001 samples, more than the 480000"):
        log_mel_spectrogram(noise(WINDOW + 1), 80, WINDOW)


def test_features_do_not_depend_on_the_default_dtype():
    expected = log_mel_spectrogram(noise(5000), 80, WINDOW)
    torch.set_default_dtype(torch.float64)
    try:
        features = log_mel_spectrogram(noise(5000), 80, WINDOW)
    finally:
        torch.set_default_dtype(torch.float32)
    assert features.dtype == torch.float32
    assert torch.equal(features, expected)


def test_importing_loads_neither_torch_nor_librosa():
    program = "import sys, transept.multimodal.audio; print(sorted({'torch', 'librosa', 'av'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
