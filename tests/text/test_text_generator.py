"""TextGenerator against transformers' generate on the prefixed text, with the checkpoint's settings for the task."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_checkpoints import POSITIONS, SUMMARY, T5_TASKS, TEXTS, save_bart
from torch import nn
from transformers import PreTrainedTokenizerBase

import transept
from transept import GeneratedText, PromptProbe, TextGenerator
from transept.errors import CapacityError, CheckpointError, ParameterError, PromptError, UnsupportedModelError
from transept.text.job import make_job
from transept.text.splitting import pieces

LONG = " ".join(TEXTS)
GERMAN = {name: value for name, value in T5_TASKS["translation_en_to_de"].items() if name != "prefix"}


@dataclass(frozen=True)
class Row:
    """A call of ours, and what transformers is given to do the same.

    options: of ours. prefix, source: in front of the text, and the tokenizer's src_lang. settings: of generate; a
    ``"..._code"`` among them is a language's token.
    """

    family: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""
    source: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


GREEDY = {"num_beams": 1, "do_sample": False}
TO_GERMAN = {"source": "en", "target": "German"}
ROWS = {
    "t5 summary": Row("t5", "summarize", {}, "summarize: ", None, {**SUMMARY, "early_stopping": True}),
    "t5 translation": Row("t5", "translate", TO_GERMAN, "translate English to German: ", None, GERMAN),
    "t5 translation that config.json does not name": Row(
        "t5",
        "translate",
        {"source": "de", "target": "en", "max_tokens": 20},
        "translate German to English: ",
        None,
        {"max_new_tokens": 20},
    ),
    "own arguments come first": Row(
        "t5",
        "translate",
        {**TO_GERMAN, "num_beams": 2, "max_tokens": 9},
        "translate English to German: ",
        None,
        {**GERMAN, "num_beams": 2, "max_length": 10},
    ),
    "temperature 0 is greedy": Row(
        "t5", "summarize", {"temperature": 0.0}, "summarize: ", None, {**SUMMARY, **GREEDY, "length_penalty": 1.0}
    ),
    "no task": Row(
        "t5", "generate", {"max_tokens": 30, "num_beams": 3}, "", None, {"num_beams": 3, "max_new_tokens": 30}
    ),
    "bart summary": Row("bart", "summarize", {}, " ", None, {**SUMMARY, "early_stopping": True}),
    "bart, no task": Row("bart", "generate"),  # the generation config alone
    "mbart": Row(
        "mbart",
        "translate",
        {"source": "en", "target": "ro"},
        source="en_XX",
        settings={"num_beams": 3, "max_length": 24, "decoder_start_token_code": "ro_RO"},
    ),
    "mbart, another target": Row(
        "mbart",
        "translate",
        {"source": "fr_XX", "target": "de_DE"},
        source="fr_XX",
        settings={"decoder_start_token_code": "de_DE"},
    ),
    "mbart50": Row(
        "mbart50",
        "translate",
        {"source": "de", "target": "ro"},
        source="de_DE",
        settings={"forced_bos_token_code": "ro_RO"},
    ),
    "nllb": Row(
        "nllb",
        "translate",
        {"source": "fra", "target": "deu_Latn"},
        source="fra_Latn",
        settings={"forced_bos_token_code": "deu_Latn"},
    ),
    "m2m100": Row(
        "m2m100",
        "translate",
        {"source": "de", "target": "FR"},
        source="de",
        settings={"forced_bos_token_code": "fr"},
    ),
}


def _code_id(tokenizer: PreTrainedTokenizerBase, code: str) -> int:
    return tokenizer.get_lang_id(code) if hasattr(tokenizer, "get_lang_id") else tokenizer.convert_tokens_to_ids(code)


@torch.inference_mode()
def reference(model: nn.Module, tokenizer: PreTrainedTokenizerBase, text: str, row: Row) -> str:
    settings = {
        name.replace("_code", "_id"): _code_id(tokenizer, value) if name.endswith("_code") else value
        for name, value in row.settings.items()
    }
    before = getattr(tokenizer, "src_lang", None)
    if row.source is not None:
        tokenizer.src_lang = row.source
    encoded = tokenizer(row.prefix + text, return_tensors="pt")
    if row.source is not None:
        tokenizer.src_lang = before
    tokens = model.generate(**encoded, **settings)[0]
    return tokenizer.decode(tokens, skip_special_tokens=True).strip()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_texts_are_transformers(cases: Callable, row: Row) -> None:
    case = cases(row.family)
    expected = [reference(case.reference, case.tokenizer, text, row) for text in TEXTS]
    assert len(set(expected)) > 1
    results = getattr(case.generator, row.task)(TEXTS, **row.options)
    assert [result.text for result in results] == expected
    alone = getattr(case.generator, row.task)(TEXTS[1], **row.options)
    assert alone.text == expected[1]


def test_a_result_counts_its_tokens(cases: Callable) -> None:
    generator = cases("t5").generator
    result = generator.summarize(TEXTS[0], temperature=0.0, max_tokens=14)
    output = generator.engine.generate(
        "summarize: " + TEXTS[0],
        transept.SamplingParams(temperature=0.0, max_tokens=14, min_tokens=11, no_repeat_ngram_size=3),
    )[0]
    assert result == GeneratedText(
        text=output.outputs[0].text.strip(),
        num_source_tokens=len(output.encoder_prompt_token_ids),
        num_tokens=14,
        num_chunks=1,
        truncated=False,
        cumulative_logprob=pytest.approx(output.outputs[0].cumulative_logprob, abs=1e-4),
        finish_reason="length",
    )


SEVERAL = {
    "hypotheses": {"num_beams": 3, "num_return_sequences": 3},
    "samples": {"n": 3, "temperature": 0.8, "seed": 1},
}


@pytest.mark.parametrize("options", SEVERAL.values(), ids=SEVERAL)
def test_several_texts_of_a_document(cases: Callable, options: dict[str, Any]) -> None:
    generator = cases("t5").generator
    result = generator.generate(TEXTS[0], max_tokens=9, **options)
    (output,) = generator.engine.generate(TEXTS[0], transept.SamplingParams(max_tokens=9, **options))
    texts = [result, *result.alternatives]
    assert [each.text for each in texts] == [each.text.strip() for each in output.outputs]
    assert [each.num_tokens for each in texts] == [len(each.token_ids) for each in output.outputs]
    assert result.num_all_tokens == sum(each.num_tokens for each in texts)
    assert result.to_dict()["alternatives"][1]["text"] == texts[2].text
    *_, last = generator.stream("generate", TEXTS[0], max_tokens=9, **options)
    assert last.result == result
    of_chunks = {"chunk": True, "max_source_tokens": 64, "max_tokens": 9, **options}
    whole = generator.generate(LONG, **of_chunks)
    chunks = [
        {"prompt_tokens": each} for each in make_job(generator.engine, "generate", of_chunks).encoder(LONG).prompts
    ]
    outputs = generator.engine.generate(chunks, transept.SamplingParams(max_tokens=9, **options))
    third = " ".join(filter(None, (each.outputs[2].text.strip() for each in outputs)))
    assert (whole.alternatives[1].text, whole.num_chunks > 2) == (third, True)


@pytest.mark.parametrize(("family", "task", "options"), [
    ("t5", "generate", {}),
    ("bart", "generate", {}),
    ("mbart50", "translate", {"source": "de", "target": "ro"}),
])  # fmt: skip
def test_a_text_continues_a_decoder_prompt(cases: Callable, family: str, task: str, options: dict[str, Any]) -> None:
    """As transformers continues the tokens with which it begins the task's texts by itself."""
    generator = cases(family).generator
    engine = generator.engine
    free = getattr(generator, task)(TEXTS[0], max_tokens=7, num_beams=1, **options)
    content = engine.tokenizer("The rain", add_special_tokens=False).input_ids
    results = [
        getattr(generator, task)(TEXTS[0], decoder_prompt=given, max_tokens=7, num_beams=1, **options)
        for given in ("The rain", content, np.array(content))
    ]
    assert results[0] == results[1] == results[2]
    job = make_job(engine, task, options)
    start = engine.preprocess.decoder_inputs(job.decoder_prompt).token_ids
    prompt = {
        "encoder_prompt": {"prompt_tokens": job.encoder(TEXTS[0]).prompts[0]},
        "decoder_prompt": {"prompt_tokens": [*start, *content]},
    }
    params = transept.SamplingParams(max_tokens=7, num_beams=1)
    (output,) = engine.generate(prompt, params, generation_config=job.generation_config)
    assert output.prompt_token_ids == [*start, *content]
    assert results[0].text == output.outputs[0].text.strip()
    assert results[0].cumulative_logprob == pytest.approx(output.outputs[0].cumulative_logprob, abs=1e-4)
    assert results[0].cumulative_logprob != pytest.approx(free.cumulative_logprob, abs=1e-2)


