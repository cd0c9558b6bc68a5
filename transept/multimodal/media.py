"""Decode one track of a container with FFmpeg, through PyAV, at the container's times.

`transept.multimodal.audio_file` and `audio` call `decode_media`. PyAV is imported with the first such file.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from transept.errors import MediaError
from transept.multimodal.announced import MP3_HEADERS, AviIndex, announced_bytes, announced_seconds
from transept.multimodal.audio_limits import AudioTooLongError, is_longer
from transept.multimodal.audio_tracks import label, track_of
from transept.multimodal.channels import EACH, Intake, joined, swresample_blocks, without_bursts
from transept.multimodal.damage import Damage
from transept.multimodal.presentation import Decoded, Placed, format_names, frame_sounds, is_timed, placed
from transept.multimodal.waveforms import Waveform, has_sound

ID3V1_BYTES, ID3V2_HEADER = 128, 10  # of a tag at the end of a file; of the header of one at its beginning
FRAGMENT, SEARCHED_BYTES = b"moof\0\0\0\x10mfhd\0\0\0\0", 1 << 20  # how a fragment of MP4 begins, after its size
MOST_FAILURES = 100  # consecutive failures to read a container before the rest is given up


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
        labels = [label(each, at) for at, each in enumerate(tracks)]
        others = [each for each in range(len(tracks)) if each != number and tracks[each].codec_context is not None]
        is_wrong = is_longer(container, stream, sample_rate, intake, name, apart=intake.channel == EACH)
        waveforms = None if is_wrong else _decoded(container, stream, name, sample_rate, intake)
    if is_wrong:  # its header is wrong: decoding measures the length
        with opened() as container:
            waveforms = _decoded(container, container.streams[index], name, sample_rate, intake)
    if intake.audio_track is None and others and not any(map(has_sound, waveforms or ())):
        waveforms, used = _loudest(opened, name, sample_rate, intake, waveforms, number, others)
        others = [each for each in (number, *others) if each != used]
    intake.other_tracks[:] = [labels[each] for each in others]
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
) -> tuple[list[Waveform] | None, int]:
    """Return the loudest other track and its number; if all are silent, the given waveforms and number."""
    best, warnings, power, used = waveforms, [*intake.warnings], 0.0, silent
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
        if found is None or not any(map(has_sound, found)):
            continue
        own_power = max(float(np.dot(each, each)) / each.size for each in found)
        if own_power > power:
            what = f"read from audio track {told}, the loudest, from 0.0 s on, since track {silent} is silent"
            best, power, used, warnings = found, own_power, number, [what, *own.warnings]
    intake.warnings[:] = warnings
    return best, used


def _decoded(container: Any, stream: Any, name: str, sample_rate: int, intake: Intake) -> list[Waveform] | None:
    """Decode one stream of an open container; None if none of its packets decodes."""
    track = _Track(container, stream, intake, name)
    frames = track.frames()
    first = next(frames, None)
    if first is None:
        return None
    sounds = frame_sounds(track.placed(itertools.chain([first], frames)), track.damage)
    if not stream.codec_context.name.startswith("pcm"):
        sounds = without_bursts(sounds, intake)
    waveforms = joined(sounds, sample_rate, name, intake, swresample_blocks)
    intake.warnings.extend(track.warnings())
    return waveforms


class _Track:
    """Decodes one stream of a container, and collects its faults.

    reached: seconds of the stream so far. heard: the latest end of any stream's packets, in seconds.
    read_to: the same, in bytes of the file.
    """

    def __init__(self, container: Any, stream: Any, intake: Intake, name: str) -> None:
        self.container, self.stream, self.intake, self.name = container, stream, intake, name
        self.reached, self.heard, self.read_to = 0.0, 0.0, 0
        self.damage = Damage(intake.begin, is_timed(container))

    def frames(self) -> Iterator[Decoded]:
        """Yield the av.AudioFrames. Skips packets that do not decode and errors of the container."""
        import av

        packets, failures = self.container.demux(), 0
        num_bytes, decoded_seconds, lost_bytes, tag = 0, 0.0, 0, _Tag()
        is_indexed = self.container.file is not None and "avi" in format_names(self.container)
        index = AviIndex.of(self.container.file.file, self.stream.index) if is_indexed else None
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
            self.read_to = max(self.read_to, (packet.pos or 0) + packet.size)
            if packet.pts is not None and packet.time_base:
                end = float((packet.pts + (packet.duration or 0)) * packet.time_base)
                self.heard = max(self.heard, end - (self.container.start_time or 0) / 1_000_000)
            if packet.stream_index != self.stream.index:
                continue
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                if not tag.holds(packet):
                    self._damage(error)
                    lost_bytes += packet.size
                continue
            num_bytes += packet.size
            decoded_seconds += sum(frame.samples / frame.sample_rate for frame in frames)
            # Bytes of lost packets become seconds at the mean bit rate of the decoded ones.
            lost = lost_bytes * decoded_seconds / num_bytes if num_bytes else 0.0
            skipped = index.skipped(packet.pos) if index and frames and packet.pos is not None else 0.0
            for frame in frames:
                if frame.is_corrupt:
                    self.damage.add_undecoded(self.reached)
                yield Decoded(frame, skipped or lost)
                lost_bytes, skipped, lost = 0, 0.0, 0.0

    def _damage(self, error: Any) -> None:
        """Record an error. Raises it again if the network failed, because the rest is then missing."""
        import av

        if self.container.file is None and not isinstance(error, av.InvalidDataError):
            raise error
        self.damage.add_undecoded(self.reached)

    def placed(self, frames: Iterator[Decoded]) -> Iterator[Placed]:
        """Yield the frames at their times, and keep count of them."""

        def check(seconds: float) -> None:
            self.intake.check_seconds(self.intake.begin + seconds, self.name)

        for each in placed(frames, self.container, check):
            self.reached = each.begin + (each.silence + each.frame.samples) / each.frame.sample_rate
            yield each

    def warnings(self) -> list[str]:
        """Return the faults of the track, once it has been read."""
        end = max(self.reached, self.heard) if self.damage.is_timed else self.reached
        announced, sizes = announced_seconds(self.container, self.stream), self._sizes()
        is_cut = sizes is not None and sizes[0] < sizes[1]
        is_skipping = "avi" in format_names(self.container) and not is_cut
        told = self.damage.warnings(end, announced, is_skipping=is_skipping)
        if announced is None and is_cut and sizes is not None and "mov" not in format_names(self.container):
            told.append(
                f"damaged: truncated at {self.damage.begin + end:.1f} s, after {sizes[0]} of the {sizes[1]} bytes that "
                "it announces"
            )
        if self._has_unread_fragments():
            told.append(f"damaged: not read from {self.damage.begin + end:.1f} s on, though the file has more")
        return told

    def _sizes(self) -> tuple[int, int] | None:
        """Return the bytes of the file, and those that it announces; None if it announces none."""
        if self.container.file is None:
            return None
        file = self.container.file.file
        position = file.tell()
        size, announced = file.seek(0, io.SEEK_END), announced_bytes(file)
        file.seek(position)
        return None if announced is None else (size, announced)

    def _has_unread_fragments(self) -> bool:
        """True if an MP4 file in fragments has some behind the last packet: FFmpeg stops at a damaged one."""
        if self.container.file is None or "mov" not in format_names(self.container):
            return False
        file = self.container.file.file
        position = file.tell()
        file.seek(self.read_to)
        rest, is_found = b"", False
        while not is_found and (piece := file.read(SEARCHED_BYTES)):
            rest = rest[-len(FRAGMENT) :] + piece
            is_found = FRAGMENT in rest
        file.seek(position)
        return is_found


class _Tag:
    """Tells tags from damage in MPEG audio, where concatenated files have tags in the middle."""

    def __init__(self) -> None:
        self.end = 0  # of the last ID3v2 tag, in bytes of the file; its pictures may look like frames

    def holds(self, packet: Any) -> bool:
        """True if a packet that was not decoded belongs to a tag, or holds only the header of a file."""
        data, position = bytes(packet), packet.pos or 0
        old_tag = ID3V1_BYTES if data.startswith(b"TAG") else 0
        if data[old_tag : old_tag + 3] == b"ID3" and len(data) >= old_tag + ID3V2_HEADER:
            size = 0
            for byte in data[old_tag + 6 : old_tag + ID3V2_HEADER]:
                size = size << 7 | byte & 0x7F
            self.end = position + old_tag + ID3V2_HEADER + size
        head = data[:200]
        return (
            position < self.end
            or head.startswith((b"ID3", b"TAG", b"APETAGEX"))
            or any(mark in head for mark in MP3_HEADERS)
        )
