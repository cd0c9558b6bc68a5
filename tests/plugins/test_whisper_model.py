"""Whisper against transformers: the model alone, and steps of the worker over the paged cache."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers import WhisperConfig

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.model_description import describe_model
from transept.core.config import EngineConfig
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.worker import Worker
from transept.core.parallel.group import ParallelGroup
from transept.core.request.inputs import EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken
from transept.core.scheduling.step import BlockMoves, Encode, SequenceData, SequenceGroupMetadata, StepInput
from transept.plugins.whisper.model import WhisperForConditionalGeneration
from transept.plugins.whisper.weights import HUGGINGFACE

TOLERANCE = 1e-4
VOCABULARY = 97
# By mel bins and encoder length in tokens. Two windows of 60 tokens are encoded together, two of 1500 one by one.
CONFIGS = {"80 mels": (80, 60), "128 mels, 30 s": (128, 1500)}
PARAMS = SamplingParams(
    temperature=0.0, max_tokens=30, logprobs=VOCABULARY, suppress_tokens=(), begin_suppress_tokens=()
)


def tiny_config(mels: int, source_positions: int) -> WhisperConfig:
    return WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=mels,
        d_model=64,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=2,
        encoder_ffn_dim=96,
        decoder_ffn_dim=80,
        max_source_positions=source_positions,
        max_target_positions=40,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )


@dataclass
class Case:
    """A random checkpoint and its reference model."""

    path: Path
    reference: Any

    @property
    def config(self) -> WhisperConfig:
        return self.reference.config

    def features(self, seed: int) -> Tensor:
        """One log-mel window of noise, [mels, frames]."""
        frames = 2 * self.config.max_source_positions
        return torch.randn(self.config.num_mel_bins, frames, generator=torch.Generator().manual_seed(seed))

    @torch.inference_mode()
    def expected_logprobs(self, features: Tensor, token_ids: list[int]) -> Tensor:
        """The reference's log probabilities after each token: [tokens, vocabulary]."""
        logits = self.reference(input_features=features[None], decoder_input_ids=torch.tensor([token_ids])).logits
        return logits[0].log_softmax(dim=-1)


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=CONFIGS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.manual_seed(0)
    reference = transformers.WhisperForConditionalGeneration(tiny_config(*request.param)).eval()
    with torch.no_grad():  # far from the initial ones, under which attention is nearly uniform
        for name, parameter in reference.named_parameters():
            parameter.normal_(0.0 if "layer_norm.weight" not in name else 1.0, 0.15)
    path = tmp_path_factory.mktemp("whisper")
    reference.save_pretrained(path)
    return Case(path, reference)


def make_context() -> LayerContext:
    return LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())


def load(case: Case) -> WhisperForConditionalGeneration:
    model = WhisperForConditionalGeneration(case.config, make_context()).eval().requires_grad_(False)
    load_weights(model, open_checkpoint(case.path), HUGGINGFACE)
    return model


# --- the model alone ---


@pytest.mark.parametrize("windows", [1, 3])
@torch.inference_mode()
def test_encoder_equals_transformers(case: Case, windows: int) -> None:
    features = [case.features(seed) for seed in range(windows)]
    model = load(case)
    metadata = AttentionMetadata.for_encoder([case.config.max_source_positions] * windows)
    model.context.attention_backend.plan(metadata)
    hidden = model.encode(None, None, metadata, input_features=features)
    expected = case.reference.model.encoder(torch.stack(features)).last_hidden_state
    assert hidden.shape == (windows * case.config.max_source_positions, case.config.d_model)
    torch.testing.assert_close(hidden.view_as(expected), expected, rtol=TOLERANCE, atol=TOLERANCE)