def test_one_document_or_several(cases: Callable) -> None:
    generator = cases("bart").generator
    one = generator.summarize(TEXTS[0])
    assert isinstance(one, GeneratedText)
    assert generator.summarize([TEXTS[0]])[0].text == one.text
    assert [result.text for result in generator.summarize(iter([TEXTS[1], TEXTS[0]]))][1] == one.text
    assert generator.summarize([]) == []


def test_a_chunked_document_is_its_chunks_joined(cases: Callable) -> None:
    generator = cases("bart").generator
    result = generator.summarize(LONG, chunk=True)
    assert result.num_chunks > 1
    assert not result.truncated
    tokenizer = generator.engine.tokenizer
    chunks = list(pieces(LONG, lambda piece: len(tokenizer(" " + piece.strip()).input_ids) <= POSITIONS))
    results = generator.summarize([chunk.strip() for chunk in chunks])
    assert len(chunks) == result.num_chunks
    assert result.text == " ".join(each.text for each in results)
    assert result.num_source_tokens == sum(each.num_source_tokens for each in results)
    assert result.num_tokens == sum(each.num_tokens for each in results)


def test_a_truncated_document_is_transformers(cases: Callable) -> None:
    case = cases("bart")
    tokenizer = case.tokenizer
    encoded = tokenizer(LONG, truncation=True, max_length=POSITIONS, return_tensors="pt")
    expected = tokenizer.decode(case.reference.generate(**encoded)[0], skip_special_tokens=True).strip()
    result = case.generator.generate(LONG, truncate=True)
    assert (result.text, result.truncated, result.num_source_tokens) == (expected, True, POSITIONS)


