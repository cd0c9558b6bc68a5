"""Requests of every kind from eight threads over two engines with little room: each gets what it gets alone.

Whisper tiny.en with its real weights, and BART with random ones. Some requests fail, in a logits processor or a mapper,
some are refused, some are abandoned in the middle; all others are computed beside them, preempted again and again. In
half of the rounds a thread of its own drives each engine, as in a server, and encoders take a step for each layer.
Most requests have drafts, which change no result, some have an adapter, and some a form.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import av  # noqa: F401  # now, as objects are counted: the first file that libsndfile cannot read imports it
import pytest
from peak_memory import run_python
from random_adapters import save_adapter
from text.small_checkpoints import TEXTS, save_bart

from transept import Engine, RequestOutput, SamplingParams, TextGenerator, Transcriber
from transept.core.execution import grammar_masks
from transept.core.jobs.job import Channel, Submit, Wait
from transept.core.request.prompts import Request
from transept.core.scheduling.step import StepInput
from transept.errors import MediaError, PromptError, RequestFailedError, TranseptError

THREADS = 8
ROUND = 120  # calls that wait for a thread at a time
CLIPS = ("austen-0880", "austen-0930", "austen-0890")
TIGHT: dict[str, Any] = {"max_num_seqs": 12, "encoder_layers_per_step": 1}
GREEDY = SamplingParams(temperature=0.0, max_tokens=30)


@dataclasses.dataclass(frozen=True)
class RaisesAt:
    """A logits processor that raises once a row has so many tokens."""

    length: int

    def __call__(self, logits: Any, rows: Any) -> None:
        if any(len(row.output_token_ids) >= self.length for row in rows):
            raise ValueError("this processor is broken")


class BrokenPath:
    """A path that a mapper cannot look at without an error that is none of ours."""

    def __fspath__(self) -> str:
        raise LookupError("this data is broken")


PARAMS = (
    GREEDY,
    SamplingParams(temperature=0.0, max_tokens=5),
    SamplingParams(
        temperature=0.0, max_tokens=40, ignore_eos=True, repetition_penalty=1.3, sequence_bias=[[[7, 9], 2.0]]
    ),
    SamplingParams(temperature=0.8, seed=3, n=3, max_tokens=20),
    SamplingParams(temperature=1.0, seed=4, top_k=20, max_tokens=20),
    SamplingParams(num_beams=4, num_return_sequences=2, max_tokens=20),
)
GUIDED = SamplingParams(temperature=0.8, seed=5, max_tokens=20, guided={"regex": "(he|she|it) (was|is) (not )?[a-z]+"})
DRAFTS: tuple[dict[str, Any], ...] = (
    {},
    {"draft": "lookup", "draft_length": 3},
    {"draft_tokens": [5, 6, 7, 8] * 8, "draft_length": 5},
)
TASKS: tuple[dict[str, bool], ...] = ({}, {"batched": True}, {"word_timestamps": True})
ADAPTERS = (None, "legal", "medical")
FAILING = tuple(
    dataclasses.replace(GREEDY, logits_processors=[RaisesAt(length)], ignore_eos=True) for length in (0, 2, 9)
)

Call = Callable[[], Any]


def results(output: RequestOutput) -> Any:
    return [(each.token_ids, each.text, each.finish_reason) for each in output.outputs]


def asked(engine: Engine, prompt: Any, params: SamplingParams, lora: str | None = None) -> Any:
    """One request's results, or the error that it ended with."""

    def job() -> Generator[Any, Any, Any]:
        (output,) = yield Submit([Request(prompt, params, lora=lora)])
        return results(output)

    ((_, result),) = engine.runner.run([job()], max_jobs=1)
    if isinstance(result, TranseptError):
        raise result
    return result


def abandoned(engine: Engine, prompt: Any, params: SamplingParams, num_steps: int) -> None:
    """A request that is read for some steps."""

    def job() -> Generator[Any, Any, Any]:
        outputs = yield Submit([Request(prompt, params)], stream=True)
        while not all(output is not None and output.finished for output in outputs):
            yield "step"
            outputs = yield Wait()

    with closing(engine.runner.run([job()], max_jobs=1)) as events:
        for _ in zip(range(num_steps), events, strict=False):
            pass


