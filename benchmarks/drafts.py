"""Decoding with drafts and without, in turns on one engine: time of decoder steps, steps, and accepted tokens.

    python -m benchmarks.drafts [--turns 9] [--sequences 1 32] [--skip rewriting|speech]

Rewriting: a small BART, trained here, repeats its input with every misspelt token corrected, and drafts by lookup.
Speech: Whisper base, whose drafts are its own output, that output with about every fifth token wrong or missing, and
random tokens. In each turn, each kind of draft decodes the same inputs, and must give the same tokens. Times are
processor seconds of the steps that only decode, because other work on a machine delays a step more than drafts change
it. Ratios are medians over turns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import whisper
from transept import Engine, SamplingParams

RIGHT, WRONG = range(4, 64), range(64, 94)  # tokens of the small BART; a misspelt token is RIGHT's plus 60
MISSPELT = 0.1  # share of the input's tokens
TRAINING_STEPS = 500
SIDE = {"attention_heads": 4, "ffn_dim": 128}  # of encoder and decoder
TEXT_TOKENS = 60
SPEECH = Path("tests/data/speech/librivox")
GREEDY = SamplingParams(temperature=0.0, max_tokens=200, num_beams=1)

Ways = dict[str, Callable[[list[int]], dict[str, Any]]]  # name -> options of drafts, from the expected output


@dataclass
class Turns:
    """Times of one way, one for each turn, and counts of its last turn."""

    seconds: list[float] = field(default_factory=list)
    num_steps: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


class DecodeClock:
    """Sums the processor time of an engine's steps that only decode."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.seconds, self.num_steps = engine, 0.0, 0
        step, ended = engine.core.step, engine.scheduler.drafting.ended

        def timed_step() -> None:
            self.begin = time.process_time()
            step()

        def timed_end(outputs: Any, seconds: float) -> None:
            if outputs.only_decodes and outputs.num_seqs:
                self.seconds += time.process_time() - self.begin
                self.num_steps += 1
            ended(outputs, seconds)

        engine.core.step = timed_step  # type: ignore[method-assign]
        engine.scheduler.drafting.ended = timed_end  # type: ignore[method-assign]