def test_a_model_without_positions_takes_a_limit_from_the_user(cases: Callable) -> None:
    generator = cases("t5").generator
    assert generator.summarize(LONG).num_chunks == 1
    assert generator.summarize(LONG, max_source_tokens=100, chunk=True).num_chunks > 2
    assert generator.summarize(LONG, max_source_tokens=100, truncate=True).num_source_tokens == 100
    with pytest.raises(PromptError, match=r"reads 100\b.*truncate=True"):
        generator.summarize(LONG, max_source_tokens=100)


def test_a_bad_document_among_several_has_its_error_and_the_others_their_texts(cases: Callable) -> None:
    generator = cases("bart").generator
    first, too_long, empty, second, missing = generator.summarize([TEXTS[0], LONG, "", TEXTS[1], None])
    assert [first, second] == [generator.summarize(TEXTS[0]), generator.summarize(TEXTS[1])]
    assert first.error is None
    for failed, message in ((too_long, f"reads {POSITIONS}"), (empty, "is empty"), (missing, "NoneType")):
        assert (failed.text, failed.finish_reason) == ("", "error")
        assert isinstance(failed.error, PromptError)
        assert message in str(failed.error)
        assert failed.to_dict()["error"].startswith("PromptError: ")


@pytest.mark.parametrize("documents", [[""], ["", " "]])
def test_a_list_of_bad_documents_is_a_list_of_errors(documents: list[str], cases: Callable) -> None:
    texts = cases("bart").generator.generate(documents)
    assert [type(text.error) for text in texts] == [PromptError] * len(documents)


