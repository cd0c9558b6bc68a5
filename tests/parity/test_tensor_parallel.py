"""The same tokens, whatever the number of processes: one row a model, a number of stages and of ranks in each.

Log probabilities of the most likely tokens are within 1e-4. The requests have drafts, right and wrong ones. One engine
in this process is the reference; that it is right, the other files of this folder show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drafted import drafted
from installed_plugin import installed
from random_florence import FLORENCE_ROWS
from random_pix2struct import PIX2STRUCT_ROWS
from random_trocr import ROWS as TROCR_ROWS
from text_models import ROWS
from transformers import (
    CanaryConfig,
    CanaryForConditionalGeneration,
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    ParakeetFeatureExtractor,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
)
from whisper_reference import speech_windows

from transept import Engine, RequestOutput, SamplingParams, Transcriber
from transept.core.execution.kv_cache import block_bytes
from transept.core.request.pooling import Pooling
from transept.testing import Parity

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLERANCE = 1e-4
TIE = 1e-6  # between scores
BLOCK_SIZE = 16
GREEDY = SamplingParams(temperature=0.0, logprobs=5, max_tokens=60, ignore_eos=True)
BEAMS = SamplingParams(num_beams=4, num_return_sequences=4, max_tokens=24)
SAMPLES = SamplingParams(temperature=0.8, seed=3, n=2, max_tokens=30, ignore_eos=True)
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def example_plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folders = [EXAMPLES / f"transept-{name}" for name in ("marian", "t5gemma")]
    with installed(tmp_path_factory, *folders):
        yield


@dataclass
class Case:
    """A checkpoint, what it is asked, and the engine of one process."""

    directory: Path
    prompts: list[Any]
    reference: Engine
    num_kinds: int = 2  # of requests that each prompt gets

    def requests(self) -> list[tuple[Any, SamplingParams]]:
        """Of all kinds, so that every batch is mixed."""
        kinds = (GREEDY, BEAMS, SAMPLES)
        return [
            (prompt, kinds[(index + kind) % 3])
            for kind in range(self.num_kinds)
            for index, prompt in enumerate(self.prompts)
        ]

    def few_bytes(self) -> int:
        """Cache for a search, and for the beginning of another request beside it."""
        shape = self.reference.shape
        source = max(self.reference.preprocess(prompt).encoder.num_tokens for prompt in self.prompts)
        beams, cross = 4 * -(-(8 + 24) // BLOCK_SIZE), -(-source // BLOCK_SIZE)
        return (2 * cross + beams + 1) * block_bytes(shape, BLOCK_SIZE, torch.float32)


IMAGE_ROWS = TROCR_ROWS | FLORENCE_ROWS | PIX2STRUCT_ROWS


def text_case(name: str) -> Callable[[Any], Case]:
    def make(request: pytest.FixtureRequest) -> Case:
        if name.startswith("opus-mt"):
            request.getfixturevalue("example_plugins")
        directory = request.getfixturevalue("tmp_path_factory").mktemp("checkpoint")
        parity = ROWS[name].parity(directory)
        prompts = [{"prompt_tokens": tokens} for tokens in parity.prompts[:4]]
        return Case(directory, prompts, parity.engine)

    return make


def image_case(name: str) -> Callable[[Any], Case]:
    def make(request: pytest.FixtureRequest) -> Case:
        directory = request.getfixturevalue("tmp_path_factory").mktemp("checkpoint")
        parity = IMAGE_ROWS[name].parity(directory)
        return Case(directory, [given.prompt for given in parity.inputs], parity.engine)

    return make


def speech_case(model: str, every: bool = False) -> Callable[[Any], Case]:
    def make(request: pytest.FixtureRequest) -> Case:
        directory = request.getfixturevalue(f"{model}_dir")
        windows = speech_windows(request.getfixturevalue("speech_dir"))
        few = windows if every else windows[:: len(windows) // 3][:4]
        prompts = [{"multi_modal_data": {"audio": (window, 16_000)}} for window in few]
        return Case(directory, prompts, Engine(directory, dtype="float32"), 3 if every else 2)

    return make


def moonshine_case(request: pytest.FixtureRequest) -> Case:
    torch.manual_seed(0)
    config = MoonshineConfig(
        vocab_size=321,
        hidden_size=48,
        intermediate_size=64,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=150,
        initializer_range=0.2,
        pad_token_id=2,
    )
    generator = np.random.default_rng(0)
    sounds = [generator.normal(0, 0.1, length).astype(np.float32) for length in (13_000, 3_000, 25_000)]
    inputs = [({"audio": (sound, 16_000)}, {"input_values": torch.from_numpy(sound)[None]}) for sound in sounds]
    directory = request.getfixturevalue("tmp_path_factory").mktemp("moonshine")
    parity = Parity(MoonshineForConditionalGeneration(config), directory, inputs=inputs)
    return Case(directory, [given.prompt for given in parity.inputs], parity.engine)


def canary_case(request: pytest.FixtureRequest) -> Case:
    """A Conformer whose channels and keys of distances are split, and a bias of the head."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    encoder = {"model_type": "parakeet_encoder", "num_mel_bins": 24, "subsampling_conv_channels": 8, **sizes}
    decoder = {"model_type": "canary_decoder", "num_key_value_heads": 4, "head_dim": 12, "vocab_size": 321, **sizes}
    config = CanaryConfig(
        encoder_config=encoder | {"initializer_range": 0.2},
        decoder_config=decoder | {"max_position_embeddings": 150},
        vocab_size=321,
        initializer_range=0.3,
    )
    extract, generator = ParakeetFeatureExtractor(feature_size=24), np.random.default_rng(0)
    sounds = [generator.normal(0, 0.1, length).astype(np.float32) for length in (33_000, 3_000, 61_000)]
    inputs = [
        ({"audio": (sound, 16_000)}, dict(extract(sound, sampling_rate=16_000, return_tensors="pt")))
        for sound in sounds
    ]
    directory = request.getfixturevalue("tmp_path_factory").mktemp("canary")
    parity = Parity(CanaryForConditionalGeneration(config).eval(), directory, inputs=inputs)
    return Case(directory, [given.prompt for given in parity.inputs], parity.engine)


