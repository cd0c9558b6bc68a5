"""Decode an open file of a recording to mono waveforms, with libsndfile if it reads the format, else with FFmpeg.

`transept.multimodal.audio` calls `decode_file`. Nothing here knows where the file came from.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import soundfile

from transept.errors import MediaError, MediaTooLargeError
from transept.multimodal.announced import hint
from transept.multimodal.audio_limits import check_sound, expect, kept_bytes
from transept.multimodal.audio_tracks import only_track
from transept.multimodal.channels import (
    EACH,
    NUMBERS,
    Intake,
    joined,
    joined_streams,
    swresample_blocks,
    without_bursts,
)
from transept.multimodal.damage import SHORTEST_LOSS, Damage, truncated
from transept.multimodal.flac_frames import StreamInfo, decoded, is_whole
from transept.multimodal.joined_files import Part, Window, parts_of
from transept.multimodal.media import decode_media
from transept.multimodal.presentation import frame_sounds
from transept.multimodal.sounds import BLOCK_SAMPLES, Sound
from transept.multimodal.waveforms import NO_SAMPLES, Waveform

FLAC = b"fLaC"  # begins a FLAC file
FLOAT_PCM = ("FLOAT", "DOUBLE")  # libsndfile's names for samples as they were written
READABLE = (
    "Any file that libsndfile or FFmpeg decodes works (wav, flac, ogg, opus, mp3, m4a, mp4, webm, mkv, ...); "
    "headerless samples go in as (waveform, sample_rate), on the command line with --pcm"
)
# libsndfile's log of a file whose chunk of samples is longer than the file, and of an RF64 file likewise.
CUT_CHUNK = re.compile(r"^ *(?:data|SSND|riff|BODY|Data Size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
CUT_RF64 = re.compile(r"Calculated frame count (\d+) does not match value from 'ds64' chunk of (\d+)")
UNKNOWN_SIZE = 0x7FFF_0000  # bytes; programs that write to a pipe announce at least this size


def decode_file(file: BinaryIO, name: str, sample_rate: int, intake: Intake) -> list[Waveform]:
    """Return the wanted waveforms of a file that can be rewound, each float32 [num_samples] at `sample_rate`.

    Files that were concatenated are decoded one after the other. Raises MediaError for a file that cannot be decoded,
    and for one beyond the limits.
    """
    if file.seek(0, io.SEEK_END) == 0:
        raise MediaError(f"{name} is empty. {READABLE}")
    parts = parts_of(file)
    if len(parts) == 1 and not parts[0].begin:
        return _decode(file, parts[0], name, sample_rate, intake)
    whole: list[list[Waveform]] = []
    seconds, num_channels = 0.0, None  # the first part determines the number
    for part in parts:
        window = cast(BinaryIO, io.BufferedReader(Window(file, part)))
        own = dataclasses.replace(intake, begin=seconds, num_channels=num_channels)
        try:
            whole.append(_decode(window, part, name, sample_rate, own))
        except MediaTooLargeError:
            raise
        except MediaError:
            if not whole:
                raise
            intake.warnings.append(f"damaged: not decoded from {seconds:.1f} s on, where another file is joined to it")
            break
        seconds += len(whole[-1][0]) / sample_rate
        num_channels = max(len(whole[0]), NUMBERS.get(intake.channel, 0) + 1)
    return joined_streams([iter(channel) for channel in zip(*whole, strict=True)])


def _decode(file: BinaryIO, part: Part, name: str, sample_rate: int, intake: Intake) -> list[Waveform]:
    """Decode one of the files that a file consists of. file: only that one."""
    waveforms = _decode_one(file, part, name, sample_rate, intake)
    if part.is_cut:
        end = intake.begin + len(waveforms[0]) / sample_rate
        intake.warnings.append(f"damaged: truncated at {end:.1f} s, where its whole Ogg pages end")
    return waveforms


def _decode_one(file: BinaryIO, part: Part, name: str, sample_rate: int, intake: Intake) -> list[Waveform]:
    """Decode with libsndfile, or with FFmpeg if libsndfile cannot read the file, stops within it or finds no samples.

    FFmpeg always decodes MPEG audio, with the same samples to 1e-6, because the libmpg123 in libsndfile prints warnings
    to the process's stderr.
    """
    file.seek(0)
    head = file.read(3)
    file.seek(0)
    if head == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):  # 11 bits that begin a frame
        return _decode_with_ffmpeg(file, name, sample_rate, intake, "MPEG audio is left to FFmpeg")
    told = len(intake.warnings)
    reason = "it has several tracks, or lost pages"
    if part.is_plain:
        try:
            waveforms = _decode_with_libsndfile(file, name, sample_rate, intake)
            if waveforms[0].size and (head != FLAC[:3] or is_whole(file)):
                return waveforms
            reason = "no samples"  # as in a recording that was interrupted before its header was complete
        except soundfile.LibsndfileError as error:
            reason = error.error_string.rstrip(".")
        except TypeError:  # a name in .raw, for which soundfile requires a format
            reason = "a .raw file"
    del intake.warnings[told:]
    if head == FLAC[:3]:
        waveforms = _decode_flac_frames(file, name, sample_rate, intake)
        if waveforms[0].size:
            return waveforms
    try:
        file.seek(0)
        return _decode_with_ffmpeg(file, name, sample_rate, intake, reason)
    except MediaTooLargeError:
        raise
    except MediaError:
        if part.is_plain or head == FLAC[:3] or intake.audio_track is not None:
            raise
        del intake.warnings[told:]
        file.seek(0)
        try:
            return _decode_with_libsndfile(file, name, sample_rate, intake)
        except soundfile.LibsndfileError:
            pass
        raise


def _decode_flac_frames(file: BinaryIO, name: str, sample_rate: int, intake: Intake) -> list[Waveform]:
    """Decode the frames of a damaged FLAC file, each at its time. Empty if it has no frames."""
    info = StreamInfo.of(file)
    if info is None:
        return [NO_SAMPLES]
    only_track(intake.audio_track, name)
    damage = Damage(intake.begin, shortest_gap=0.0)
    expect(kept_bytes(info.total / info.rate, sample_rate, info.channels, intake.channel == EACH))

    def check(seconds: float) -> None:
        intake.check_seconds(intake.begin + seconds, name)

    sounds = frame_sounds(decoded(file, info, damage, check), damage)
    waveforms = joined(sounds, sample_rate, name, intake, swresample_blocks)
    announced = info.total / info.rate if info.total else None
    intake.warnings.extend(damage.warnings(len(waveforms[0]) / sample_rate, announced))
    return waveforms


def _decode_with_libsndfile(file: BinaryIO, name: str, sample_rate: int, intake: Intake) -> list[Waveform]:
    with soundfile.SoundFile(_ForLibsndfile(file)) as sound:
        only_track(intake.audio_track, name)
        check_sound(sound, sample_rate, intake, name, apart=intake.channel == EACH)
        sounds = _sounds(sound)
        if sound.subtype not in FLOAT_PCM:
            sounds = without_bursts(sounds, intake)
        waveforms = joined(sounds, sample_rate, name, intake, swresample_blocks)
        missing = missing_seconds(sound)
        if missing >= SHORTEST_LOSS:
            end = intake.begin + sound.frames / sound.samplerate
            intake.warnings.append(truncated(end, end + missing))
        return waveforms


def missing_seconds(sound: Any) -> float:
    """Return the seconds of announced samples that are missing in a file, according to libsndfile's log."""
    log = sound.extra_info
    if found := CUT_RF64.search(log):
        return (int(found[2]) - int(found[1])) / float(sound.samplerate)
    cuts = [(int(announced), int(there)) for announced, there in CUT_CHUNK.findall(log)]
    shares = [announced / there for announced, there in cuts if 0 < there < announced < UNKNOWN_SIZE]
    return max(shares, default=1.0) * sound.frames / sound.samplerate - sound.frames / sound.samplerate


