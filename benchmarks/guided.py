"""Guided outputs: whether 1,000 samples have their forms, and which part of a step their masks take.

    python -m benchmarks.guided [--samples 1000] [--rows 32]

Whisper base, with a vocabulary of 51,865 tokens, draws at temperature 1 for a second of noise, 32 sequences at a time,
each with one of four forms. The samples are checked by `re`, `json` and `jsonschema`. Times are CPU seconds of one
thread, of the steps with all rows: the masks' and the whole step's. The first steps, which build the forms' automata,
are given apart.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch

from benchmarks.whisper import checkpoint
from transept import Engine, SamplingParams
from transept.core.execution.grammar_masks import GrammarMasks

COMMANDS = [f"{verb} the {thing}" for verb in ("open", "close", "show", "hide") for thing in ("door", "blind", "map")]
SENTENCE = r"[A-Z][a-z]{1,9}( [a-z]{1,9}){2,8}[.!?]"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "kept"]}, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
GBNF = 'root ::= move (", " move)? (", " move)? "."\nmove ::= (piece " to ")? [a-h] [1-8]\npiece ::= "rook" | "queen"'
MOVES = re.compile(r"((rook|queen) to )?[a-h][1-8](, ((rook|queen) to )?[a-h][1-8]){0,2}\.")
MAX_TOKENS = 80
FIRST_STEPS = 20


def _is_of_schema(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


FORMS: dict[str, tuple[dict[str, Any], Callable[[str], Any]]] = {
    "choice": ({"choice": COMMANDS}, COMMANDS.__contains__),
    "regex": ({"regex": SENTENCE}, re.compile(SENTENCE).fullmatch),
    "json": ({"json": SCHEMA}, _is_of_schema),
    "grammar": ({"grammar": GBNF}, MOVES.fullmatch),
}


class TimedMasks:
    """Adds up the CPU time of the masks of an engine in this process."""

    def __init__(self) -> None:
        self.seconds, self.rows = 0.0, 0
        forbid = GrammarMasks.forbid

        def timed(masks: GrammarMasks, logits: Any, rows: Any, ends: Any) -> None:
            begin = time.process_time()
            forbid(masks, logits, rows, ends)
            self.seconds += time.process_time() - begin
            self.rows += len(rows)

        GrammarMasks.forbid = timed  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    masks = TimedMasks()
    noise = np.random.default_rng(0).normal(0.0, 0.1, 16_000).astype(np.float32)
    prompt = {"multi_modal_data": {"audio": (noise, 16_000)}}
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(checkpoint("base", Path(scratch)), threads=1, max_num_seqs=arguments.rows)
    names = [list(FORMS)[number % len(FORMS)] for number in range(arguments.samples)]
    for number, name in enumerate(names):
        form, _ = FORMS[name]
        params = SamplingParams(guided=form, temperature=1.0, seed=number, max_tokens=MAX_TOKENS)
        engine.add_request(str(number), prompt, params)
    times: list[tuple[float, float]] = []  # of each full step: of the masks, of the whole
    results: Counter[tuple[str, str]] = Counter()
    while engine.has_unfinished_requests:
        masks.seconds, masks.rows, begin = 0.0, 0, time.process_time()
        outputs = engine.step()
        if masks.rows == arguments.rows:
            times.append((masks.seconds, time.process_time() - begin))
        for output in outputs:
            if output.finished:
                name, (completion,) = names[int(output.request_id)], output.outputs
                cut, valid = completion.finish_reason == "length", FORMS[name][1](completion.text)
                results[name, "cut off" if cut else "valid" if valid else "INVALID"] += 1
    engine.close()
    for (name, result), count in sorted(results.items()):
        print(f"{name}: {count} {result}")
    for title, part in (("first steps", times[:FIRST_STEPS]), ("later steps", times[FIRST_STEPS:])):
        if part:
            mask, whole = np.array(part).sum(axis=0)
            print(
                f"{title}: {len(part)} of {arguments.rows} rows, masks {1e3 * mask / len(part):.2f} ms of "
                f"{1e3 * whole / len(part):.1f} ms of CPU time, {100 * mask / whole:.1f} %"
            )


if __name__ == "__main__":
    main()
