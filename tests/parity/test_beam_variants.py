"""Stop strings with beams, drawn beams and groups of beams, against transformers or a loop written here."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy.stats import chi2_contingency
from small_bart import small_bart
from transformers import AutoTokenizer, BartForConditionalGeneration, GenerationConfig

from transept import Engine, SamplingParams

VOCAB_SIZE, EOS, PAD = 60, 2, 1
PROMPT = [0, 9, 41, 17, 30, EOS]
GIVEN = {"encoder_prompt": {"prompt_tokens": PROMPT}, "decoder_prompt": {"prompt_tokens": [EOS]}}
START = {"decoder_start_token_id": EOS, "eos_token_id": EOS, "bos_token_id": 0, "pad_token_id": PAD}


@pytest.fixture(scope="module")
def model() -> BartForConditionalGeneration:
    sizes = {"vocab_size": VOCAB_SIZE, "d_model": 32, "max_position_embeddings": 64}
    return small_bart(seed=4, layers=1, heads=2, end_bias=1.0, init_std=0.25, forced_eos_token_id=None, **sizes)


@pytest.fixture(scope="module")
def engine(model: BartForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    directory: Path = tmp_path_factory.mktemp("bart")
    model.save_pretrained(directory)
    return Engine(directory, kv_cache_bytes=1 << 24)


def without_padding(row: list[int]) -> tuple[int, ...]:
    """New tokens of transformers' row, which begins with the decoder's start token."""
    end = len(row)
    while row[end - 1] == PAD:
        end -= 1
    return tuple(row[1:end])


@pytest.mark.parametrize("early_stopping", [True, False])
def test_stop_strings_end_beams_as_in_transformers(bart_dir: Path, early_stopping: bool) -> None:
    """A stop string is cut off the text; its tokens stay."""
    engine = Engine(bart_dir, kv_cache_bytes=1 << 24)
    model, tokenizer = (each.from_pretrained(bart_dir) for each in (BartForConditionalGeneration, AutoTokenizer))
    config = GenerationConfig(
        num_beams=3,
        num_return_sequences=3,
        early_stopping=early_stopping,
        max_new_tokens=20,
        no_repeat_ngram_size=2,
        **START,
    )
    model.generation_config = config
    reasons = set()
    for tokens, stops in [
        ([0, 9, 12, 77, 2], ["ha"]),
        ([0, 33, 120, 210, 45, 2], ["as h", "inE"]),
        ([0, 20, 2], ["g"]),
    ]:
        prompt = {"encoder_prompt": {"prompt_tokens": tokens}, "decoder_prompt": {"prompt_tokens": [EOS]}}
        (output,) = engine.generate(prompt, SamplingParams(stop=stops), generation_config=config)
        rows = model.generate(torch.tensor([tokens]), stop_strings=stops, tokenizer=tokenizer)
        assert [tuple(each.token_ids) for each in output.outputs] == [without_padding(row) for row in rows.tolist()]
        for each in output.outputs:
            text = tokenizer.decode(each.token_ids, skip_special_tokens=True)
            assert each.text == (text.partition(each.stop_reason)[0] if each.stop_reason else text)
            reasons.add(each.stop_reason)
    assert len(reasons) > 1


DRAWS = {"num_beams": 2, "temperature": 1.5, "top_k": 6}


@pytest.mark.parametrize("num_draws", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_drawn_beams_have_the_distribution_of_transformers(
    model: BartForConditionalGeneration, engine: Engine, num_draws: int
) -> None:
    config = GenerationConfig(**DRAWS, **START, do_sample=True, max_new_tokens=3)
    params = [SamplingParams(seed=seed) for seed in range(num_draws)]
    outputs = engine.generate([GIVEN] * num_draws, params, generation_config=config)
    ours = Counter(tuple(output.outputs[0].token_ids) for output in outputs)
    torch.manual_seed(3)
    model.generation_config = config
    rows = model.generate(torch.tensor([PROMPT] * num_draws))
    theirs = Counter(without_padding(row) for row in rows.tolist())
    common = [each for each, count in (ours + theirs).items() if count >= 20]
    assert len(common) > 5
    table = [[of[each] for each in common] + [num_draws - sum(of[each] for each in common)] for of in (ours, theirs)]
    assert chi2_contingency(table).pvalue > 1e-3


def test_drawn_beams_depend_on_the_seed_alone(engine: Engine) -> None:
    params = [SamplingParams(**DRAWS, seed=seed, max_tokens=12, num_return_sequences=2) for seed in (1, 2, 1)]
    other = SamplingParams(temperature=1.0, n=3, seed=3, max_tokens=9)
    together = engine.generate([GIVEN] * 4, [*params, other])
    (alone,) = engine.generate(GIVEN, params[0])
    tokens = [[each.token_ids for each in output.outputs] for output in together]
    assert tokens[0] == tokens[2] == [each.token_ids for each in alone.outputs]
    assert tokens[0] != tokens[1]


def lowered(logprobs: torch.Tensor, tokens: list[int], chosen: Counter, penalty: float, repetition: float) -> None:
    """Apply the diversity penalty, then the repetition penalty, as transformers does."""
    for token, count in chosen.items():
        logprobs[token] -= penalty * count
    for token in set(tokens):
        logprobs[token] *= repetition if logprobs[token] < 0 else 1 / repetition


def diverse_search(
    model: BartForConditionalGeneration, size: int, num_groups: int, penalty: float, repetition: float, max_new: int
) -> list[tuple[float, tuple[int, ...]]]:
    """Hypotheses of a diverse beam search, best first: one row and one pass for each beam, without a cache."""
    groups = [[(0.0, [EOS])] for _ in range(num_groups)]  # beams: sum of log probabilities, tokens
    ended: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(num_groups)]
    for step in range(1, max_new + 1):
        chosen: Counter = Counter()
        for number, beams in enumerate(groups):
            found = []
            for total, tokens in beams:
                with torch.no_grad():
                    logits = model(torch.tensor([PROMPT]), decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
                logprobs = logits.log_softmax(dim=-1)
                lowered(logprobs, tokens, chosen, penalty, repetition)
                found += [(total + value, [*tokens, token]) for token, value in enumerate(logprobs.tolist())]
            found = sorted(found, reverse=True)[: 2 * size]
            for total, tokens in found[:size]:
                if tokens[-1] == EOS or step == max_new:
                    ended[number].append((total / step, tuple(tokens[1:])))
            ended[number] = sorted(ended[number], reverse=True)[:size]
            is_full = len(ended[number]) == size  # early stopping
            groups[number] = [] if is_full else [each for each in found if each[1][-1] != EOS][:size]
            chosen.update(tokens[-1] for _, tokens in groups[number])
    return sorted((each for of_group in ended for each in of_group), reverse=True)


@pytest.mark.parametrize(
    ("size", "num_groups", "penalty", "repetition"), [(1, 4, 0.5, 1.0), (2, 2, 2.0, 1.0), (2, 3, 0.7, 1.4)]
)
def test_groups_of_beams(
    model: BartForConditionalGeneration, engine: Engine, size: int, num_groups: int, penalty: float, repetition: float
) -> None:
    config = GenerationConfig(
        num_beams=size * num_groups,
        num_beam_groups=num_groups,
        diversity_penalty=penalty,
        repetition_penalty=repetition,
        num_return_sequences=size * num_groups,
        early_stopping=True,
        max_new_tokens=8,
        **START,
    )
    output, _ = engine.generate([GIVEN, {"prompt_tokens": PROMPT[:3]}], generation_config=config)
    expected = diverse_search(model, size, num_groups, penalty, repetition, max_new=8)
    assert [tuple(each.token_ids) for each in output.outputs] == [tokens for _, tokens in expected]
    assert [each.score for each in output.outputs] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert len({each.token_ids[0] for each in output.outputs}) >= num_groups - 1
