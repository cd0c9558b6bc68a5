"""T5, mT5 and UMT5 against transformers on small random weights: alone, in one batch, and with too little memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from transept import Engine, SamplingParams
from transept.errors import CheckpointError

VOCABULARY = 320
SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "d_kv": 8,  # 3 heads of 8: not d_model
    "d_ff": 96,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "decoder_start_token_id": 0,
}
V1_0 = T5Config(**SIZES)
V1_1 = T5Config(**SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
FEW_BUCKETS = {"relative_attention_num_buckets": 12, "relative_attention_max_distance": 30}


@dataclass(frozen=True)
class Configuration:
    """One row of the table.

    own_head: the head's matrix is not the embedding's. embedding: the name under which the checkpoint holds that.
    factor: the true logits by those of transformers, where they differ.
    """

    model_class: type
    config: T5Config | MT5Config | UMT5Config
    own_head: bool = False
    embedding: str = "shared.weight"
    factor: float = 1.0


CONFIGURATIONS = {
    "t5": Configuration(T5ForConditionalGeneration, V1_0),
    "t5, gated SiLU, few buckets": Configuration(
        T5ForConditionalGeneration, T5Config(**SIZES, **FEW_BUCKETS, feed_forward_proj="gated-silu")
    ),
    "t5 1.1": Configuration(T5ForConditionalGeneration, V1_1, own_head=True),
    "t5 1.1, tied": Configuration(T5ForConditionalGeneration, V1_1),
    "madlad400": Configuration(
        T5ForConditionalGeneration, V1_1, own_head=True, embedding="decoder.embed_tokens.weight"
    ),
    "mt5": Configuration(MT5ForConditionalGeneration, MT5Config(**SIZES), own_head=True),
    "mt5, tied": Configuration(MT5ForConditionalGeneration, MT5Config(**SIZES)),
    # transformers 5 scales a head of its own too, which neither training nor transformers 4 does
    "umt5": Configuration(
        UMT5ForConditionalGeneration, UMT5Config(**SIZES), own_head=True, factor=SIZES["d_model"] ** 0.5
    ),
    "umt5, tied": Configuration(UMT5ForConditionalGeneration, UMT5Config(**SIZES)),
}
NEW_TOKENS = 40  # beyond the 16 distances that have a bucket of their own in a decoder
PARAMS = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
LENGTHS = (33, 7, 1, 64, 150)
# Standard deviations by parts of names, else 0.4: outputs that are neither nearly tied nor one token over and over.
WIDTHS = {"layer_norm": 0.3, "relative_attention_bias": 2.0, "shared": 0.3, "lm_head": 1.0, ".wo.": 0.1}
SLOT_BYTES = 2 * 3 * 3 * 8 * 4  # keys and values, layers, heads, width, float32


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny, so every operation is slower on more
    yield
    torch.set_num_threads(threads)


@dataclass
class Case:
    """A random checkpoint, encoder prompts, and what transformers makes of them."""

    directory: Path
    reference: torch.nn.Module
    prompts: list[list[int]]
    tokens: list[list[int]]
    logprobs: list[float]  # of all tokens together


def save_random(configuration: Configuration, directory: Path) -> torch.nn.Module:
    """Weights far from the initial ones, under which attention is nearly uniform and the relative bias weak."""
    torch.manual_seed(0)
    model = configuration.model_class(configuration.config).eval()
    if configuration.own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "layer_norm" in name else 0.0
            parameter.normal_(mean, next((width for part, width in WIDTHS.items() if part in name), 0.4))
    model.save_pretrained(directory)
    if configuration.embedding != "shared.weight":
        file = directory / "model.safetensors"
        weights = load_file(file)
        weights[configuration.embedding] = weights.pop("shared.weight")
        save_file(weights, file, metadata={"format": "pt"})
    return model


def greedy(model: torch.nn.Module, prompt: list[int], factor: float) -> tuple[list[int], Tensor]:
    """transformers' tokens, and their log probabilities in all."""
    model.generation_config.eos_token_id = None
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        num_beams=1,
        max_new_tokens=NEW_TOKENS,
        use_cache=False,  # theirs fails where the decoder has more layers than the encoder
        output_logits=True,
        return_dict_in_generate=True,
    )
    logits = factor * torch.cat(output.logits)  # [tokens, vocabulary]
    top = logits.topk(2).values
    assert (top[:, 0] - top[:, 1]).min() > 1e-4  # no near ties: rounding makes 1e-6
    tokens = output.sequences[0, 1:]
    return tokens.tolist(), logits.log_softmax(dim=-1)[torch.arange(NEW_TOKENS), tokens].sum()


