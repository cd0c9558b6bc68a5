"""Files of sound for tests, as libsndfile and FFmpeg write them."""

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile

SPEECH = Path(__file__).parents[1] / "data" / "speech"


def sound_file(samples: np.ndarray, rate: int, file_format: str = "WAV", subtype: str | None = None) -> bytes:
    """samples: [num_samples] or [num_samples, channels]."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=file_format, subtype=subtype)
    return file.getvalue()


def media_file(
    container: str, codec: str | None, samples: np.ndarray, rate: int, layout: str, *, video=False, options=None
) -> bytes:
    """samples: [channels, num_samples] float32, encoded by FFmpeg, with a video track if asked for."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options or {}) as output:
        if video:
            picture = output.add_stream("mpeg4", rate=10)
            picture.width = picture.height = 64
        if codec:
            sound = output.add_stream(codec, rate=rate, layout=layout, bit_rate=128_000)
            packed = np.ascontiguousarray(samples.T).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
            fit = av.AudioResampler(format=sound.format, layout=layout, rate=rate, frame_size=sound.frame_size or 1024)
            for piece in fit.resample(frame) + fit.resample(None):
                output.mux(sound.encode(piece))
            output.mux(sound.encode(None))
        if video:
            for _ in range(5):
                image = np.zeros((64, 64, 3), np.uint8)
                output.mux(picture.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            output.mux(picture.encode(None))
    return file.getvalue()
