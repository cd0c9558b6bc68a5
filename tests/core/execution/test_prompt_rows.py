"""Tokens of a short prompt are rows of a step like any other, so that one kernel computes the layers for everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transept import Engine, RequestOutput, SamplingParams

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing"]
SHORT, LONG = 5, 9  # tokens of a prompt: as many as the kernel takes of a request, and more


def params(**options: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=2, **options)


def prompt(word: str, num_tokens: int) -> dict[str, Any]:
    return {"encoder_prompt": word, "decoder_prompt": {"prompt_tokens": [2, *range(5, 4 + num_tokens)]}}


def chosen(output: RequestOutput) -> Any:
    return [(each.token_ids, each.logprobs) for each in output.outputs]


@pytest.fixture
def engine() -> Engine:
    return Engine(CHECKPOINT, device="cpu", dtype="float32", kv_cache_bytes=1 << 24)


def test_one_kernel_computes_steps_with_new_requests(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, served = engine.executor.worker.runner.decoder.backend, []
    find = backend.decode_step

    def found(*given: Any) -> Any:
        served.append(find(*given) is not None)
        return find(*given)

    monkeypatch.setattr(backend, "decode_step", found)
    for index, word in enumerate(WORDS):
        engine.add_request(word, prompt(word, 1 + index % SHORT), params())
        engine.step()
    assert served == [True] * len(WORDS)
    engine.add_request("long", prompt("nave", LONG), params())
    engine.step()
    assert not served[-1]
    while engine.has_unfinished_requests:
        engine.step()


def test_log_probabilities_are_the_same_whatever_the_prompts_beside_them(engine: Engine) -> None:
    prompts = [prompt(word, 1 + index) for index, word in enumerate(WORDS)]  # the last is longer than SHORT
    each = [params(), params(), params(num_beams=2), params(), params(), params()]
    alone = [chosen(engine.generate(one, kind)[0]) for one, kind in zip(prompts, each, strict=True)]
    assert [chosen(output) for output in engine.generate(prompts, each)] == alone
    assert [chosen(output) for output in engine.generate(prompts[:5], each[:5])] == alone[:5]
