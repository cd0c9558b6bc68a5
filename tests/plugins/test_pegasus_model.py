"""Pegasus against transformers on small random weights, with and without positions in the checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PegasusConfig, PegasusForConditionalGeneration

from transept import Engine, SamplingParams

CONFIG = {
    "vocab_size": 320,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 200,
    "scale_embedding": True,
    "forced_eos_token_id": None,
    "init_std": 0.3,
}
CONFIGURATIONS = {
    "pegasus": PegasusConfig(**CONFIG, d_model=48),
    "odd width": PegasusConfig(**CONFIG, d_model=45, activation_function="relu"),
}
LENGTHS = (33, 7, 1, 64, 150)
NEW_TOKENS = 90
PARAMS = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)


@dataclass
class Case:
    """A checkpoint, encoder prompts, and what transformers makes of each."""

    directory: Path
    prompts: list[list[int]]
    tokens: list[list[int]]
    logprobs: list[float]  # of all tokens together


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.manual_seed(0)
    model = PegasusForConditionalGeneration(CONFIGURATIONS[request.param]).eval()
    model.final_logits_bias.normal_()
    with torch.no_grad():
        model.model.shared.weight.mul_(0.1)  # else the scaled, tied embedding repeats the token before
    directory = tmp_path_factory.mktemp("pegasus")
    model.save_pretrained(directory)
    prompts = [torch.randint(4, 320, (length,)).tolist() for length in LENGTHS]
    tokens, logprobs = zip(*(greedy(model, prompt) for prompt in prompts), strict=True)
    return Case(directory, prompts, list(tokens), list(logprobs))


@torch.inference_mode()
def greedy(model: PegasusForConditionalGeneration, prompt: list[int]) -> tuple[list[int], float]:
    """transformers' forward pass, the whole sequence anew at every step: nothing to get wrong."""
    tokens, logprob = [0], 0.0
    encoded = model.get_encoder()(torch.tensor([prompt]))
    for _ in range(NEW_TOKENS):
        logits = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
        tokens.append(int(logits.argmax()))
        logprob += float(logits.log_softmax(-1).max())
    return tokens[1:], logprob


def check(case: Case) -> None:
    outputs = Engine(case.directory).generate([{"prompt_tokens": prompt} for prompt in case.prompts], PARAMS)
    assert all(output.prompt_token_ids == [0] for output in outputs)
    assert [output.outputs[0].token_ids for output in outputs] == case.tokens
    assert [output.outputs[0].cumulative_logprob for output in outputs] == pytest.approx(case.logprobs, abs=1e-3)


def test_in_one_batch(case: Case) -> None:
    check(case)


def test_without_positions_in_the_checkpoint(case: Case) -> None:
    file = case.directory / "model.safetensors"
    weights = load_file(file)
    positions = [name for name in weights if name.endswith("embed_positions.weight")]
    assert len(positions) == 2
    save_file({name: weights[name] for name in weights.keys() - positions}, file, metadata={"format": "pt"})
    check(case)


def test_a_document_beyond_the_positions_is_refused_with_both_numbers(case: Case) -> None:
    with pytest.raises(ValueError, match="201 tokens; this model reads 200"):
        Engine(case.directory).generate({"prompt_tokens": [5] * 201}, PARAMS)
