"""Forced alignment by PocketSphinx: the sounds of the words, in order, with silence between them."""

from __future__ import annotations

import re
import threading
from functools import cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
from pocketsphinx import Decoder

RATE = 16_000  # Hz of the acoustic model
FRAMES = 100  # per second
PEAK = 0.5  # of full scale, which every stretch gets
DITHER = 3e-4  # of full scale: noise without which digital silence has no features
WIDE = 1e-80  # beam; a narrow one loses the words in noise
# Sounds of letters, for words that are not in the dictionary. Their length is about right.
SOUNDS = (
    "a=AE b=B c=K d=D e=EH f=F g=G h=HH i=IH j=JH k=K l=L m=M n=N o=AA p=P q=K r=R s=S t=T u=AH v=V w=W x=K y=Y z=Z"
)
LETTERS = dict(pair.split("=") for pair in SOUNDS.split())
SIGNS = {"*": "star", "#": "pound", "%": "percent", "&": "and", "$": "dollars", "+": "plus", "@": "at"}
SMALL = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
LOCK = threading.Lock()  # a decoder serves one recording at a time


@cache
def _decoder() -> Decoder:
    return Decoder(loglevel="FATAL", lm=None, beam=WIDE, pbeam=WIDE, wbeam=WIDE)


def times_of(waveform: npt.NDArray[np.float32], words: list[str]) -> list[tuple[float, float]] | None:
    """Return the start and the end of each word in seconds; None if they do not match the audio.

    waveform: float32 [samples] at RATE. A word without sounds, such as a dash, has no length.
    """
    spoken = [_spoken(word) for word in words]
    loudest = float(np.abs(waveform).max(initial=0.0))
    if not any(spoken) or not loudest:
        return None
    noise = np.random.default_rng(0).normal(0.0, DITHER, len(waveform))
    samples = (np.clip(waveform * (PEAK / loudest) + noise, -1.0, 1.0) * 32767).astype(np.int16)
    with LOCK:
        decoder = _decoder()
        for each in {each for parts in spoken for each in parts}:
            if decoder.lookup_word(each) is None:
                decoder.add_word(each, " ".join(LETTERS[letter] for letter in each if letter in LETTERS) or "AH", True)
        decoder.set_align_text(" ".join(each for parts in spoken for each in parts))
        decoder.start_utt()
        decoder.process_raw(samples.tobytes(), full_utt=True)
        decoder.end_utt()
        found = (
            [] if decoder.hyp() is None else [(each.word, each.start_frame, each.end_frame) for each in decoder.seg()]
        )
    heard = [(start / FRAMES, (end + 1) / FRAMES) for word, start, end in found if word[0] not in "<["]
    borders = [0, *accumulate(map(len, spoken))]
    if len(heard) != borders[-1]:
        return None
    times: list[tuple[float, float]] = []
    for first, last in pairwise(borders):
        before = times[-1][1] if times else heard[0][0]
        times.append((heard[first][0], heard[last - 1][1]) if last > first else (before, before))
    return times


def _spoken(word: str) -> list[str]:
    """Return the words of the dictionary that a written word is spoken as."""
    plain = re.sub(r"(?<=\d),(?=\d)", "", word.lower().replace("\u2019", "'"))
    plain = re.sub(r"\d+", lambda digits: f" {_number(int(digits[0]))} ", plain)
    plain = "".join(f" {SIGNS[each]} " if each in SIGNS else each for each in plain)
    return re.findall(r"[a-z]+(?:'[a-z]+)*|[^\W\d_a-z]+", plain)


def _number(number: int) -> str:
    """Return a number in words."""
    if number < len(SMALL):
        return SMALL[number]
    if number < 100:
        return f"{TENS[number // 10 - 2]} {_rest(number % 10)}"
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            return f"{_number(number // size)} {name} {_rest(number % size)}"
    raise AssertionError(number)


def _rest(number: int) -> str:
    return _number(number) if number else ""