def said(transcriber: Transcriber, clip: Path, options: dict[str, bool]) -> Any:
    """Tokens and times; probabilities differ by the rounding of other orders of summation."""
    return [
        (
            segment.start,
            segment.end,
            segment.tokens,
            [(word.start, word.end, word.word) for word in segment.words or ()],
        )
        for segment in transcriber.transcribe(clip, **options).segments
    ]


def raises(error: type[TranseptError], call: Call) -> str:
    with pytest.raises(error):
        call()
    return error.__name__


class House:
    """Two engines with room for few requests, and two with room for all, which say what is right."""

    def __init__(self, folder: Path, tiny_en: Path, speech: Path) -> None:
        bart = save_bart(folder)
        names = [name for name in ADAPTERS if name is not None]
        adapters = {
            name: save_adapter(bart, folder / name, seed=seed, modules="all-linear") for seed, name in enumerate(names)
        }
        options: dict[str, Any] = {"adapters": adapters, "max_adapters": 1}
        self.clips = [speech / "librivox" / f"{name}.flac" for name in CLIPS]
        slot = 2 * 4 * 384 * 4  # keys and values, layers, width, float32
        self.transcriber = Transcriber(tiny_en, kv_cache_bytes=5 * 1600 * slot, swap_bytes=1600 * slot, **TIGHT)
        self.speech = Transcriber(tiny_en, kv_cache_bytes=5 * 1600 * slot)
        slot = 2 * 2 * 48 * 4
        self.generator = TextGenerator(folder, kv_cache_bytes=208 * slot, block_size=8, **TIGHT, **options)
        self.text = TextGenerator(folder, kv_cache_bytes=1 << 24, **options)
        self._right: dict[str, str] = {}
        for owner in (self.transcriber, self.generator, self.speech, self.text):
            for layer in owner.engine.executor.worker.cache.layers:
                layer.zero_()  # so that its pages count from the beginning

    def calls(self, rng: random.Random) -> tuple[str, Call, Call | None]:
        """A kind of call, the call itself, and the call that says what it should give; None: nothing."""
        speech = rng.random() < 0.25
        prompt: Any = rng.choice(TEXTS)
        if speech:
            prompt = {"multi_modal_data": {"audio": str(rng.choice(self.clips))}}
        engine = (self.transcriber if speech else self.generator).engine
        reference = (self.speech if speech else self.text).engine
        params = rng.choice((*PARAMS, GUIDED) if speech else PARAMS)
        drafted = params if params.beam_search else dataclasses.replace(params, **rng.choice(DRAFTS))
        lora = None if speech else rng.choice(ADAPTERS)
        kind = rng.choice(["request"] * 5 + ["task", "task", "processor", "mapper", "refused", "abandoned", "closed"])
        if kind == "request":
            right = partial(self.right, f"{prompt} {params} {lora}", lambda: asked(reference, prompt, params, lora))
            return kind, lambda: asked(engine, prompt, drafted, lora), right
        if kind == "task" and speech:
            clip, options = rng.choice(self.clips), rng.choice(TASKS)
            right = partial(self.right, f"{clip} {options}", lambda: said(self.speech, clip, options))
            return kind, lambda: said(self.transcriber, clip, options), right
        if kind == "task":
            right = partial(self.right, f"summary of {prompt}", lambda: self.text.summarize(prompt).text)
            return kind, lambda: self.generator.summarize(prompt).text, right
        if kind == "processor":
            failing = rng.choice(FAILING)
            return kind, lambda: raises(RequestFailedError, lambda: asked(engine, prompt, failing)), None
        if kind == "mapper":
            data, error = rng.choice([(BrokenPath(), RequestFailedError), (b"not audio", MediaError)])
            if not speech:
                data, error = b"a text model takes none", MediaError
            broken = {"multi_modal_data": {"audio": data}}
            return kind, lambda: raises(error, lambda: asked(engine, broken, params)), None
        if kind == "refused":
            return kind, lambda: raises(PromptError, lambda: asked(engine, {"prompt_tokens": []}, params)), None
        if kind == "abandoned":
            num_steps = rng.randrange(8)
            return kind, lambda: abandoned(engine, prompt, params, num_steps), None
        return kind, lambda: self.close_a_stream(speech, prompt), None

    def right(self, what: str, call: Call) -> str:
        """What a call gives alone, computed once, as a text: what is kept must not count as an object that stays."""
        if what not in self._right:
            self._right[what] = repr(call())
        return self._right[what]

    def close_a_stream(self, speech: bool, prompt: Any) -> None:
        stream: Any
        if speech:
            stream = self.transcriber.stream(prompt["multi_modal_data"]["audio"], batched=True)
        else:
            stream = self.generator.stream("generate", TEXTS, temperature=0.0, max_tokens=20)
        with closing(stream):
            next(stream)


