"""The way through a recording against openai-whisper's, for whatever a model might answer: both are told the same."""

import dataclasses
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import whisper
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_reference import before_the_end
from recordings import RATE
from whisper.decoding import DecodingOptions, DecodingResult, DecodingTask
from whisper.tokenizer import get_tokenizer
from whisper.utils import compression_ratio

from transept import Engine, TranscriptionInfo, TranscriptionOptions, Word
from transept.core.jobs.job import Offload, Submit
from transept.core.outputs import CompletionOutput
from transept.core.request.limits import DEFAULT_LIMITS
from transept.speech import recording
from transept.speech.algorithms import sequential
from transept.speech.segments import Found, Opened
from transept.speech.speech_model import SpeechModel

TOKENIZER = get_tokenizer(multilingual=False)
FIRST = TOKENIZER.timestamp_begin
SECONDS = 75.3
NOISE = np.random.default_rng(0).normal(0, 0.1, round(SECONDS * RATE)).astype(np.float32)


@dataclass(frozen=True)
class Answer:
    """What the model says of one window."""

    tokens: list[int]
    avg_logprob: float
    no_speech_prob: float


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Segments with rising times, and the various ways in which a window ends."""
    positions = [draw(st.integers(0, 100)), *draw(st.lists(st.integers(1, 1500), max_size=7))]
    positions.sort()  # no segment ends at 0: a window that ended there would be heard again for ever
    blank = st.just(TOKENIZER.encode(" "))
    words = st.lists(st.integers(1000, 20_000), min_size=1, max_size=5)
    tokens: list[int] = []
    for begin, end in zip(positions[::2], positions[1::2], strict=False):
        tokens += [FIRST + begin, *draw(st.one_of(words, words, blank)), FIRST + end]
    ending = draw(st.sampled_from(["closed", "open", "begun", "untimed"]))
    if ending != "closed" or not tokens:
        tokens += [FIRST + positions[-1], *draw(words)]
    if ending == "begun":
        tokens += [FIRST + max(positions[-1], 1), FIRST + max(positions[-1], 1)]
    if ending == "untimed":
        tokens = draw(words)
    return Answer(tokens, draw(st.sampled_from([-0.2, -1.5])), draw(st.sampled_from([0.1, 0.9])))


@pytest.fixture(scope="module")
def model(tiny_en_dir: Path) -> SpeechModel:
    return SpeechModel(Engine(tiny_en_dir))


def ours(model: SpeechModel, script: list[Answer], options: TranscriptionOptions) -> tuple[list[Any], list[list[int]]]:
    """Our segments, and the decoder prompt of every window."""
    prompts: list[list[int]] = []
    job = recording.transcribe(model, (NOISE, RATE), DEFAULT_LIMITS, options)
    reply = None
    while True:
        try:
            event = job.send(reply)
        except StopIteration as end:
            return end.value.segments, prompts
        if isinstance(event, Opened | TranscriptionInfo | Found | Offload):
            reply = event.function() if isinstance(event, Offload) else None
            continue
        assert isinstance(event, Submit)
        (request,) = event.requests
        prompt = request.prompt
        answer = script[len(prompts) % len(script)]
        prompts.append(prompt["decoder_prompt"]["prompt_tokens"])
        total = answer.avg_logprob * (len(answer.tokens) + 1)
        completion = CompletionOutput(0, "", [*answer.tokens, TOKENIZER.eot], total, None, None, "stop", None)
        probe = SimpleNamespace(logprobs=(math.log(answer.no_speech_prob),))
        reply = [SimpleNamespace(outputs=[completion], prompt_probe=probe)]


class Told:
    """A model for whisper.transcribe() that says what it is told to."""

    dims = SimpleNamespace(n_mels=80, n_audio_ctx=1500, n_text_ctx=448)
    device = torch.device("cpu")
    is_multilingual = False
    num_languages = 99

    def __init__(self, script: list[Answer]) -> None:
        self.script = script
        self.prompts: list[list[int]] = []

    def decode(self, segment: torch.Tensor, options: DecodingOptions) -> DecodingResult:
        assert segment.shape == (80, 3000)
        answer = self.script[len(self.prompts) % len(self.script)]
        task = SimpleNamespace(
            options=options, tokenizer=TOKENIZER, sot_sequence=TOKENIZER.sot_sequence, sample_len=224, n_ctx=448
        )
        self.prompts.append(list(DecodingTask._get_initial_tokens(task)))
        return DecodingResult(
            audio_features=segment,
            language="en",
            tokens=answer.tokens,
            text=TOKENIZER.decode(answer.tokens).strip(),
            avg_logprob=answer.avg_logprob,
            no_speech_prob=answer.no_speech_prob,
            temperature=options.temperature,
            compression_ratio=compression_ratio(TOKENIZER.decode(answer.tokens).strip()),
        )


@settings(max_examples=30)
@given(
    script=st.lists(answers(), min_size=1, max_size=6),
    temperature=st.sampled_from([0.0, 0.6]),
    condition=st.booleans(),
    initial=st.sampled_from([{}, {"initial_prompt": "Norland Park"}]),
    carry=st.booleans(),
    clips=st.sampled_from([[], [10.0, 31.5, 60.0], [0.0, 5.0, 5.0, 12.34], [70.0]]),
    silence=st.sampled_from([0.6, None]),
)
def test_the_same_windows_prompts_and_segments(model, script, temperature, condition, initial, carry, clips, silence):
    given_to_both = {
        "temperature": temperature,
        "condition_on_previous_text": condition,
        "carry_initial_prompt": carry,
        "clip_timestamps": clips,
        "no_speech_threshold": silence,
        **initial,
    }
    reference = Told(script)
    theirs = whisper.transcribe(reference, NOISE, fp16=False, **given_to_both)
    segments, prompts = ours(model, script, TranscriptionOptions(mode="sequential", **given_to_both))
    assert prompts == reference.prompts
    assert_same(segments, theirs, ("seek", "start", "end", "text", "tokens", "temperature", "compression_ratio"), clips)


def invented(seed: int, seek: int, index: int) -> list[Word]:
    """Words of a segment: likely and unlikely ones, short and long ones, with short and long pauses, or none."""
    dice = random.Random(f"{seed} {seek} {index}")
    words = []
    time = seek / 100 + 4 * index + dice.choice([0.0, 0.5, 3.0])
    for number in range(dice.choice([0, 1, 3, 10])):
        end = time + dice.choice([0.02, 0.1, 0.4, 1.0, 2.5])
        word = dice.choice([" word", " other", ".", " -"]) if number else " first"
        words.append(Word(round(time, 2), round(end, 2), word, dice.choice([0.01, 0.01, 0.5, 0.99])))
        time = end + dice.choice([0.0, 0.0, 0.3, 2.0])
    return words


@pytest.mark.slow
@settings(max_examples=60)
@given(
    script=st.lists(answers(), min_size=1, max_size=6),
    seed=st.integers(0, 10_000),
    threshold=st.sampled_from([None, 0.5, 1.0, 2.0, 8.0]),
    condition=st.booleans(),
)
def test_the_same_way_when_words_are_known(model, script, seed, threshold, condition):
    seen: dict[str, list[float]] = {"ours": [], "theirs": []}

    def add_words(heard, segments, time_offset, last_speech, context=None):
        assert context is None  # the whole window
        seen["ours"].append(last_speech)
        placed = []
        for index, segment in enumerate(segments):
            words = invented(seed, round(100 * time_offset), index)
            times = {"start": words[0].start, "end": words[-1].end} if words else {}
            placed.append(dataclasses.replace(segment, words=words, **times))
        return placed
        yield

    def add_word_timestamps(*, segments, last_speech_timestamp, **_):
        seen["theirs"].append(last_speech_timestamp)
        for index, segment in enumerate(segments):
            words = invented(seed, segment["seek"], index)
            segment["words"] = [dataclasses.asdict(word) for word in words]
            if words:
                segment |= {"start": words[0].start, "end": words[-1].end}

    given_to_both = {
        "temperature": 0.0,
        "word_timestamps": True,
        "hallucination_silence_threshold": threshold,
        "condition_on_previous_text": condition,
    }
    reference = Told(script)
    with (
        mock.patch.object(sequential, "add_words", add_words),
        mock.patch.object(sys.modules["whisper.transcribe"], "add_word_timestamps", add_word_timestamps),
    ):
        theirs = whisper.transcribe(reference, NOISE, fp16=False, **given_to_both)
        segments, prompts = ours(model, script, TranscriptionOptions(mode="sequential", **given_to_both))
    assert seen["ours"] == seen["theirs"]
    assert prompts == reference.prompts
    assert_same(segments, theirs, ("seek", "start", "end", "text", "tokens"))


def assert_same(segments: list[Any], theirs: dict[str, Any], names: tuple[str, ...], clips: Any = ()) -> None:
    expected = before_the_end(theirs["segments"], SECONDS, clips)
    assert [{name: getattr(segment, name) for name in names} for segment in segments] == [
        {name: other[name] for name in names} for other in expected
    ]
    assert [segment.id for segment in segments] == list(range(len(segments)))