@torch.inference_mode()
def test_decoder_logits_equal_transformers(case: Case) -> None:
    """Two prompts of different lengths in one batch, then both token by token, over blocks in any order."""
    model, block_size, length = load(case), 5, case.config.max_source_positions
    features = [case.features(10), case.features(11)]
    tokens = [[3, 5, 7, 11, 13, 17, 19, 23, 29], [3, 90, 80, 70, 60, 50, 40, 30, 20, 10, 9, 8]]
    done = [4, 7]  # prompt lengths
    num_blocks = 2 * (-(-length // block_size) + 4)
    free = list(range(num_blocks))
    random.Random(0).shuffle(free)
    cross_tables = [[free.pop() for _ in range(-(-length // block_size))] for _ in tokens]
    self_tables = [[free.pop() for _ in range(3)] for _ in tokens]
    shape = (2, num_blocks, block_size, case.config.decoder_attention_heads, model.shape(case.config).head_dim)
    caches = [torch.full(shape, float("nan")) for _ in range(case.config.decoder_layers)]
    expected = [
        case.reference(input_features=f[None], decoder_input_ids=torch.tensor([t])).logits[0]
        for f, t in zip(features, tokens, strict=True)
    ]

    encoder_metadata = AttentionMetadata.for_encoder([length, length])
    model.context.attention_backend.plan(encoder_metadata)
    hidden = model.encode(None, None, encoder_metadata, input_features=features)
    slots = torch.from_numpy(np.concatenate([slots_of(table, length, block_size) for table in cross_tables]))
    for attention, cache in zip(model.cross_attentions(), caches, strict=True):
        model.context.attention_backend.write(*attention.keys_and_values(hidden), cache, slots)
    first = [0, 0]
    while done[0] <= len(tokens[0]):
        metadata = AttentionMetadata(
            block_size=block_size,
            query_start_loc=[0, done[0] - first[0], done[0] - first[0] + done[1] - first[1]],
            seq_lens=list(done),
            slot_mapping=torch.tensor(
                [
                    table[position // block_size] * block_size + position % block_size
                    for table, start, end in zip(self_tables, first, done, strict=True)
                    for position in range(start, end)
                ]
            ),
            block_tables=self_tables,
            cross_seq_lens=[length, length],
            cross_block_tables=cross_tables,
        )
        metadata.cross_query_start_loc = metadata.query_start_loc
        model.context.attention_backend.plan(metadata)
        spans = list(zip(tokens, first, done, strict=True))
        input_ids = torch.tensor([token for row, start, end in spans for token in row[start:end]])
        positions = torch.tensor([position for _, start, end in spans for position in range(start, end)])
        logits = model.compute_logits(model.decode(input_ids, positions, caches, metadata))
        wanted = torch.cat([rows[start:end] for rows, start, end in zip(expected, first, done, strict=True)])
        torch.testing.assert_close(logits, wanted, rtol=TOLERANCE, atol=TOLERANCE)
        first, done = list(done), [end + 1 for end in done]


SIZES = {  # mel bins, vocabulary, d_model, heads, encoder layers, decoder layers, parameters in millions
    "tiny.en": (80, 51864, 384, 6, 4, 4, 37.76),
    "tiny": (80, 51865, 384, 6, 4, 4, 37.76),
    "base.en": (80, 51864, 512, 8, 6, 6, 72.59),
    "base": (80, 51865, 512, 8, 6, 6, 72.59),
    "small.en": (80, 51864, 768, 12, 12, 12, 241.73),
    "small": (80, 51865, 768, 12, 12, 12, 241.73),
    "medium.en": (80, 51864, 1024, 16, 24, 24, 763.86),
    "medium": (80, 51865, 1024, 16, 24, 24, 763.86),
    "large-v2": (80, 51865, 1280, 20, 32, 32, 1543.30),
    "large-v3": (128, 51866, 1280, 20, 32, 32, 1543.49),
    "large-v3-turbo": (128, 51866, 1280, 20, 32, 4, 808.88),
}


@pytest.mark.parametrize("size", SIZES)
def test_every_released_size_has_the_parameters_of_transformers(size: str) -> None:
    mels, vocabulary, d_model, heads, encoder_layers, decoder_layers, millions = SIZES[size]
    config = WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=mels,
        d_model=d_model,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * d_model,
        decoder_ffn_dim=4 * d_model,
    )
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config, make_context())
        reference = transformers.WhisperForConditionalGeneration(config)
    assert all(parameter.is_meta for parameter in model.parameters())
    # a stacked projection has a bias for K, which is zero and which the checkpoint leaves out
    zeros = d_model * (encoder_layers + 2 * decoder_layers)
    count = sum(parameter.numel() for parameter in model.parameters()) - zeros
    assert count == sum(parameter.numel() for parameter in reference.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=0.01)
    shape = model.shape(config)
    assert (shape.num_decoder_layers, shape.num_kv_heads, shape.head_dim) == (decoder_layers, heads, 64)
    assert not shape.encoder_takes_text


# --- the worker: requests that come and go ---


@dataclass
class Request:
    """A request whose tokens are given, not drawn: a step takes as many of `sequences` as it is told."""

    features: Tensor
    prompt: list[int]
    sequences: list[list[int]]  # output tokens of each sample, all of one length
    cross_table: list[int] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)  # one a sample

    def metadata(self, index: int, num_outputs: int, is_prefill: bool) -> SequenceGroupMetadata:
        seq_ids = [100 * index + sample for sample in range(len(self.sequences))]
        return SequenceGroupMetadata(
            request_id=f"request {index}",
            is_prefill=is_prefill,
            encode_id=index if is_prefill else None,
            num_encoder_tokens=self.features.shape[1] // 2,
            seq_data={
                seq_id: SequenceData(self.prompt, output[:num_outputs], sample)
                for sample, (seq_id, output) in enumerate(zip(seq_ids, self.sequences, strict=True))
            },
            sampling_params=PARAMS,
            num_samples=1,
            block_tables=dict(zip(seq_ids, self.tables, strict=True)),
            cross_block_table=self.cross_table,
        )

    def encode(self, index: int) -> Encode:
        inputs = EncoderInputs(None, [], self.features.shape[1] // 2, {"input_features": self.features})
        return Encode(index, inputs, self.cross_table)


class House:
    """A worker with a pool of blocks in random order."""

    def __init__(self, case: Case, block_size: int) -> None:
        config = EngineConfig(
            model=str(case.path),
            device="cpu",
            dtype="float32",
            block_size=block_size,
            kv_cache_bytes=16 << 20,
            swap_bytes=8 << 20,
        )
        described = describe_model(case.path, str(case.path), None)
        self.worker = Worker(WorkerConfig(case.path, config, config.scheduler_config(None, None)), described)
        for layer in self.worker.cache.layers + self.worker.cache.host_layers:
            layer.fill_(float("nan"))
        self.block_size = block_size
        self.free = list(range(self.worker.num_device_blocks))
        random.Random(0).shuffle(self.free)

    def take(self, num_tokens: int) -> list[int]:
        return [self.free.pop() for _ in range(-(-num_tokens // self.block_size))]

    def admit(self, request: Request) -> Request:
        """The request with blocks of its own for its whole length."""
        request = copy.copy(request)
        request.cross_table = self.take(request.features.shape[1] // 2)
        length = len(request.prompt) + len(request.sequences[0])
        request.tables = [self.take(length) for _ in request.sequences]
        return request


def logprobs_of(tokens: list[SampledToken]) -> Tensor:
    """[vocabulary] of the one token drawn."""
    (token,) = tokens
    assert token.top is not None
    return torch.tensor([token.top[token_id] for token_id in range(VOCABULARY)])


def make_requests(case: Case) -> list[Request]:
    generator = random.Random(7)

    def tokens(count: int) -> list[int]:
        return [generator.randrange(4, VOCABULARY) for _ in range(count)]

    return [
        Request(case.features(20), [3, *tokens(4)], [tokens(6)]),
        Request(case.features(21), [3], [tokens(6)]),
        Request(case.features(22), [3, *tokens(11)], [tokens(6), tokens(6)]),
    ]


# Who takes part in each step, in order: (request, output tokens so far, prefill). A request that is a prefill with
# output tokens was preempted and is recomputed.
STEPS = {
    "alone": [[(0, 0, True)], [(0, 1, False)], [(0, 2, False)], [(0, 3, False)]],
    "together": [
        [(0, 0, True), (1, 0, True), (2, 0, True)],
        [(0, 1, False), (1, 1, False), (2, 1, False)],
        [(0, 2, False), (1, 2, False), (2, 2, False)],
    ],
    "one after the other": [
        [(0, 0, True)],
        [(0, 1, False), (1, 0, True)],
        [(0, 2, False), (1, 1, False), (2, 0, True)],
        [(0, 3, False), (1, 2, False), (2, 1, False)],
    ],
    "the prefill in front": [
        [(1, 0, True)],
        [(0, 0, True), (1, 1, False)],
        [(2, 0, True), (0, 1, False), (1, 2, False)],
        [(2, 1, False), (0, 2, False), (1, 3, False)],
    ],
    "prefills around a running request": [
        [(1, 0, True)],
        [(0, 0, True), (1, 1, False), (2, 0, True)],
        [(0, 1, False), (1, 2, False), (2, 1, False)],
    ],
    "recomputed": [
        [(0, 0, True), (2, 0, True)],
        [(0, 1, False), (2, 1, False)],
        [(0, 2, True), (2, 2, True), (1, 0, True)],
        [(0, 3, False), (2, 3, False), (1, 1, False)],
    ],
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("block_size", [7, 64])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_steps_equal_transformers_whoever_shares_them(
    case: Case, steps: list[list[tuple[int, int, bool]]], block_size: int
) -> None:
    house = House(case, block_size)
    requests = [house.admit(request) for request in make_requests(case)]
    expected = {
        100 * index + sample: case.expected_logprobs(request.features, request.prompt + output)[
            len(request.prompt) - 1 :
        ]
        for index, request in enumerate(requests)
        for sample, output in enumerate(request.sequences)
    }
    for step in steps:
        metadata = [requests[index].metadata(index, outputs, prefill) for index, outputs, prefill in step]
        encodes = [requests[index].encode(index) for index, _, prefill in step if prefill]
        sampled = house.worker.runner.issue(StepInput(encodes, metadata)).collect().sampled
        assert sampled.keys() == {seq_id for group in metadata for seq_id in group.seq_data}
        for index, outputs, _ in step:
            for sample in range(len(requests[index].sequences)):
                seq_id = 100 * index + sample
                torch.testing.assert_close(
                    logprobs_of(sampled[seq_id]), expected[seq_id][outputs], rtol=TOLERANCE, atol=TOLERANCE
                )


def test_forked_samples_share_blocks_until_they_differ(case: Case) -> None:
    """One sequence is prefilled; its samples share full blocks, and the half-filled one is copied for the second."""
    house = House(case, block_size=4)
    request = make_requests(case)[2]
    request.prompt = request.prompt[:6]  # one full block and a half
    parent = house.admit(Request(request.features, request.prompt, request.sequences[:1]))
    house.worker.runner.issue(StepInput([parent.encode(0)], [parent.metadata(0, 0, True)]))
    (table,) = parent.tables
    twin = [table[0], *house.take(len(request.prompt) - 4 + len(request.sequences[1]))]
    forked = Request(request.features, request.prompt, request.sequences, parent.cross_table, [table, twin])
    expected = [case.expected_logprobs(request.features, request.prompt + output) for output in request.sequences]
    for outputs in range(1, 6):
        copies = [(table[1], twin[1])] if outputs == 1 else []
        step = StepInput([], [forked.metadata(0, outputs, False)], BlockMoves(copy=copies))
        sampled = house.worker.runner.issue(step).collect().sampled
        for sample in (0, 1):
            wanted = expected[sample][len(request.prompt) - 1 + outputs]
            torch.testing.assert_close(logprobs_of(sampled[sample]), wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_request_goes_on_after_it_was_swapped_out_and_in(case: Case) -> None:
    house = House(case, block_size=16)
    request = house.admit(make_requests(case)[0])
    (table,) = request.tables
    expected = case.expected_logprobs(request.features, request.prompt + request.sequences[0])
    house.worker.runner.issue(StepInput([request.encode(0)], [request.metadata(0, 0, True)]))
    blocks = request.cross_table + table
    out = [(block, host) for host, block in enumerate(blocks)]
    house.worker.runner.issue(StepInput(moves=BlockMoves(swap_out=out)))
    for layer in house.worker.cache.layers:
        layer[:, blocks] = float("nan")
    elsewhere = [house.free.pop() for _ in blocks]
    request.cross_table, request.tables = elsewhere[: -len(table)], [elsewhere[-len(table) :]]
    back = list(enumerate(elsewhere))
    step = StepInput([], [request.metadata(0, 1, False)], BlockMoves(swap_in=back))
    sampled = house.worker.runner.issue(step).collect().sampled
    torch.testing.assert_close(logprobs_of(sampled[0]), expected[len(request.prompt)], rtol=TOLERANCE, atol=TOLERANCE)
