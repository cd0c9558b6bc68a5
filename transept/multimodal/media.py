"""Decode one track of a container with FFmpeg, through PyAV, at the container's times.

`transept.multimodal.audio_file` and `audio` call `decode_media`. PyAV is imported with the first such file.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from transept.errors import MediaError
from transept.multimodal.audio_limits import AudioTooLongError
from transept.multimodal.audio_tracks import label, track_of
from transept.multimodal.bursts import without_bursts
from transept.multimodal.channels import EACH, Intake
from transept.multimodal.declared_length import is_longer
from transept.multimodal.presentation import Placed, format_names, gaps_warning, placed
from transept.multimodal.resampling import joined, swresample_blocks
from transept.multimodal.sounds import BLOCK_SAMPLES, SILENT_PEAK, Sound, silence
from transept.multimodal.waveforms import Waveform

MOST_FAILURES = 100  # consecutive failures to read a container before the rest is given up
SHORTEST_LOSS = 0.5  # seconds below its announced length from which a recording counts as truncated


def decode_media(
    opened: Callable[[], AbstractContextManager[Any]],
    name: str,
    sample_rate: int,
    intake: Intake,
    reason: str,
    readable: str,
) -> list[Waveform]:
    """Decode one track of a container: the requested one, or FFmpeg's choice, or the loudest if that is silent.

    opened: opens the container again on each call. reason: why libsndfile does not read it. readable: advice for
    errors. Raises MediaError if there is nothing to decode or the audio is beyond the limits, av.FFmpegError for a
    container that FFmpeg cannot read.
    """
    with opened() as container:
        stream = track_of(container, intake.audio_track, name)
        if stream is None:
            kinds = ", ".join(stream.type for stream in container.streams) or "none"
            raise MediaError(f"{name} has no audio stream that FFmpeg decodes (its streams: {kinds}). {readable}")
        tracks, index = list(container.streams.audio), stream.index  # a stream is gone when its container is closed
        number = [each.index for each in tracks].index(index)
        others = [each for each in range(len(tracks)) if each != number and tracks[each].codec_context is not None]
        is_wrong = is_longer(container, stream, sample_rate, intake, name, apart=intake.channel == EACH)
        waveforms = None if is_wrong else _decoded(container, stream, name, sample_rate, intake)
    if is_wrong:  # its header is wrong: decoding measures the length
        with opened() as container:
            waveforms = _decoded(container, container.streams[index], name, sample_rate, intake)
    if intake.audio_track is None and others and not _has_sound(waveforms):
        waveforms = _loudest(opened, name, sample_rate, intake, waveforms, number, others)
    if waveforms is None:
        raise MediaError(f"{name} holds no audio that can be decoded (libsndfile: {reason}). {readable}")
    return waveforms


def _loudest(
    opened: Callable[[], AbstractContextManager[Any]],
    name: str,
    sample_rate: int,
    intake: Intake,
    waveforms: list[Waveform] | None,
    silent: int,
    others: list[int],
) -> list[Waveform] | None:
    """Return the loudest of the other tracks, if any has sound, to replace the silent track number `silent`."""
    best, warnings, power = waveforms, [*intake.warnings], 0.0
    for number in others:
        own = dataclasses.replace(intake, audio_track=number, warnings=[])
        with opened() as container:
            stream = track_of(container, number, name)
            try:
                found = _decoded(container, stream, name, sample_rate, own)
            except AudioTooLongError:
                raise
            except MediaError:  # this track has too few channels, say
                continue
            told = label(stream, number)
        if found is None or not _has_sound(found):
            continue
        own_power = max(float(np.dot(each, each)) / each.size for each in found)
        if own_power > power:
            what = f"heard through audio track {told}, the loudest, from 0.0 s on, since track {silent} is silent"
            best, power, warnings = found, own_power, [what, *own.warnings]
    intake.warnings[:] = warnings
    return best


def _has_sound(waveforms: list[Waveform] | None) -> bool:
    """True if any sample is above SILENT_PEAK."""
    return any(each.size and max(each.max(), -each.min()) > SILENT_PEAK for each in waveforms or ())


def _decoded(container: Any, stream: Any, name: str, sample_rate: int, intake: Intake) -> list[Waveform] | None:
    """Decode one stream of an open container; None if none of its packets decodes."""
    track = _Track(container, stream, intake, name)
    frames = track.frames()
    first = next(frames, None)
    if first is None:
        return None
    sounds = track.sounds(itertools.chain([first], frames))
    if not stream.codec_context.name.startswith("pcm"):
        sounds = without_bursts(sounds, intake)
    waveforms = joined(sounds, sample_rate, name, intake, swresample_blocks)
    intake.warnings.extend(track.warnings())
    return waveforms


class _Track:
    """Decodes one stream of a container, and collects its faults.

    reached: seconds of the stream so far. heard: the latest end of a packet of any stream, in seconds.
    """

    def __init__(self, container: Any, stream: Any, intake: Intake, name: str) -> None:
        self.container, self.stream, self.intake, self.name = container, stream, intake, name
        self.reached = self.heard = 0.0
        self.damaged: list[float] = []  # seconds at which packets did not decode
        self.gaps: list[tuple[float, float]] = []  # begin and length, in seconds

    def frames(self) -> Iterator[Any]:
        """Yield the av.AudioFrames. Skips packets that do not decode and errors of the container."""
        import av

        packets, failures = self.container.demux(), 0
        while failures < MOST_FAILURES:
            try:
                packet = next(packets, None)
            except av.FFmpegError as error:
                self._damage(error)
                packets, failures = self.container.demux(), failures + 1
                continue
            if packet is None:
                break
            failures = 0
            self._hear(packet)
            if packet.stream_index != self.stream.index:
                continue
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                if not _is_tag(packet):
                    self._damage(error)
                continue
            yield from frames

    def _damage(self, error: Any) -> None:
        """Record an error. Raises it again if the network failed, because the rest is then missing."""
        import av

        if self.container.file is None and not isinstance(error, av.InvalidDataError):
            raise error
        self.damaged.append(self.reached)

    def _hear(self, packet: Any) -> None:
        if packet.pts is not None and packet.time_base:
            end = float((packet.pts + (packet.duration or 0)) * packet.time_base)
            self.heard = max(self.heard, end - (self.container.start_time or 0) / 1_000_000)

    def sounds(self, frames: Iterator[Any]) -> Iterator[Sound]:
        """av.AudioFrames -> sounds larger than the frames: resampling 20 ms at a time is slow."""
        import av

        def check(seconds: float) -> None:
            self.intake.check_seconds(self.intake.begin + seconds, self.name)

        for (_, channels, rate), run in itertools.groupby(placed(frames, self.container, check), key=_Kind()):
            # To packed floats: PyAV's to_ndarray reads past the planes of a planar frame with 8 channels or more.
            queue, packer = av.AudioFifo(), av.AudioResampler(format="flt")
            for each in itertools.chain(run, [None]):  # None: the end
                if each is not None:
                    if each.silence:
                        self._gap(each)
                        yield from silence(channels, each.silence, rate)
                    self.reached = each.begin + (each.silence + each.frame.samples) / rate
                    each.frame.pts = None  # else the queue would reject gaps between the timestamps
                    queue.write(each.frame)
                while block := queue.read(BLOCK_SAMPLES // 8, partial=each is None):
                    for packed in packer.resample(block):
                        yield Sound(packed.to_ndarray().reshape(-1, packed.layout.nb_channels).T, rate)

    def _gap(self, frame: Placed) -> None:
        if frame.begin > 0:  # a late start is not missing sound
            self.gaps.append((self.intake.begin + frame.begin, frame.silence / frame.frame.sample_rate))

    def warnings(self) -> list[str]:
        """Return the faults of the track, once it has been read."""
        told = gaps_warning(self.gaps)
        if self.damaged:
            first = self.intake.begin + self.damaged[0]
            places = "1 place in it was" if len(self.damaged) == 1 else f"{len(self.damaged)} places in it were"
            told.append(f"damaged: {places} not decoded, from {first:.1f} s on")
        announced = announced_seconds(self.container, self.stream)
        end = max(self.reached, self.heard)
        if announced is not None and announced - end >= SHORTEST_LOSS:
            end, announced = self.intake.begin + end, self.intake.begin + announced
            told.append(f"damaged: truncated at {end:.1f} s, of {announced:.1f} s that it announces")
        return told


class _Kind:
    """Key for grouping adjacent frames: same rate, format and channels, and no gap between them."""

    def __init__(self) -> None:
        self.gaps = 0

    def __call__(self, each: Placed) -> tuple[Any, int, int]:
        frame = each.frame
        self.gaps += bool(each.silence)
        return (self.gaps, frame.format.name, frame.layout.name), frame.layout.nb_channels, frame.sample_rate


def _is_tag(packet: Any) -> bool:
    """True if a packet of MPEG audio holds only a tag, such as between concatenated files."""
    head = bytes(packet)[:200]
    return head.startswith((b"ID3", b"TAG", b"APETAGEX")) or b"Xing" in head or b"Info" in head


def announced_seconds(container: Any, stream: Any) -> float | None:
    """Return the length in a file's header; None without one, where FFmpeg estimates the length from the bit rate."""
    names = format_names(container)
    if "mov" in names:
        return None if stream.duration is None else float(stream.duration * stream.time_base)
    if container.duration is None or container.file is None:
        return None
    file = container.file.file
    place = file.tell()
    file.seek(0)
    head = file.read(HEAD_BYTES)
    file.seek(place)
    if not any(mark in head for name in names for mark in ANNOUNCEMENTS.get(name, ())):
        return None
    begin = max(0, container.start_time or 0) if "matroska" in names else 0  # Matroska counts from 0
    return float(container.duration - begin) / 1_000_000


HEAD_BYTES = 1 << 16
# Format -> bytes that its header holds if it announces a length.
ANNOUNCEMENTS: dict[str, tuple[bytes, ...]] = {
    "matroska": (b"\x44\x89\x84", b"\x44\x89\x88"),  # the element Duration, of 4 or 8 bytes
    "flv": (b"duration",),
    "flac": (b"fLaC",),
    "mp3": (b"Xing", b"Info", b"VBRI"),
}
