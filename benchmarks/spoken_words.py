"""Synthetic speech whose word boundaries are known: espeak-ng's formants, and flite's voices of four people.

Both libraries are called directly, because their programs do not print times of words. Debian's packages are espeak-ng
and libflite1.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import soxr

from benchmarks.whisper import SAMPLE_RATE

WORD, PHONEME, END = 1, 7, 0  # types of espeak-ng's events
SYNCHRONOUS = 2  # espeak-ng's output: to a callback, before the call returns
PHONEME_EVENTS = 1
CHARACTERS = 1  # position type, and UTF-8
RATE_PARAMETER = 1
ESPEAK_VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb-scotland", "en-us+m7")
FLITE_VOICES = ("slt", "rms", "awb", "kal16")


@dataclass(frozen=True)
class SpokenWord:
    """A word as it is written, and when it is spoken, in seconds; None if that is not known."""

    text: str
    start: float | None
    end: float | None


@dataclass(frozen=True)
class Utterance:
    """waveform: float32 [samples] at 16 kHz."""

    waveform: np.ndarray = field(repr=False)
    words: list[SpokenWord]


class _Identity(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("phoneme", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("message", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Identity),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@cache
def _espeak() -> tuple[ctypes.CDLL, int]:
    library = ctypes.CDLL("libespeak-ng.so.1")
    return library, library.espeak_Initialize(SYNCHRONOUS, 0, None, PHONEME_EVENTS)


def espeak(text: str, voice: str, words_per_minute: int = 175) -> Utterance:
    """Speak a text with espeak-ng. A word ends where the next one starts, or where a pause begins before that."""
    library, rate = _espeak()
    samples: list[np.ndarray] = []
    events: list[tuple[float, int, int, bool]] = []  # seconds, place in the text, length, is a pause

    def take(wave: ctypes._Pointer[ctypes.c_short], count: int, event: ctypes._Pointer[_Event]) -> int:
        if count:
            samples.append(np.ctypeslib.as_array(wave, (count,)).astype(np.float32) / 32768)
        place = 0
        while event[place].type != END:
            each = event[place]
            if each.type == WORD and each.length:
                events.append((each.sample / rate, each.text_position - 1, each.length, False))
            elif each.type == PHONEME and each.id.phoneme.startswith(b"_"):
                events.append((each.sample / rate, 0, 0, True))
            place += 1
        return 0

    callback = _Callback(take)
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(voice.encode())
    library.espeak_SetParameter(RATE_PARAMETER, words_per_minute, 0)
    encoded = text.encode()
    library.espeak_Synth(encoded, len(encoded) + 1, 0, CHARACTERS, 0, CHARACTERS, None, None)
    waveform = np.concatenate(samples)
    events.append((len(waveform) / rate, 0, 0, True))
    words = [
        SpokenWord(text[place : place + length], start, end)
        for (start, place, length, is_pause), (end, *_) in pairwise(events)
        if not is_pause
    ]
    return Utterance(soxr.resample(waveform, rate, SAMPLE_RATE), words)


class _Relation(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("name", "features", "utterance", "head", "tail"))


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


@cache
def _flite() -> ctypes.CDLL:
    library = ctypes.CDLL("libflite.so.1", mode=ctypes.RTLD_GLOBAL)
    for name in ("usenglish", "cmulex"):
        ctypes.CDLL(f"libflite_{name}.so.1", mode=ctypes.RTLD_GLOBAL)
    library.flite_init()
    for name in ("utt_relation", "utt_wave", "item_next", "flite_synth_text"):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p] * (1 + name.endswith(("ion", "text")))
    library.flite_synth_text.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.utt_relation.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name, kind in (("ffeature_string", ctypes.c_char_p), ("ffeature_float", ctypes.c_float)):
        function = getattr(library, name)
        function.restype, function.argtypes = kind, [ctypes.c_void_p, ctypes.c_char_p]
    library.delete_utterance.argtypes = [ctypes.c_void_p]
    return library


@cache
def _flite_voice(voice: str) -> int:
    library = ctypes.CDLL(f"libflite_cmu_us_{voice}.so.1")
    register = getattr(library, f"register_cmu_us_{voice}")
    register.restype = ctypes.c_void_p
    return int(register(None))


def flite(text: str, voice: str) -> Utterance:
    """Speak a text with flite. A word lasts as long as its phonemes."""
    library = _flite()
    utterance = library.flite_synth_text(text.encode(), _flite_voice(voice))
    relation = library.utt_relation(utterance, b"Segment")
    item = ctypes.cast(relation, ctypes.POINTER(_Relation)).contents.head
    begin, words, open_word = 0.0, list[SpokenWord](), None
    while item:
        end = library.ffeature_float(item, b"end")
        # A word's item has its address in the word's own relation, so two equal words in a row are two.
        name = library.ffeature_string(item, b"R:SylStructure.parent.parent.name").decode()
        number = library.ffeature_string(item, b"R:SylStructure.parent.parent.R:Word.p.name").decode()
        if library.ffeature_string(item, b"name") == b"pau":
            open_word = None
        elif open_word == (name, number):
            words[-1] = SpokenWord(name, words[-1].start, end)
        else:
            words.append(SpokenWord(name, begin, end))
            open_word = (name, number)
        begin, item = end, library.item_next(item)
    wave = ctypes.cast(library.utt_wave(utterance), ctypes.POINTER(_Wave)).contents
    waveform = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).astype(np.float32) / 32768
    resampled = soxr.resample(waveform, wave.rate, SAMPLE_RATE)
    library.delete_utterance(utterance)
    return Utterance(resampled, words)


def written_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without marks."""
    return re.findall(r"[\w']+", text.lower())


SYNTHESIZERS: dict[str, tuple[Callable[..., Utterance], tuple[str, ...]]] = {
    "espeak-ng": (espeak, ESPEAK_VOICES),
    "flite": (flite, FLITE_VOICES),
}
