"""Containers whose packets have times, as FFmpeg writes them: tracks that begin late, have gaps, or speak languages."""

import io
from fractions import Fraction

import av
import numpy as np


def timed_file(container: str, codec: str, tracks: list[list[tuple[float, np.ndarray]]], *, video_seconds=0) -> bytes:
    """Audio tracks at 16 kHz, after a video track. Each is pieces: (begin in seconds, float32 [num_samples]).

    Stereo pieces are [2, num_samples]. Nothing is written between the pieces of a track, so their times alone say where
    they lie.
    """
    rate, file = 16_000, io.BytesIO()
    with av.open(file, "w", format=container) as output:
        if video_seconds:
            picture = output.add_stream("mpeg4", rate=10)
            picture.width = picture.height = 64
        sounds = [output.add_stream(codec, rate=rate, layout=_layout(track), bit_rate=64_000) for track in tracks]
        for number, sound in enumerate(sounds):
            sound.metadata["language"] = ("eng", "spa", "ger")[number]
        if video_seconds:
            image = np.zeros((64, 64, 3), np.uint8)
            for _ in range(10 * video_seconds):
                output.mux(picture.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            output.mux(picture.encode(None))
        for sound, pieces in zip(sounds, tracks, strict=True):
            size, layout = sound.frame_size or 1024, _layout(pieces)
            for begin, samples in pieces:
                for first in range(0, samples.shape[-1] // size * size, size):
                    piece = np.ascontiguousarray(samples[..., first : first + size].T).reshape(1, -1)
                    frame = av.AudioFrame.from_ndarray(piece, format="flt", layout=layout)
                    frame.sample_rate = rate
                    (frame,) = av.AudioResampler(format=sound.format, layout=layout, rate=rate).resample(frame)
                    frame.pts, frame.time_base = round(begin * rate) + first, Fraction(1, rate)
                    output.mux(sound.encode(frame))
            output.mux(sound.encode(None))
    return file.getvalue()


def _layout(pieces: list[tuple[float, np.ndarray]]) -> str:
    return "stereo" if pieces[0][1].ndim == 2 else "mono"
