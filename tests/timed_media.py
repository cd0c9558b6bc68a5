"""Containers whose packets have times, as FFmpeg writes them: tracks that begin late, have gaps, or speak languages."""

import io
from fractions import Fraction

import av
import numpy as np


def timed_file(container: str, codec: str, tracks: list[list[tuple[float, np.ndarray]]], *, video_seconds=0) -> bytes:
    """Audio tracks at 16 kHz, mono, each of pieces (begin in seconds, float32 [num_samples]), after a video track.

    Nothing is written between the pieces of a track, so their times alone say where they lie.
    """
    rate, file = 16_000, io.BytesIO()
    with av.open(file, "w", format=container) as output:
        if video_seconds:
            picture = output.add_stream("mpeg4", rate=10)
            picture.width = picture.height = 64
        sounds = [output.add_stream(codec, rate=rate, layout="mono", bit_rate=64_000) for _ in tracks]
        for number, sound in enumerate(sounds):
            sound.metadata["language"] = ("eng", "spa", "ger")[number]
        if video_seconds:
            image = np.zeros((64, 64, 3), np.uint8)
            for _ in range(10 * video_seconds):
                output.mux(picture.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            output.mux(picture.encode(None))
        for sound, pieces in zip(sounds, tracks, strict=True):
            size = sound.frame_size or 1024
            for begin, samples in pieces:
                for first in range(0, len(samples) // size * size, size):
                    piece = np.ascontiguousarray(samples[None, first : first + size])
                    frame = av.AudioFrame.from_ndarray(piece, format="flt", layout="mono")
                    frame.sample_rate = rate
                    (frame,) = av.AudioResampler(format=sound.format, layout="mono", rate=rate).resample(frame)
                    frame.pts, frame.time_base = round(begin * rate) + first, Fraction(1, rate)
                    output.mux(sound.encode(frame))
            output.mux(sound.encode(None))
    return file.getvalue()