def resident_bytes() -> int:
    """Of this process, once what Python and the C library hold without need is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def driven(engines: Sequence[Engine]) -> Iterator[None]:
    """Each engine is driven by a thread that has nothing else to do."""
    channels = [Channel(idles=True) for _ in engines]
    with ThreadPoolExecutor(len(engines)) as pool:
        threads = [
            pool.submit(engine.runner.keep_driving, each) for engine, each in zip(engines, channels, strict=True)
        ]
        try:
            yield
        finally:
            for engine, channel in zip(engines, channels, strict=True):
                engine.runner.release(channel)
    for thread in threads:
        thread.result()


def run(house: House, seed: int, count: int) -> Counter[str]:
    """So many calls from all threads, in random order; each result is compared. Returns how many of each kind."""
    rng = random.Random(seed)
    calls = [house.calls(rng) for _ in range(count)]
    kinds: Counter[str] = Counter()
    engines = (house.transcriber.engine, house.generator.engine)
    with driven(engines) if seed % 2 else nullcontext(), ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(call) for _, call, _ in calls]
        got = [future.result() for future in futures]
    for (kind, _, reference), result in zip(calls, got, strict=True):
        kinds[kind] += 1
        if reference is not None:
            assert repr(result) == reference(), kind
    for engine in engines:
        assert engine.scheduler.sliced is None
        assert not engine.has_unfinished_requests
        engine.block_manager.check_integrity()
        assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
        assert engine.block_manager.num_free_host_blocks == engine.block_manager.num_host_blocks
        assert not engine.runner.tasks._owners
        assert not engine.runner.tasks._roots
    return kinds


def check(count: int, folder: str, tiny_en: str, speech: str) -> None:
    """Make so many calls, after which this process, which does nothing else, is to hold what it held before."""
    grammar_masks.MOST_STATES = 8  # of forms, which are kept until others replace them
    house = House(Path(folder), Path(tiny_en), Path(speech))
    preemptions: Counter[str] = Counter()
    slices: Counter[str] = Counter()
    for name, engine in (("speech", house.transcriber.engine), ("text", house.generator.engine)):
        preempt = engine.scheduler._preempt

        def counted(group: Any, outputs: Any, name: str = name, preempt: Any = preempt) -> None:
            preemptions[name] += 1
            preempt(group, outputs)

        engine.scheduler._preempt = counted  # type: ignore[method-assign]
        issue = engine.executor.issue

        def counting(step: StepInput, name: str = name, issue: Any = issue) -> int:
            slices[name] += sum(encode.num_layers is not None for encode in step.encodes)
            return issue(step)

        engine.executor.issue = counting  # type: ignore[method-assign]
    run(house, seed=0, count=90)  # so that what is kept for good is there
    asked(house.transcriber.engine, {"multi_modal_data": {"audio": str(house.clips[0])}}, GUIDED)
    for options in TASKS:
        said(house.transcriber, house.clips[0], options)
    for number, lora in enumerate(ADAPTERS):
        asked(house.generator.engine, TEXTS[0], dataclasses.replace(GREEDY, **DRAFTS[number]), lora)
    before, num_objects = resident_bytes(), len(gc.get_objects())
    kinds = Counter[str]()
    for seed in range(1, 1 + count // ROUND):
        kinds += run(house, seed, ROUND)
    assert len(kinds) == 7
    assert preemptions["text"] > count // 20
    assert min(slices["speech"], slices["text"]) > 0
    grown = resident_bytes() - before  # some of what is free stays with the C library, in pieces
    assert len(gc.get_objects()) - num_objects < count // 4
    assert grown < 192 << 20  # a window's features alone, had they stayed, would be 1 MB a request


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="memory is counted as glibc and Linux do")
@pytest.mark.parametrize("count", [120, pytest.param(2040, marks=pytest.mark.slow)])
def test_requests_of_every_kind_from_many_threads(
    count: int, tmp_path: Path, tiny_en_dir: Path, speech_dir: Path
) -> None:
    program = f"import sys, test_chaos\ntest_chaos.check({count}, *sys.argv[1:])"
    done = run_python(program, tmp_path, tiny_en_dir, speech_dir)
    assert done.returncode == 0, done.stderr
