"""Short clips, each transcribed separately with Whisper base: word errors, and clips in a language detected wrongly.

    python -m benchmarks.short_clips es=FOLDER=TEXTS fr=FOLDER=TEXTS [--half report] [--languages given detected]

TEXTS has lines ``NAME: TEXT``, and may be compressed by gzip. FOLDER has the audio: NAME with any suffix. The telephone
prompts of Debian's packages ``asterisk-core-sounds-es`` and ``asterisk-core-sounds-es-g722`` are such files. A text
in brackets describes a sound, and is left out, and so are names in subfolders. Every other clip is of the half on which
parameters are chosen. Rates are those of BasicTextNormalizer, with accents and, because many texts have none, without.
"""

from __future__ import annotations

import argparse
import gzip
import re
import tempfile
from pathlib import Path
from typing import Any

import jiwer
from whisper.normalizers import BasicTextNormalizer

from benchmarks.noise import HALVES, REPORT
from benchmarks.transcripts import Clip, seconds_of
from benchmarks.whisper import checkpoint
from transept import Transcriber
from transept.multimodal.audio import load_audio

SHORTEST, LONGEST = 1.0, 5.0  # seconds
WAYS: dict[str, dict[str, Any]] = {
    "sequential, fast": {"mode": "sequential"},
    "auto, fast": {"quality": "fast"},
    "auto, balanced": {},
    "auto, best": {"quality": "best"},
}


def clips(folder: Path, texts: Path, half: str) -> list[Clip]:
    """The short clips of a half, in the order of their names."""
    content = gzip.decompress(texts.read_bytes()) if texts.suffix == ".gz" else texts.read_bytes()
    known = dict(re.findall(r"^([\w-]+): *([^\[(\n]*\w[^\[(\n]*)$", content.decode(), re.MULTILINE))
    files = sorted(file for file in folder.iterdir() if file.stem in known)
    found = [Clip(file.stem, load_audio(str(file)), known[file.stem]) for file in files[HALVES.index(half) :: 2]]
    return [clip for clip in found if SHORTEST <= seconds_of(clip.waveform) <= LONGEST]


def main() -> None:
    """Print a row for each language, way, and given or detected language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="LANGUAGE=FOLDER=TEXTS")
    parser.add_argument("--half", choices=HALVES, default=REPORT)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--languages", nargs="+", choices=("given", "detected"), default=["given", "detected"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = Transcriber(str(checkpoint("base", Path(scratch))))
    print("| clips | way | language | word errors | without accents | wrong language |")
    print("| --- | --- | --- | --- | --- | --- |")
    for code, folder, texts in (each.split("=", 2) for each in arguments.sets):
        known = clips(Path(folder), Path(texts), arguments.half)
        for way in arguments.ways:
            for told in arguments.languages:
                language = code if told == "given" else None
                heard = list(model.transcribe_many([clip.waveform for clip in known], language=language, **WAYS[way]))
                rates = []
                for normalize in (BasicTextNormalizer(), BasicTextNormalizer(remove_diacritics=True)):
                    spoken = [normalize(clip.text) for clip in known]
                    rates.append(100 * jiwer.wer(spoken, [normalize(each.text) for each in heard]))
                wrong = sum(each.language != code for each in heard)
                print(
                    f"| {len(known)}, {code} | {way} | {told} | {rates[0]:.1f} % | {rates[1]:.1f} % | {wrong} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
