"""Small trained checkpoints on words they never saw: the same tokens as transformers, and mostly the right ones."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transept import Engine, RequestOutput, SamplingParams

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
GREEDY = SamplingParams(temperature=0.0)
WORDS = json.loads((CMUDICT / "heldout.json").read_text())


@dataclass(frozen=True)
class Task:
    """What a checkpoint is asked for: source text -> its accepted targets. least_right: of 100 held-out words."""

    checkpoint: str
    accepted: dict[str, list[str]]
    least_right: int


PRONOUNCE = {entry["word"]: entry["pronunciations"] for entry in WORDS}
TASKS = {
    "bart": Task("bart-g2p", PRONOUNCE, 55),
    "t5 pronounce": Task("t5-g2p", {f"pronounce: {word}": right for word, right in PRONOUNCE.items()}, 45),
    "t5 spell": Task("t5-g2p", {f"spell: {right[0]}": [word] for word, right in PRONOUNCE.items()}, 30),
}


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]


@pytest.fixture(scope="module")
def outputs(task: Task) -> list[RequestOutput]:
    """Every word, short and long, in one batch."""
    return Engine(CMUDICT / task.checkpoint).generate(list(task.accepted), GREEDY)


@torch.inference_mode()
def greedy(task: Task) -> list[list[int]]:
    """transformers' tokens after the decoder's first, up to the end-of-sequence token."""
    tokenizer = AutoTokenizer.from_pretrained(CMUDICT / task.checkpoint)
    model = AutoModelForSeq2SeqLM.from_pretrained(CMUDICT / task.checkpoint).eval()
    sources = tokenizer(list(task.accepted), return_tensors="pt", padding=True)
    generated = model.generate(**sources, num_beams=1, do_sample=False)[:, 1:].tolist()
    return [row[: row.index(tokenizer.eos_token_id) + 1] for row in generated]


def test_greedy_tokens_equal_transformers(task: Task, outputs: list[RequestOutput]) -> None:
    # BART's decoder prompt ends in the token that transformers forces
    ours = [output.prompt_token_ids[1:] + output.outputs[0].token_ids for output in outputs]
    assert ours == greedy(task)


def test_most_words_come_out_right(task: Task, outputs: list[RequestOutput]) -> None:
    texts = [output.outputs[0].text for output in outputs]
    right = [text in accepted for text, accepted in zip(texts, task.accepted.values(), strict=True)]
    assert 100 * sum(right) / len(right) >= task.least_right
