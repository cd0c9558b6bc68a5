"""What a request reads from the pass over its decoder prompt, beside transformers; and that reading changes nothing."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from random_whisper import NO_TIMESTAMPS, SECONDS, START, save_random_whisper
from transformers import WhisperForConditionalGeneration

from transept import Engine, SamplingParams
from transept.core.request.prompt_probe import PromptProbe
from transept.errors import ParameterError

SLOT_BYTES = 2 * 2 * 64 * 4  # keys and values, layers, width, float32
NOISE = np.random.default_rng(0).normal(0.0, 0.3, size=(3, int(SECONDS * 16_000))).astype(np.float32)
PROMPT = [START, NO_TIMESTAMPS, 11, 5, 300, 42, 17, 8]
LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("random-whisper"))


def audio(index: int, tokens: list[int] | None = None) -> dict:
    prompt = {"multi_modal_data": {"audio": (NOISE[index], 16_000)}}
    return prompt if tokens is None else {**prompt, "prompt_tokens": tokens}


@pytest.mark.parametrize("block_size", [8, 64])
def test_logprobs_and_weights_equal_transformers(directory: Path, block_size: int) -> None:
    engine = Engine(directory, block_size=block_size, kv_cache_bytes=SLOT_BYTES << 12)
    reference = WhisperForConditionalGeneration.from_pretrained(directory, attn_implementation="eager").eval()
    pairs = tuple((position, PROMPT[position + 1]) for position in range(1, len(PROMPT) - 1))
    heads = tuple(product(range(LAYERS), range(HEADS)))[::-2]
    probe = PromptProbe(pairs, vocab_limit=400, cross_attention_heads=heads)
    reading = SamplingParams(temperature=0.0, max_tokens=3, prompt_probe=probe)
    plain = SamplingParams(temperature=0.0, max_tokens=3)
    engine.generate(audio(2))  # whose cross table lies before theirs
    prompts = [audio(0), audio(0, PROMPT), audio(1, PROMPT), audio(1)]
    outputs = engine.generate(prompts, [plain, reading, reading, plain])
    assert [output.prompt_probe is not None for output in outputs] == [False, True, True, False]
    for index, output in ((0, outputs[1]), (1, outputs[2])):
        features = engine.preprocess(audio(index)).encoder.features["input_features"][None]
        with torch.inference_mode():
            expected = reference(features, decoder_input_ids=torch.tensor([PROMPT]), output_attentions=True)
        logprobs = expected.logits[0, :, :400].log_softmax(dim=-1)
        read = output.prompt_probe
        assert read.logprobs == pytest.approx([float(logprobs[pair]) for pair in pairs], abs=1e-4)
        weights = np.stack([expected.cross_attentions[layer][0, head].numpy() for layer, head in heads])
        assert read.cross_attention.dtype == np.float32
        assert read.cross_attention.shape == weights.shape == (len(heads), len(PROMPT), 50)
        assert np.abs(read.cross_attention - weights).max() < 1e-5
        assert weights.max() > 0.2  # some heads look somewhere
        unread = engine.generate(audio(index, PROMPT), plain)[0]
        assert unread.outputs[0].token_ids == output.outputs[0].token_ids


def test_tokens_beyond_the_limit_share_the_probability(directory: Path) -> None:
    engine = Engine(directory, kv_cache_bytes=SLOT_BYTES << 12)
    reference = WhisperForConditionalGeneration.from_pretrained(directory).eval()
    added, prompt = [900, 1207], [*PROMPT[:4], 900, *PROMPT[4:]]
    pairs = tuple((position, prompt[position + 1]) for position in range(1, len(prompt) - 1))
    probe = PromptProbe(pairs, vocab_limit=400, beyond_limit=tuple(added))
    (output,) = engine.generate([audio(0, prompt)], SamplingParams(temperature=0.0, max_tokens=1, prompt_probe=probe))
    features = engine.preprocess(audio(0)).encoder.features["input_features"][None]
    with torch.inference_mode():
        logits = reference(features, decoder_input_ids=torch.tensor([prompt])).logits[0]
    shared = [*range(400), *added]
    logprobs = logits[:, shared].log_softmax(dim=-1)
    expected = [float(logprobs[position, shared.index(token)]) for position, token in pairs]
    assert output.prompt_probe.logprobs == pytest.approx(expected, abs=1e-4)


def test_what_does_not_exist_is_refused(directory: Path) -> None:
    engine = Engine(directory, kv_cache_bytes=SLOT_BYTES << 12)
    bad = {
        PromptProbe(logprobs=((8, 3),)): "position 8 of a decoder prompt with 8 tokens",
        PromptProbe(logprobs=((0, 400),), vocab_limit=400): "token id 400; its token ids go from 0 to 399",
        PromptProbe(vocab_limit=0): "vocab_limit=0",
        PromptProbe(vocab_limit=400, beyond_limit=(399,)): "beyond_limit holds 399; its token ids go from 400 to 2007",
        PromptProbe(beyond_limit=(5,)): "beyond_limit holds 5",
        PromptProbe(cross_attention_heads=((2, 0),)): "head 0 of layer 2; this decoder has 2 layers of 4 heads",
    }
    for probe, message in bad.items():
        with pytest.raises(ParameterError, match=message):
            engine.generate(audio(0, PROMPT), SamplingParams(prompt_probe=probe))
    assert not engine.has_unfinished_requests


def test_equal_inputs_are_encoded_once(directory: Path) -> None:
    engine = Engine(directory, block_size=16, kv_cache_bytes=SLOT_BYTES * 16 * 14, max_num_seqs=3)
    greedy = SamplingParams(temperature=0.0, max_tokens=10)
    first = engine.generate([audio(0), audio(0, PROMPT), audio(0)], greedy)
    assert (engine.num_encoder_runs, engine.num_encoder_hits) == (1, 2)
    assert first[0].outputs[0].token_ids == first[2].outputs[0].token_ids
    for _ in range(3):  # others come and go; every table is 4 of the 14 blocks
        engine.generate([audio(1), audio(0)], greedy)
    assert (engine.num_encoder_runs, engine.num_encoder_hits) == (2, 7)
    long = SamplingParams(temperature=0.0, max_tokens=40)
    engine.generate(audio(2), long)  # three tables and its tokens are too much
    assert engine.num_encoder_runs == 3
    again = engine.generate(audio(0), greedy)
    assert again[0].outputs[0].token_ids == first[0].outputs[0].token_ids
    engine.generate(audio(1), greedy)
    assert engine.num_encoder_runs == 4  # the one unused for longest had gone
    engine.block_manager.check_integrity()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