def test_a_bad_document_alone_raises_before_anything_is_computed(
    cases: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = cases("bart").generator
    monkeypatch.setattr(generator.engine, "step", lambda: pytest.fail("a step was computed"))
    with pytest.raises(PromptError, match=f"the document has .* tokens; this model reads {POSITIONS}"):
        generator.summarize(LONG)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("summarize", {"trunkate": True}, "Did you mean 'truncate'"),
        ("summarize", {"source": "en"}, "takes no source"),
        ("translate", {"source": "en", "target": "de"}, "do not translate"),
        ("generate", {"num_beam": 2}, "Did you mean 'num_beams'"),
        ("generate", {"beam_sizes": 2}, "Did you mean 'beam_size'"),
        ("generate", {"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences=3 is over num_beams=2"),
        ("generate", {"n": 2}, "n=2 needs sampling"),
        ("generate", {"decoder_prompt": [1.5]}, "decoder_prompt must be a list of token ids"),
        ("generate", {"decoder_prompt": [10**6]}, "token id 1000000 is outside of the vocabulary"),
        (
            "generate",
            {"logprobs": 2},
            "logprobs has no effect here, because a document gets only a text; .*Engine.generate",
        ),
        ("summarize", {"prompt_probe": PromptProbe()}, "prompt_probe has no effect here"),
        ("generate", {"detokenize": False}, "detokenize=False leaves a document without a text"),
        ("generate", {"max_source_tokens": POSITIONS + 1}, f"from 1 to {POSITIONS}"),
        ("generate", {"max_source_tokens": 0}, "at least 1"),
        ("generate", {"num_beams": 1, "top_p": 0.5}, "top_p=0.5 needs sampling, but this model decodes greedily"),
        ("summarise", {}, "Did you mean 'summarize'"),
    ],
)
def test_bad_options_are_refused_at_once(cases: Callable, task: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        cases("bart").generator.stream(task, [], **options)


def test_an_alias_is_named_in_an_error_of_the_engine(cases: Callable) -> None:
    for task in ("summarize", "generate"):
        with pytest.raises(
            CapacityError, match=r"needs 65 sequences at a time, but max_num_seqs is 64\. Lower beam_size"
        ):
            cases("bart").generator.stream(task, [], beam_size=65)


def test_functions_load_a_model_for_one_call(cases: Callable) -> None:
    case = cases("t5")
    options = {"kv_cache_bytes": 1 << 22, "max_tokens": 8}
    assert transept.summarize(TEXTS[0], case.directory, **options) == case.generator.summarize(TEXTS[0], max_tokens=8)
    translated = transept.translate(TEXTS[:2], model=case.directory, target="fr", **options)
    assert translated == case.generator.translate(TEXTS[:2], source="en", target="fr", max_tokens=8)
    assert transept.generate(TEXTS[0], case.directory, **options) == case.generator.generate(TEXTS[0], max_tokens=8)
    with pytest.raises(ParameterError, match=r"'devise'.*Did you mean 'device'"):
        transept.summarize(TEXTS[0], "no-such-model", devise="cpu")


def test_models_that_read_no_text_are_refused(tiny_en_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="takes no text; its task is to transcribe speech"):
        TextGenerator(tiny_en_dir)
    save_bart(tmp_path)
    for file in tmp_path.glob("*token*"):
        file.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        TextGenerator(tmp_path)
