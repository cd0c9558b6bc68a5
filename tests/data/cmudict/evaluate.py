"""The table of README.md: both checkpoints on the held-out words, decoded by transformers. `python evaluate.py`."""

import re
from collections.abc import Callable, Iterable

import jiwer
import torch
from lexicon import HERE, spellings, split
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

BATCH_SIZE = 250
DECODING = {"greedy": {"num_beams": 1, "do_sample": False}, "4 beams": {}}  # a checkpoint's own settings are 4 beams

Accepted = dict[str, list[str]]  # source text -> every target text that is right


@torch.inference_mode()
def decode(name: str, sources: Iterable[str], settings: dict[str, object]) -> dict[str, str]:
    """Source text -> what the checkpoint makes of it."""
    tokenizer = AutoTokenizer.from_pretrained(HERE / name)
    model = AutoModelForSeq2SeqLM.from_pretrained(HERE / name).eval()
    by_length = sorted(sources, key=len)
    decoded: dict[str, str] = {}
    for start in range(0, len(by_length), BATCH_SIZE):
        batch = by_length[start : start + BATCH_SIZE]
        token_ids = model.generate(**tokenizer(batch, return_tensors="pt", padding=True), **settings)
        decoded |= zip(batch, tokenizer.batch_decode(token_ids, skip_special_tokens=True), strict=True)
    return decoded


def accuracy(decoded: dict[str, str], accepted: Accepted, view: Callable[[str], str] = str) -> float:
    """Sources that came out as one of their accepted targets, both seen through view, in percent."""
    right = sum(view(decoded[source]) in map(view, targets) for source, targets in accepted.items())
    return 100 * right / len(accepted)


def error_rate(decoded: dict[str, str], accepted: Accepted, symbols: Callable[[str], Iterable[str]]) -> float:
    """Edits of symbols to the nearest accepted target, by that target's length, over all sources, in percent."""
    edits = length = 0
    for source, targets in accepted.items():
        output = " ".join(symbols(decoded[source]))
        alignments = [jiwer.process_words(" ".join(symbols(target)), output) for target in targets]
        best = min(alignments, key=lambda each: each.wer)
        edits += best.substitutions + best.deletions + best.insertions
        length += best.hits + best.substitutions + best.deletions
    return 100 * edits / length


def without_stress(text: str) -> str:
    """Phonemes without their stress marks; a spelling stays as it is."""
    return re.sub(r"\d", "", text)


def main() -> None:
    """Print the table. A spelling is asked for only where no word trained on sounds the same."""
    trained, held_out = split()
    known = spellings(trained)
    unknown = {sound: words for sound, words in spellings(held_out).items() if sound not in known}
    tasks = (
        ("bart-g2p", "", held_out, str.split),
        ("t5-g2p", "pronounce: ", held_out, str.split),
        ("t5-g2p", "spell: ", unknown, list),
    )
    print("| checkpoint | prefix | decoding | sources | error rate | word accuracy | without stress |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, prefix, targets, symbols in tasks:
        accepted = {prefix + source: each for source, each in targets.items()}
        for decoding, settings in DECODING.items():
            decoded = decode(name, accepted, settings)
            figures = (
                error_rate(decoded, accepted, symbols),
                accuracy(decoded, accepted),
                accuracy(decoded, accepted, without_stress),
            )
            row = (
                f"`{name}`",
                f"`{prefix}`" if prefix else "",
                decoding,
                str(len(accepted)),
                *map("{:.1f} %".format, figures),
            )
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
