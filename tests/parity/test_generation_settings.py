"""Settings of a generation config, several at once: tokens and scores equal to transformers' generate; max_time."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_beam_variants import EOS, GIVEN, PROMPT, START, without_padding
from test_beam_variants import engine as engine
from test_beam_variants import model as model
from transformers import (
    AutoTokenizer,
    BartForConditionalGeneration,
    GenerationConfig,
    LogitsProcessorList,
    WatermarkingConfig,
)

from transept import Engine, SamplingParams
from transept.errors import ParameterError

BIAS = [[[7], -2.0], [[41, 9], 4.0], [[12], 3.0], [[12, 30], -1e4]]
SETTINGS: dict[str, dict[str, Any]] = {
    "bias": {"sequence_bias": BIAS, "repetition_penalty": 1.3},
    "encoder": {"encoder_repetition_penalty": 2.0, "encoder_no_repeat_ngram_size": 2, "min_new_tokens": 3},
    "less of the encoder": {"encoder_repetition_penalty": 0.5, "sequence_bias": BIAS, "bad_words_ids": [[11], [8, 9]]},
    "decay": {"exponential_decay_length_penalty": (3, 1.3), "no_repeat_ngram_size": 2, "suppress_tokens": [30]},
    "slower end": {"exponential_decay_length_penalty": (0, 0.8), "remove_invalid_values": True, "min_length": 5},
    "normalized": {"renormalize_logits": True, "repetition_penalty": 1.5, "suppress_tokens": [*range(20, 50)]},
    "two ends": {"eos_token_id": [EOS, 5], "exponential_decay_length_penalty": (2, 1.3), "renormalize_logits": True},
}


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("settings", SETTINGS)
def test_tokens_and_scores(model: BartForConditionalGeneration, engine: Engine, settings: str, num_beams: int) -> None:
    """Drafts change nothing, nor do other requests of the batch."""
    beams = {"num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": 12}
    config = GenerationConfig(**{**START, **beams, **SETTINGS[settings]})
    own = [SamplingParams(), SamplingParams(draft="lookup") if num_beams == 1 else SamplingParams(logprobs=1)]
    plain = SamplingParams(encoder_repetition_penalty=1.0, sequence_bias=(), repetition_penalty=1.0)
    outputs = engine.generate([GIVEN] * 3, [*own, plain], generation_config=config)
    model.generation_config = config
    result = model.generate(torch.tensor([PROMPT]), return_dict_in_generate=True, output_scores=True)
    for output in outputs[:2]:
        ours = [tuple(each.token_ids) for each in output.outputs]
        assert ours == [without_padding(row) for row in result.sequences.tolist()]
        if num_beams > 1:
            scores = [each.score for each in output.outputs]
            assert scores == pytest.approx(result.sequences_scores.tolist(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_stop_strings_of_a_config(bart_dir: Path, num_beams: int) -> None:
    engine = Engine(bart_dir, kv_cache_bytes=1 << 24)
    model, tokenizer = (each.from_pretrained(bart_dir) for each in (BartForConditionalGeneration, AutoTokenizer))
    prompt = {"encoder_prompt": {"prompt_tokens": [0, 9, 12, 77, 2]}, "decoder_prompt": {"prompt_tokens": [EOS]}}
    plain = GenerationConfig(num_beams=num_beams, max_new_tokens=20, no_repeat_ngram_size=2, **START)
    (free,) = engine.generate(prompt, generation_config=plain)
    text = free.outputs[0].text
    plain.stop_strings = [text[len(text) // 2 :][:2]]
    (output,) = engine.generate(prompt, generation_config=plain)
    model.generation_config = plain
    rows = model.generate(torch.tensor([[0, 9, 12, 77, 2]]), tokenizer=tokenizer)
    assert tuple(output.outputs[0].token_ids) == without_padding(rows[0].tolist())
    assert output.outputs[0].token_ids != free.outputs[0].token_ids


def test_transformers_watermark_is_a_logits_processor(model: BartForConditionalGeneration, engine: Engine) -> None:
    config = GenerationConfig(**START, max_new_tokens=12)
    mark = WatermarkingConfig(bias=4.0, seeding_scheme="lefthash")
    processor = mark.construct_processor(model.config.vocab_size, "cpu")
    (output,) = engine.generate(GIVEN, SamplingParams(logits_processors=[processor]), generation_config=config)
    model.generation_config = config
    rows = model.generate(torch.tensor([PROMPT]), logits_processor=LogitsProcessorList([processor]))
    marked = model.generate(torch.tensor([PROMPT]), watermarking_config=mark)
    assert (
        tuple(output.outputs[0].token_ids) == without_padding(rows[0].tolist()) == without_padding(marked[0].tolist())
    )


@pytest.mark.parametrize(
    ("options", "num_texts"),
    [({}, 1), ({"num_beams": 3, "num_return_sequences": 2}, 2), ({"temperature": 1.0, "n": 2, "seed": 1}, 2)],
)
def test_a_text_ends_with_the_first_token_after_its_time(
    engine: Engine, options: dict[str, Any], num_texts: int
) -> None:
    late = SamplingParams(max_time=0, ignore_eos=True, max_tokens=20, **options)
    in_time = SamplingParams(max_time=1e6, ignore_eos=True, max_tokens=20, **options)
    plain = SamplingParams(ignore_eos=True, max_tokens=20, **options)
    late_output, *others = engine.generate([GIVEN] * 3, [late, in_time, plain])
    assert len(late_output.outputs) == num_texts
    assert {(len(each.token_ids), each.finish_reason) for each in late_output.outputs} == {(1, "length")}
    assert others[0].outputs == others[1].outputs
    assert {len(each.token_ids) for each in others[0].outputs} == {20}
    assert not engine.has_unfinished_requests


@pytest.mark.parametrize("option", [{"encoder_repetition_penalty": 1.2}, {"encoder_no_repeat_ngram_size": 2}])
def test_rules_about_the_encoders_tokens_need_some(tiny_en_dir: Path, option: dict[str, Any]) -> None:
    engine = Engine(tiny_en_dir, kv_cache_bytes=1 << 24)
    audio = {"encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (torch.zeros(1600).numpy(), 16000)}}}
    with pytest.raises(ParameterError, match=f"{next(iter(option))}=.* needs tokens in the encoder's prompt"):
        engine.generate(audio, SamplingParams(**option))