class _ForLibsndfile:
    """A file whose `seek` ignores positions before the file's start, which a damaged header may ask for.

    libsndfile prints an exception in a callback instead of raising it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.tell, self._seek = file.read, file.tell, file.seek
        self.readinto: Any = getattr(file, "readinto", None)  # which saves a copy of every block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek, and return the position."""
        try:
            return self._seek(offset, whence)
        except (OSError, ValueError):  # OSError from files, ValueError from bytes
            return self.tell()


def _sounds(sound: Any) -> Iterator[Sound]:
    """soundfile.SoundFile -> its sounds, until a block is empty: a header may announce more samples than there are."""
    while len(block := sound.read(BLOCK_SAMPLES // sound.channels, dtype="float32", always_2d=True)):
        yield Sound(block.T, sound.samplerate)


def _decode_with_ffmpeg(file: BinaryIO, name: str, sample_rate: int, intake: Intake, reason: str) -> list[Waveform]:
    """reason: why libsndfile could not read the file."""
    import av

    def opened() -> Any:
        # Playlists (ffconcat, m3u8) name further files and URLs; without a protocol FFmpeg opens none of them.
        file.seek(0)
        return av.open(file, metadata_errors="replace", options={"protocol_whitelist": "none"})

    try:
        return decode_media(opened, name, sample_rate, intake, reason, READABLE)
    except av.FFmpegError as error:
        decoders = f"by libsndfile ({reason}) or by FFmpeg ({error.strerror})"
        raise MediaError(f"{name} cannot be decoded, {decoders}.{hint(file)} {READABLE}") from None
