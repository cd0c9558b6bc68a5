"""Place a track's decoded frames at their times in the recording, and join them to sounds, with silence in the gaps.

Video and streaming containers store a time with each packet. Only these times show that audio begins after the picture,
and that packets are lost. `media` calls `placed` with the frames of such a container, and `frame_sounds` with the
placed ones; `flac_frames` places its own. Nothing here decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from transept.multimodal.damage import Damage
from transept.multimodal.sounds import BLOCK_SAMPLES, Sound, silence

TOLERANCE = 0.1  # seconds that times and samples may differ by; encoders' delays and clocks' jitter stay below
LONGEST_GAP_BEFORE_RESTART = 600.0  # seconds; in joined streams a larger jump means that times restart

RESTARTING_FORMATS = {"ogg", "mpegts", "mpeg", "hls"}  # formats whose files may be joined byte by byte
# FFmpeg's names of formats that store packet times; for others FFmpeg derives the times from packet lengths.
TIMED_FORMATS = {"mov", "mp4", "matroska", "webm", "flv", "live_flv", "asf", "nut", "mxf", *RESTARTING_FORMATS}


class Decoded(NamedTuple):
    """A decoded frame. lost: seconds of undecodable packets directly before it, estimated from their bytes."""

    frame: Any  # av.AudioFrame
    lost: float


class Placed(NamedTuple):
    """A decoded frame. silence: samples of silence before it, at its rate. begin: start of the silence, in seconds."""

    frame: Any  # av.AudioFrame
    silence: int
    begin: float


def format_names(container: Any) -> set[str]:
    """Return FFmpeg's names for a container's format."""
    return set(container.format.name.split(","))


def is_timed(container: Any) -> bool:
    """True if a container's format stores the times of packets."""
    return bool(format_names(container) & TIMED_FORMATS)


def placed(frames: Iterator[Decoded], container: Any, check: Callable[[float], None]) -> Iterator[Placed]:
    """Yield the frames of a track at their times, which count from the start of the container.

    A frame that begins after the end of the previous samples gets silence before it. If times go backwards, the frame
    follows the previous samples, and later frames are shifted by the same jump. A single frame whose time disagrees
    with its neighbours keeps its place. Formats without times have silence in place of lost packets.
    check: called with the recording's length before silence is inserted; raises what `AudioLimits.check_seconds` does.
    """
    has_times, restarts = is_timed(container), bool(format_names(container) & RESTARTING_FORMATS)
    origin = (container.start_time or 0) / 1_000_000  # FFmpeg counts in microseconds
    reached = 0.0  # seconds of samples and silence so far
    decoded = next(frames, None)
    while decoded is not None:
        frame, following = decoded.frame, next(frames, None)
        seconds, pause = frame.samples / frame.sample_rate, 0
        if not has_times and decoded.lost:
            check(reached + decoded.lost + seconds)
            pause = round(decoded.lost * frame.sample_rate)
        elif has_times and frame.time is not None:
            lag = frame.time - origin - reached
            # A slip: the frame after the jump is at the time that it would have without the jump.
            next_time = None if following is None else following.frame.time
            is_slip = next_time is not None and abs(next_time - (origin + reached + seconds)) < TOLERANCE
            if abs(lag) >= TOLERANCE and not is_slip:
                if lag < 0 or (restarts and reached and lag > LONGEST_GAP_BEFORE_RESTART):
                    origin += lag
                else:
                    check(reached + lag + seconds)
                    pause = round(lag * frame.sample_rate)
        yield Placed(frame, pause, reached)
        reached += pause / frame.sample_rate + seconds
        decoded = following


def frame_sounds(frames: Iterable[Placed], damage: Damage) -> Iterator[Sound]:
    """Yield the sounds of placed av.AudioFrames: resampling 20 ms at a time would be slow. Records gaps as damage."""
    import av

    for (_, channels, rate), run in itertools.groupby(frames, key=_Kind()):
        # To packed floats: PyAV's to_ndarray reads past the planes of a planar frame with 8 channels or more.
        queue, packer = av.AudioFifo(), av.AudioResampler(format="flt")
        for each in itertools.chain(run, [None]):  # None: the end
            if each is not None:
                if each.silence:
                    damage.add_gap(each.begin, each.silence / rate)
                    yield from silence(channels, each.silence, rate)
                each.frame.pts = None  # else the queue would reject gaps between the timestamps
                queue.write(each.frame)
            while block := queue.read(BLOCK_SAMPLES // 8, partial=each is None):
                for packed in packer.resample(block):
                    yield Sound(packed.to_ndarray().reshape(-1, packed.layout.nb_channels).T, rate)


class _Kind:
    """Key for grouping adjacent frames: same rate, format and channels, and no gap between them."""

    def __init__(self) -> None:
        self.gaps = 0

    def __call__(self, each: Placed) -> tuple[Any, int, int]:
        frame = each.frame
        self.gaps += bool(each.silence)
        return (self.gaps, frame.format.name, frame.layout.name), frame.layout.nb_channels, frame.sample_rate
