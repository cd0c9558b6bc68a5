"""BART and mBART against transformers on small random weights: alone, in a mixed batch, and with too little memory."""

from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

from transept import Engine, SamplingParams

SIZES = {
    "vocab_size": 320,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 200,
    "forced_eos_token_id": None,
    "init_std": 0.3,
}
CONFIGURATIONS = {  # name -> (class, config, decoder prompt that transformers is given)
    "bart": (BartForConditionalGeneration, BartConfig(**SIZES), [2, 0]),
    "bart-scaled-relu": (
        BartForConditionalGeneration,
        BartConfig(**SIZES, scale_embedding=True, activation_function="relu"),
        [2, 0],
    ),
    "bart-bare-model": (BartForConditionalGeneration, BartConfig(**SIZES), [2, 0]),
    "mbart": (
        MBartForConditionalGeneration,
        MBartConfig(**SIZES, scale_embedding=True, decoder_start_token_id=2, forced_bos_token_id=None),
        [2],
    ),
}
NEW_TOKENS = 90
PARAMS = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A checkpoint, encoder prompts of many lengths, and transformers' greedy tokens for each."""
    model_class, config, decoder_prompt = CONFIGURATIONS[request.param]
    torch.manual_seed(0)
    model = model_class(config).eval()
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "bart-bare-model":
        model.model.save_pretrained(directory)
    else:
        model.final_logits_bias.normal_()
        model.save_pretrained(directory)
    prompts = [torch.randint(4, 320, (length,)).tolist() for length in (1, 7, 33, 64, 150)]
    return directory, prompts, [greedy(model, tokens, decoder_prompt) for tokens in prompts]


@torch.inference_mode()
def greedy(model, encoder_tokens: list[int], decoder_prompt: list[int]) -> list[int]:
    """transformers' forward pass, the whole sequence anew at every step: nothing to get wrong."""
    tokens = list(decoder_prompt)
    encoded = model.get_encoder()(torch.tensor([encoder_tokens]))
    for _ in range(NEW_TOKENS):
        logits = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([tokens])).logits
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(decoder_prompt) :]


def test_alone(case) -> None:
    directory, prompts, expected = case
    engine = Engine(directory)
    outputs = [engine.generate({"prompt_tokens": prompt}, PARAMS)[0] for prompt in prompts]
    assert [output.outputs[0].token_ids for output in outputs] == expected
    assert [output.encoder_prompt_token_ids for output in outputs] == prompts


def test_in_one_batch(case) -> None:
    directory, prompts, expected = case
    outputs = Engine(directory).generate([{"prompt_tokens": prompt} for prompt in prompts], PARAMS)
    assert [output.outputs[0].token_ids for output in outputs] == expected


@pytest.mark.parametrize("swap_bytes", [0, 1 << 24], ids=["recompute", "swap"])
@pytest.mark.parametrize("block_size", [8, 32])
def test_under_preemption(case, block_size: int, swap_bytes: int) -> None:
    directory, prompts, expected = case
    slot_bytes = 2 * 2 * 64 * 4
    engine = Engine(directory, block_size=block_size, kv_cache_bytes=6 * 64 * slot_bytes, swap_bytes=swap_bytes)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), {"prompt_tokens": prompt}, PARAMS)
    finished, preempted = {}, 0
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.block_manager.check_integrity()
        preempted += any(group.seqs[0].output_token_ids for group in engine.scheduler.queue)
    assert preempted
    assert [finished[str(index)].outputs[0].token_ids for index in range(len(prompts))] == expected
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


def test_a_document_beyond_the_positions_is_refused_with_both_numbers(case) -> None:
    directory: Path = case[0]
    with pytest.raises(ValueError, match="201 tokens; this model reads 200"):
        Engine(directory).generate({"prompt_tokens": [5] * 201}, PARAMS)