@pytest.fixture(scope="module", params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory = tmp_path_factory.mktemp("t5")
    reference = save_random(request.param, directory)
    prompts = [torch.randint(2, VOCABULARY, (length,)).tolist() for length in LENGTHS]
    expected = [greedy(reference, prompt, request.param.factor) for prompt in prompts]
    tokens, logprobs = zip(*expected, strict=True)
    assert len(set(chain.from_iterable(tokens))) > 40
    assert len({round(value, 2) for value in map(float, logprobs)}) == len(prompts)
    return Case(directory, reference, prompts, list(tokens), [float(value) for value in logprobs])


def test_alone(case: Case) -> None:
    engine = Engine(case.directory)
    outputs = [engine.generate({"prompt_tokens": prompt}, PARAMS)[0] for prompt in case.prompts]
    assert [output.outputs[0].token_ids for output in outputs] == case.tokens
    assert [output.outputs[0].cumulative_logprob for output in outputs] == pytest.approx(case.logprobs, abs=5e-3)
    assert [output.encoder_prompt_token_ids for output in outputs] == case.prompts
    assert all(output.prompt_token_ids == [0] for output in outputs)


def test_in_one_batch(case: Case) -> None:
    outputs = Engine(case.directory).generate([{"prompt_tokens": prompt} for prompt in case.prompts], PARAMS)
    assert [output.outputs[0].token_ids for output in outputs] == case.tokens
    assert [output.outputs[0].cumulative_logprob for output in outputs] == pytest.approx(case.logprobs, abs=5e-3)


@pytest.mark.parametrize("swap_bytes", [0, 1 << 20], ids=["recompute", "swap"])
@pytest.mark.parametrize("block_size", [8, 16])
def test_under_preemption(case: Case, block_size: int, swap_bytes: int) -> None:
    engine = Engine(case.directory, block_size=block_size, kv_cache_bytes=208 * SLOT_BYTES, swap_bytes=swap_bytes)
    for index, prompt in enumerate(case.prompts):
        engine.add_request(str(index), {"prompt_tokens": prompt}, PARAMS)
    finished, preempted = {}, 0
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.block_manager.check_integrity()
        preempted += any(group.seqs[0].output_token_ids for group in engine.scheduler.queue)
    assert preempted
    assert [finished[str(index)].outputs[0].token_ids for index in range(len(LENGTHS))] == case.tokens
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


def test_a_decoder_prompt_starts_with_the_start_token_and_goes_on(case: Case) -> None:
    engine = Engine(case.directory)
    prompt, tokens = case.prompts[0], case.tokens[0]
    (output,) = engine.generate(
        {"encoder_prompt": {"prompt_tokens": prompt}, "decoder_prompt": {"prompt_tokens": tokens[:25]}}, PARAMS
    )
    assert output.prompt_token_ids == [0, *tokens[:25]]
    assert output.outputs[0].token_ids[: NEW_TOKENS - 25] == tokens[25:]


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_float16_holds_feed_forward_outputs_beyond_its_range(name: str, tmp_path: Path) -> None:
    configuration = CONFIGURATIONS[name]
    model = save_random(configuration, tmp_path)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("wo.weight"):
                parameter.mul_(1e5)
    model.save_pretrained(tmp_path)
    prompt = list(range(2, 40))
    tokens, _ = greedy(model, prompt, 1.0)
    full, half = (
        Engine(tmp_path, dtype=dtype).generate({"prompt_tokens": prompt}, PARAMS)[0].outputs[0].token_ids
        for dtype in ("float32", "float16")
    )
    assert full == tokens
    assert half[:5] == tokens[:5]


def test_a_checkpoint_that_names_no_start_token_starts_with_padding(tmp_path: Path) -> None:
    sizes = {key: value for key, value in SIZES.items() if key != "decoder_start_token_id"}
    save_random(Configuration(T5ForConditionalGeneration, T5Config(**sizes, pad_token_id=3)), tmp_path)
    (output,) = Engine(tmp_path).generate({"prompt_tokens": [5, 6]}, SamplingParams(max_tokens=1))
    assert output.prompt_token_ids == [3]


def test_missing_weights_are_listed(tmp_path: Path) -> None:
    save_random(CONFIGURATIONS["umt5"], tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"]
    del weights["decoder.block.2.layer.1.EncDecAttention.k.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="2 missing") as raised:
        Engine(tmp_path)
    assert "encoder.relative_attention_biases.1" in str(raised.value)
    assert "decoder.layers.2.cross_attn.qkv_proj.weight#k" in str(raised.value)