def t5gemma_case(request: pytest.FixtureRequest) -> Case:
    """Sides of different widths, keys that are shared, a window in one layer of two."""
    request.getfixturevalue("example_plugins")
    side = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "max_position_embeddings": 160,
        "sliding_window": 12,
        "attn_logit_softcapping": 3.0,
        "initializer_range": 0.15,
    }
    torch.manual_seed(0)
    config = T5GemmaConfig(encoder={**side, "hidden_size": 48}, decoder=side, vocab_size=320)
    directory = request.getfixturevalue("tmp_path_factory").mktemp("t5gemma")
    parity = Parity(T5GemmaForConditionalGeneration(config), directory)
    return Case(directory, [{"prompt_tokens": tokens} for tokens in parity.prompts[:4]], parity.engine)


TENSOR_PARALLEL = {
    ("tiny.en", 2): (speech_case("tiny_en"), ()),
    ("base", 2): (speech_case("base"), SLOW),
    ("base", 4): (speech_case("base"), SLOW),
    ("bart-base", 4): (text_case("bart-base"), SLOW),
    ("t5 1.1", 3): (text_case("t5 1.1"), ()),
    ("moonshine", 2): (moonshine_case, ()),
    ("canary", 2): (canary_case, ()),
    ("canary", 4): (canary_case, SLOW),
    ("t5gemma", 2): (t5gemma_case, SLOW),
    ("opus-mt, two vocabularies", 2): (text_case("opus-mt, two vocabularies"), SLOW),
    ("tiny.en, every window", 2): (speech_case("tiny_en", every=True), SLOW),
    ("tiny.en, every window", 3): (speech_case("tiny_en", every=True), SLOW),
    ("base, every window", 2): (speech_case("base", every=True), SLOW),
    ("base, every window", 4): (speech_case("base", every=True), SLOW),
    ("moonshine", 4): (moonshine_case, SLOW),
    ("trocr-base", 2): (image_case("trocr-base"), SLOW),
    ("florence-2", 2): (image_case("florence-2"), SLOW),
    ("pix2struct", 2): (image_case("pix2struct"), SLOW),
    **{
        (name, size): (text_case(name), SLOW)
        for name in ROWS
        for size in ((3,) if "t5" in name else (2, 4))
        if (name, size) not in (("bart-base", 4), ("t5 1.1", 3), ("opus-mt, two vocabularies", 2))
    },
}