def misspelt(count: int, length: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and outputs of the small BART, [count, length + 1]."""
    right = torch.randint(RIGHT.start, RIGHT.stop, (count, length), generator=rng)
    wrong = (torch.rand(count, length, generator=rng) < MISSPELT) & (right < RIGHT.start + len(WRONG))
    end = torch.full((count, 1), 2)
    return torch.cat([torch.where(wrong, right + len(RIGHT), right), end], 1), torch.cat([right, end], 1)


def train(directory: Path) -> float:
    """Save a small BART that corrects misspelt tokens. Returns its share of right tokens in its last batch."""
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    lengths, rng, size = random.Random(0), torch.Generator().manual_seed(0), 64
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIDE.items()}
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=WRONG.stop,
            d_model=size,
            max_position_embeddings=TEXT_TOKENS + 12,
            encoder_layers=1,
            decoder_layers=2,
            **sides,
            dropout=0.0,
            attention_dropout=0.0,
            init_std=0.1,
            decoder_start_token_id=2,
            forced_bos_token_id=None,
            forced_eos_token_id=None,
        )
    )
    # Positions as sines (Vaswani et al. 2017), with which attention learns to follow the input in few steps.
    positions = torch.arange(TEXT_TOKENS + 14)[:, None] * 1000.0 ** (-2 * torch.arange(size // 2) / size)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.data.copy_(0.3 * torch.cat([positions.sin(), positions.cos()], 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=TRAINING_STEPS, pct_start=0.1)
    model.train()
    for _ in range(TRAINING_STEPS):
        given, wanted = misspelt(32, lengths.randint(16, TEXT_TOKENS), rng)
        output = model(input_ids=given, labels=wanted)
        optimizer.zero_grad()
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    model.save_pretrained(directory)
    return float((output.logits.argmax(-1) == wanted).float().mean())


def compare(engine: Engine, prompts: Sequence[Any], ways: Ways, turns: int) -> None:
    """Print a table: one row for each number of sequences and way."""
    statistics_of_steps, clock = engine.core.statistics, DecodeClock(engine)
    expected = [output.outputs[0].token_ids for output in engine.generate([*prompts], GREEDY, progress=False)]
    results = {way: Turns() for way in ways}
    for _ in range(turns):
        for way, options in ways.items():
            params = [replace(GREEDY, **options(tokens)) for tokens in expected]
            before = replace(statistics_of_steps)
            clock.seconds, clock.num_steps = 0.0, 0
            outputs = engine.generate([*prompts], params, progress=False)
            if [output.outputs[0].token_ids for output in outputs] != expected:
                raise AssertionError(f"{way} changed tokens")
            result = results[way]
            result.seconds.append(clock.seconds)
            result.num_steps = clock.num_steps
            result.num_drafted = statistics_of_steps.num_draft_tokens - before.num_draft_tokens
            result.num_accepted = statistics_of_steps.num_accepted_tokens - before.num_accepted_tokens
    none = results["no drafts"]
    print(f"\n| {len(prompts)} sequence(s) | decode s | times as fast | steps | drafted | accepted |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way, result in results.items():
        ratio = statistics.median(slow / fast for slow, fast in zip(none.seconds, result.seconds, strict=True))
        counts = f"{result.num_steps} | {result.num_drafted} | {result.num_accepted}"
        print(f"| {way} | {statistics.median(result.seconds):.3f} | {ratio:.2f} | {counts} |", flush=True)


def spoiled(tokens: list[int], vocab_size: int) -> list[int]:
    """The tokens, of which about every fifth is another or is missing."""
    rng = random.Random(len(tokens))
    draft = [
        rng.choice([[token]] * 4 + [[rng.randrange(vocab_size)]] + [[]] * (place % 2))
        for place, token in enumerate(tokens)
    ]
    return [token for each in draft for token in each]


def compare_rewriting(directory: Path, count: int, turns: int) -> None:
    """Compare lookup with no drafts on texts of the small BART."""
    texts = misspelt(count, TEXT_TOKENS - 1, torch.Generator().manual_seed(1))[0].tolist()
    ways: Ways = {"no drafts": lambda _: {}, "lookup": lambda _: {"draft": "lookup"}}
    with Engine(directory, device="cpu", dtype="float32") as engine:
        compare(engine, [{"prompt_tokens": tokens} for tokens in texts], ways, turns)


def compare_speech(directory: Path, count: int, turns: int) -> None:
    """Compare drafts of several kinds on windows of speech."""
    files, rng = sorted(SPEECH.glob("*.flac")), random.Random(0)
    prompts = [{"multi_modal_data": {"audio": files[index % len(files)]}} for index in range(count)]
    with Engine(directory, device="cpu", dtype="float32", kv_cache_bytes=4 << 30) as engine:
        size = engine.shape.vocab_size
        ways: Ways = {
            "no drafts": lambda _: {},
            "its own output, 4 tokens": lambda tokens: {"draft_tokens": tokens, "draft_length": 4},
            "its own output": lambda tokens: {"draft_tokens": tokens},
            "a fifth wrong": lambda tokens: {"draft_tokens": spoiled(tokens, size)},
            "random tokens": lambda tokens: {"draft_tokens": [rng.randrange(size) for _ in tokens]},
        }
        compare(engine, prompts, ways, turns)


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--skip", choices=("rewriting", "speech"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if given.skip != "rewriting":
            directory = Path(scratch) / "bart"
            print(f"small BART: {train(directory):.1%} of its last training tokens are right")
            for count in given.sequences:
                compare_rewriting(directory, count, given.turns)
        if given.skip != "speech":
            directory = whisper.checkpoint("base", Path(scratch))
            for count in given.sequences:
                compare_speech(directory, count, given.turns)


if __name__ == "__main__":
    main()
