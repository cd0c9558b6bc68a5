"""Texts that max_tokens cuts where the checkpoint forces an end of sequence: "length" however they are asked for."""

from collections.abc import Callable

import pytest
import torch
from small_checkpoints import TEXTS

from transept import SamplingParams
from transept.text.job import make_job

EOS = 2
WAYS = {
    "greedy": {"temperature": 0.0},
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "samples": {"temperature": 1.0, "n": 3, "seed": 5},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("max_tokens", [1, 6])
def test_every_output_that_is_cut_says_so(cases: Callable, way: str, max_tokens: int) -> None:
    engine = cases("bart").generator.engine
    (output,) = engine.generate(TEXTS[0], SamplingParams(max_tokens=max_tokens, **WAYS[way]))
    cut = [each for each in output.outputs if len(each.token_ids) == max_tokens]
    assert cut
    assert [(each.token_ids[-1], each.finish_reason, each.stop_reason) for each in cut] == [
        (EOS, "length", None)
    ] * len(cut)
    if max_tokens == 1:
        assert [each.text for each in output.outputs] == [""] * len(output.outputs)
    for each in output.outputs:
        assert each.finish_reason == ("length" if len(each.token_ids) == max_tokens else "stop")


@pytest.mark.parametrize("num_beams", [1, 3])
@torch.inference_mode()
def test_its_tokens_are_transformers(cases: Callable, num_beams: int) -> None:
    case = cases("bart")
    encoded = case.tokenizer(TEXTS[0], return_tensors="pt")
    expected = case.reference.generate(**encoded, num_beams=num_beams, max_length=8)[0].tolist()
    assert expected[-1] == EOS
    params = SamplingParams(max_tokens=6, num_beams=num_beams)  # max_length counts the decoder prompt of two
    (output,) = case.generator.engine.generate(TEXTS[0], params)
    assert output.prompt_token_ids + output.outputs[0].token_ids == expected
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("task", ["summarize", "generate"])
@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_task_says_so_whole_and_streamed(cases: Callable, task: str, max_tokens: int) -> None:
    generator = cases("bart").generator
    options = {"max_tokens": max_tokens, "min_tokens": 0, "num_beams": 1}
    whole = getattr(generator, task)(TEXTS[0], **options)
    assert (whole.num_tokens, whole.finish_reason) == (max_tokens, "length")
    streamed = [update.result for update in generator.stream(task, [TEXTS[0]], **options) if update.result]
    assert streamed == [whole]


FORCED = {"bart": {}, "mbart50": {"source": "en", "target": "ro"}, "nllb": {"source": "eng", "target": "deu"}}
PLAIN = {"t5": {"source": "en", "target": "de"}, "mbart": {"source": "en", "target": "ro"}}


@pytest.mark.parametrize("family", [*FORCED, *PLAIN])
@torch.inference_mode()
def test_max_tokens_is_max_new_tokens_without_a_forced_token_of_the_prompt(cases: Callable, family: str) -> None:
    """As the hints for max_new_tokens and max_length say, beside the lengths that transformers makes of these."""
    case, options = cases(family), {**FORCED, **PLAIN}[family]
    job = make_job(case.generator.engine, "translate" if options else "generate", {**options, "num_beams": 1})
    encoded = torch.tensor(job.encoder(TEXTS[0]).prompts)
    prompt = case.generator.engine.preprocess.decoder_inputs(job.decoder_prompt).token_ids
    settings = {} if family == "mbart" else {"forced_bos_token_id": prompt[1] if len(prompt) > 1 else None}
    settings |= {"decoder_start_token_id": prompt[0], "num_beams": 1, "eos_token_id": None, "forced_eos_token_id": None}
    for limit in ({"max_new_tokens": 7}, {"max_length": 9}):
        theirs = case.reference.generate(encoded, **settings, **limit)[0].tolist()
        num_forced = int(family in FORCED)
        ours = limit["max_new_tokens"] - num_forced if "max_new_tokens" in limit else limit["max_length"] - len(prompt)
        assert theirs[: len(prompt)] == prompt
        assert len(theirs) == len(prompt) + ours