PIPELINES = {
    ("tiny.en", 1, 2): (speech_case("tiny_en"), ()),
    ("bart-base", 2, 2): (text_case("bart-base"), SLOW),
    ("tiny.en, every window", 1, 2): (speech_case("tiny_en", every=True), SLOW),
    ("tiny.en, every window", 1, 3): (speech_case("tiny_en", every=True), SLOW),
    ("tiny.en, every window", 2, 2): (speech_case("tiny_en", every=True), SLOW),
    ("base, every window", 1, 2): (speech_case("base", every=True), SLOW),
    ("base, every window", 1, 3): (speech_case("base", every=True), SLOW),
    ("base, every window", 2, 2): (speech_case("base", every=True), SLOW),
    ("base, every window", 4, 2): (speech_case("base", every=True), SLOW),
    ("moonshine", 1, 2): (moonshine_case, SLOW),
    ("canary", 2, 2): (canary_case, SLOW),
    ("t5gemma", 1, 2): (t5gemma_case, SLOW),
    ("moonshine", 4, 2): (moonshine_case, SLOW),
    ("trocr-small", 1, 2): (image_case("trocr-small"), SLOW),
    ("florence-2", 1, 2): (image_case("florence-2"), SLOW),
    ("pix2struct", 1, 2): (image_case("pix2struct"), SLOW),
    ("projected, wide images", 2, 2): (image_case("projected, wide images"), SLOW),
    **{
        (name, size, 2): (text_case(name), SLOW)
        for name in ROWS
        for size in ((1, 3) if "t5" in name else (1, 2, 4))
        if (name, size) != ("bart-base", 2) and not name.startswith("long-t5")  # transformers' encoder has no stages
    },
}
CASES = {(name, size, 1): case for (name, size), case in TENSOR_PARALLEL.items()} | PIPELINES


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("make", "size", "stages"),
    [pytest.param(make, size, stages, marks=marks) for (_, size, stages), (make, marks) in CASES.items()],
    ids=[f"{name}, {stages} x {size} ranks" for name, size, stages in CASES],
)
def test_tokens_of_several_processes_are_those_of_one(
    make: Callable[[Any], Case], size: int, stages: int, request: pytest.FixtureRequest
) -> None:
    case = make(request)
    requests = case.requests()
    expected = case.reference.generate(*map(list, zip(*requests, strict=True)))
    case.reference.add_request("encoded", requests[0][0], pooling=Pooling("none"))
    (encoded,) = case.reference.step()
    engine = Engine(
        case.directory,
        dtype="float32",
        device="cpu",
        tensor_parallel_size=size,
        pipeline_parallel_size=stages,
        block_size=BLOCK_SIZE,
        kv_cache_bytes=case.few_bytes(),
    )
    try:
        engine.add_request("encoded", requests[0][0], pooling=Pooling("none"))
        rng, size_of_vocabulary = random.Random(size), case.reference.shape.vocab_size
        outputs, preempted = run(
            engine,
            [
                (prompt, drafted(params, output, rng, size_of_vocabulary))
                for (prompt, params), output in zip(requests, expected, strict=True)
            ],
            encoded,
        )
        assert preempted  # so that the comparison is of requests that were computed anew, too
        for ours, theirs in zip(outputs, expected, strict=True):
            assert_same(ours, theirs)
        alone = [engine.generate(*each)[0] for each in requests[:2]]  # nothing is preempted, and nothing is beside it
        for ours, theirs in zip(alone, expected, strict=False):
            assert_same(ours, theirs)
    finally:
        engine.close()


