"""Beam search settings on one small random BART: hypotheses and scores equal to transformers' generate."""

from pathlib import Path

import pytest
import torch
from small_bart import small_bart
from transformers import BartForConditionalGeneration, GenerationConfig

from transept import Engine, SamplingParams

VOCAB_SIZE = 120
MAX_LENGTH = 40
PROCESSORS = {
    "plain": {},
    "ngrams": {"no_repeat_ngram_size": 3, "min_length": 12},
    "forced": {"forced_eos_token_id": 2, "bad_words_ids": [[7], [8, 9]], "repetition_penalty": 1.3},
    "suppressed": {"suppress_tokens": [5, 6], "begin_suppress_tokens": [2, 11], "min_new_tokens": 5},
}


@pytest.fixture(scope="module")
def model() -> BartForConditionalGeneration:
    sizes = {"vocab_size": VOCAB_SIZE, "d_model": 64, "max_position_embeddings": 200}
    return small_bart(seed=1, layers=2, heads=4, end_bias=1.5, init_std=0.2, **sizes)


@pytest.fixture(scope="module")
def engine(model: BartForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    directory: Path = tmp_path_factory.mktemp("bart")
    model.save_pretrained(directory)
    return Engine(directory, kv_cache_bytes=1 << 24)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(4, VOCAB_SIZE, (length,), generator=generator).tolist() for length in (3, 17, 60)]


def reference(model: BartForConditionalGeneration, tokens: list[int], config: GenerationConfig) -> list:
    """transformers' hypotheses with their scores, best first: from the decoder start token, padding cut off."""
    model.generation_config = config  # an argument would be completed with the model's own keys
    result = model.generate(torch.tensor([tokens]), return_dict_in_generate=True, output_scores=True)
    hypotheses = []
    for row, score in zip(result.sequences.tolist(), result.sequences_scores.tolist(), strict=True):
        while row[-1] == config.pad_token_id:
            row.pop()
        hypotheses.append((row, pytest.approx(score, rel=1e-4, abs=1e-5)))
    return hypotheses


@pytest.mark.sampled(5)
@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("length_penalty", [2, 1, 0, -1])
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_hypotheses_and_scores(
    model: BartForConditionalGeneration,
    engine: Engine,
    prompts: list[list[int]],
    early_stopping: bool | str,
    length_penalty: float,
    processors: str,
) -> None:
    config = GenerationConfig(
        num_beams=4,
        num_return_sequences=3,
        length_penalty=float(length_penalty),
        early_stopping=early_stopping,
        max_length=MAX_LENGTH,
        decoder_start_token_id=2,
        eos_token_id=2,
        bos_token_id=0,
        pad_token_id=1,
        forced_bos_token_id=0,
        **PROCESSORS[processors],
    )
    outputs = engine.generate([{"prompt_tokens": prompt} for prompt in prompts], generation_config=config)
    for prompt, output in zip(prompts, outputs, strict=True):
        ours = [(output.prompt_token_ids + each.token_ids, each.score) for each in output.outputs]
        assert ours == reference(model, prompt, config)


def test_the_users_parameters_mean_the_same_as_the_checkpoints(engine: Engine, prompts: list[list[int]]) -> None:
    settings = {
        "num_beams": 3,
        "num_return_sequences": 2,
        "length_penalty": 1.7,
        "early_stopping": True,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[9]],
    }
    config = GenerationConfig(**settings, min_new_tokens=6, max_new_tokens=30, eos_token_id=2)
    params = SamplingParams(**settings, min_tokens=6, max_tokens=30)
    batch = [{"prompt_tokens": prompt} for prompt in prompts]
    for one, other in zip(
        engine.generate(batch, generation_config=config),
        engine.generate(batch, params, generation_config=GenerationConfig()),
        strict=True,
    ):
        assert one.outputs == other.outputs


def test_runs_of_the_encoders_prompt_are_forbidden_request_by_request(
    model: BartForConditionalGeneration, engine: Engine, prompts: list[list[int]]
) -> None:
    prompt = prompts[2]  # half of the vocabulary
    sizes = {"num_beams": 3, "num_return_sequences": 3, "max_length": MAX_LENGTH, "pad_token_id": 1}
    start = {"decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2, "forced_bos_token_id": 0}
    params = [SamplingParams(encoder_no_repeat_ngram_size=size) for size in (0, 1, 2)]
    outputs = engine.generate(
        [{"prompt_tokens": prompt}] * 3, params, generation_config=GenerationConfig(**sizes, **start)
    )
    expected = [
        reference(model, prompt, GenerationConfig(**sizes, **start, encoder_no_repeat_ngram_size=size))
        for size in (0, 1, 2)
    ]
    assert len({tuple(best[0][0]) for best in expected}) == 3
    ours = [[(out.prompt_token_ids + each.token_ids, each.score) for each in out.outputs] for out in outputs]
    assert ours == expected


def test_beams_samples_and_greedy_requests_share_a_batch(engine: Engine, prompts: list[list[int]]) -> None:
    many = [
        SamplingParams(num_beams=5, max_tokens=30),
        SamplingParams(temperature=0.0, max_tokens=30),
        SamplingParams(temperature=1.0, n=3, seed=3, max_tokens=30),
        SamplingParams(num_beams=2, num_return_sequences=2, max_tokens=12, length_penalty=0.0),
    ]
    batch = [{"prompt_tokens": prompts[index % 3]} for index in range(len(many))]
    together = engine.generate(batch, many)
    for prompt, params, output in zip(batch, many, together, strict=True):
        (alone,) = engine.generate(prompt, params)
        assert [each.token_ids for each in output.outputs] == [each.token_ids for each in alone.outputs]
        assert [each.cumulative_logprob for each in output.outputs] == pytest.approx(
            [each.cumulative_logprob for each in alone.outputs], abs=1e-4
        )