def run(
    engine: Engine, requests: list[tuple[Any, SamplingParams]], encoded: RequestOutput
) -> tuple[list[RequestOutput], bool]:
    """Outputs in order, and whether a request that had begun was preempted. encoded: of the request that is added."""
    finished: dict[str, RequestOutput] = {}
    preempted = False
    for index, (prompt, params) in enumerate(requests):
        engine.add_request(str(index), prompt, params)
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.block_manager.check_integrity()
        preempted = preempted or any(group.seqs[0].output_token_ids for group in engine.scheduler.queue)
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
    np.testing.assert_allclose(finished["encoded"].embedding, encoded.embedding, rtol=1e-3, atol=TOLERANCE)
    return [finished[str(index)] for index in range(len(requests))], preempted


def assert_same(ours: RequestOutput, theirs: RequestOutput) -> None:
    assert ours.error is None
    for one, other in zip(ours.outputs, theirs.outputs, strict=True):
        if one.token_ids != other.token_ids:  # hypotheses of a beam search that tie may change places
            (place,) = (each for each in theirs.outputs if each.token_ids == one.token_ids)
            assert place.score == pytest.approx(other.score, abs=TIE)
            other = place
        assert one.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=60 * TOLERANCE)
        for mine, expected in zip(one.logprobs or (), other.logprobs or (), strict=True):
            shared = mine.keys() & expected.keys()
            assert len(shared) >= 4  # the fifth may tie
            assert all(mine[token] == pytest.approx(expected[token], abs=TOLERANCE) for token in shared)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 1), pytest.param((1, 2), marks=SLOW), pytest.param((2, 2), marks=SLOW)])
def test_words_are_timed_by_heads_of_all_ranks(tiny_en_dir: Path, speech_dir: Path, sizes: tuple[int, int]) -> None:
    """Cross-attention weights of some heads come from the ranks that have these heads, and their layers."""
    file = speech_dir / "librivox" / "austen-0870.flac"
    options: dict[str, Any] = {"word_timestamps": True, "temperature": 0.0}
    several: dict[str, Any] = {"tensor_parallel_size": sizes[0], "pipeline_parallel_size": sizes[1]}
    words = [
        [(word.word, word.start, word.end) for segment in transcription.segments for word in segment.words]
        for transcription in (
            transcribe(Transcriber(tiny_en_dir), file, options),
            transcribe(Transcriber(tiny_en_dir, **several), file, options),
        )
    ]
    assert words[0] == words[1]
    assert len(words[0]) > 10


def transcribe(transcriber: Transcriber, file: Path, options: dict[str, Any]) -> Any:
    try:
        return transcriber.transcribe(file, **options)
    finally:
        transcriber.engine.close()


@SLOW
def test_int8_weights_come_close(tiny_en_dir: Path, speech_dir: Path) -> None:
    """Each rank rounds its part of a row by that part's own scale: the numbers differ, and the words hardly."""
    prompt = {"multi_modal_data": {"audio": speech_dir / "librivox" / "austen-0870.flac"}}
    texts = []
    for size in (1, 2):
        engine = Engine(tiny_en_dir, quantization="int8", tensor_parallel_size=size)
        texts.append(engine.generate(prompt, replace(GREEDY, logprobs=None))[0].outputs[0].text)
        engine.close()
    assert texts[0].lower().split()[:8] == texts[1].lower().split()[:8]
