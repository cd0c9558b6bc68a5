"""TextGenerator.stream: what is told when, in which order, and what a failing or abandoned document leaves behind."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import TEXTS, save_bart

from transept import GeneratedText, SamplingParams, TextGenerator
from transept.errors import CapacityError, PromptError
from transept.text.generated_text import TextUpdate

LONG = " ".join(TEXTS)


def joined(updates: list[TextUpdate]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for update in updates:
        texts[update.index] = texts.get(update.index, "") + update.text
    return texts


@pytest.mark.parametrize("options", [{}, {"chunk": True, "max_source_tokens": 40}, {"stop": ["zz", "a longer one"]}])
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_stream_tells_greedy_texts_piece_by_piece_in_order(
    cases: Callable, family: str, options: dict[str, Any]
) -> None:
    generator = cases(family).generator
    options = {"temperature": 0.0, "repetition_penalty": 1.5, "max_tokens": 30, **options}
    updates = list(generator.stream("generate", TEXTS, **options))
    results = generator.generate(TEXTS, **options)
    assert [update.index for update in updates] == sorted(update.index for update in updates)
    assert joined(updates) == {index: result.text for index, result in enumerate(results)}
    assert [update.result.text for update in updates if update.result] == [result.text for result in results]
    assert len([update for update in updates if update.index == 0]) > 5


def test_a_stream_takes_a_lone_text(cases: Callable) -> None:
    generator, options = cases("t5").generator, {"temperature": 0.0, "max_tokens": 10}
    (alone,) = joined(list(generator.stream("generate", TEXTS[2], **options))).values()
    assert alone == generator.generate(TEXTS[2], **options).text


def test_a_stream_holds_back_what_a_stop_string_may_cut(cases: Callable) -> None:
    generator = cases("t5").generator
    options = {"temperature": 1.0, "seed": 1, "max_tokens": 30}  # greedily a random model may repeat one word
    text = generator.generate(TEXTS[2], **options).text
    fresh = (text[start:][:6] for start in range(len(text) // 2, len(text)) if text.index(text[start:][:6]) == start)
    stop = next(fresh)  # what stands nowhere before, so that half of the text is told first
    updates = list(generator.stream("generate", [TEXTS[2]], stop=stop, **options))
    assert joined(updates)[0] == updates[-1].result.text == text[: text.index(stop)].strip()
    assert len(updates) > 2


def test_a_stream_waits_for_punctuation_where_the_tokenizer_moves_it(
    cases: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cases("t5")
    generator, tokenizer = case.generator, case.generator.engine.tokenizer
    few = sorted({*tokenizer("it is . , ? so", add_special_tokens=False).input_ids})  # pieces of " ." and " ,"
    options = {"temperature": 1.0, "seed": 1, "allowed_token_ids": few, "max_tokens": 60}
    raw = [result.text for result in generator.generate(TEXTS, **options)]
    monkeypatch.setattr(tokenizer, "clean_up_tokenization_spaces", True)
    updates = list(generator.stream("generate", TEXTS, **options))
    assert joined(updates) == {update.index: update.result.text for update in updates if update.result}
    assert list(joined(updates).values()) == [case.tokenizer.clean_up_tokenization(text) for text in raw]
    assert any(cleaned != text for cleaned, text in zip(joined(updates).values(), raw, strict=True))
    assert len(updates) > 10


def test_a_stream_tells_a_beam_search_at_its_end(cases: Callable) -> None:
    generator = cases("bart").generator
    updates = list(generator.stream("summarize", TEXTS[:3]))
    assert [(update.index, update.text == update.result.text) for update in updates] == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_a_stream_gives_errors_in_their_place_and_the_others_are_computed(cases: Callable) -> None:
    generator = cases("bart").generator
    updates = list(generator.stream("summarize", [TEXTS[0], LONG, TEXTS[1], ""]))
    kinds = [type(update.result) for update in updates]
    assert kinds == [GeneratedText, PromptError, GeneratedText, PromptError]
    assert updates[2].result.text == generator.summarize(TEXTS[1]).text


def test_a_document_that_never_fits_into_memory_is_one_error(tmp_path: Path) -> None:
    save_bart(tmp_path)
    generator = TextGenerator(tmp_path, kv_cache_bytes=4 * 768 * 16, block_size=16)
    short, long = "A note.", TEXTS[0]
    updates = list(generator.stream("generate", [short, long, short], max_tokens=10))
    assert [type(update.result) for update in updates] == [GeneratedText, CapacityError, GeneratedText]
    fits, beyond = generator.generate([short, long], max_tokens=10)
    assert (fits, beyond.finish_reason) == (generator.generate(short, max_tokens=10), "error")
    assert isinstance(beyond.error, CapacityError)
    with pytest.raises(CapacityError):
        generator.generate(long, max_tokens=10)
    assert not generator.engine.has_unfinished_requests


def test_documents_are_read_when_they_are_needed(tmp_path: Path) -> None:
    save_bart(tmp_path)
    generator = TextGenerator(tmp_path, kv_cache_bytes=1 << 24, max_num_seqs=2)
    num_computed = 0  # documents whose last token is being drawn, or has been

    def count(logits, rows) -> None:
        nonlocal num_computed
        num_computed += sum(len(row.output_token_ids) == 4 for row in rows)

    def documents():
        for index in range(40):
            assert index - num_computed < 4, "twice as many as are computed at a time are under way"
            yield f"note {index}"

    options = {"temperature": 0.0, "max_tokens": 5, "ignore_eos": True, "logits_processors": [count]}
    stream = generator.stream("generate", documents(), **options)
    assert {update.index for update in stream} == {*range(40)}
    assert num_computed == 40


def test_closing_a_stream_leaves_nothing_behind(cases: Callable) -> None:
    generator = cases("t5").generator
    stream = generator.stream("generate", TEXTS, temperature=0.0, max_tokens=30)
    next(stream)
    stream.close()
    manager = generator.engine.block_manager
    assert not generator.engine.has_unfinished_requests
    assert manager.num_free_device_blocks == manager.num_device_blocks
    assert generator.generate(TEXTS[0], max_tokens=3).num_tokens == 3


def test_streams_calls_and_requests_may_be_under_way_at_once(cases: Callable) -> None:
    generator, options = cases("t5").generator, {"temperature": 0.0, "repetition_penalty": 1.5, "max_tokens": 30}
    expected = {index: result.text for index, result in enumerate(generator.generate(TEXTS, **options))}
    streams = [generator.stream("generate", TEXTS, **options) for _ in range(2)]
    begun = [[next(stream)] for stream in streams]
    generator.engine.add_request("mine", TEXTS[0], SamplingParams(**options))
    assert generator.generate(TEXTS[1], **options).text == expected[1]
    for stream, updates in zip(streams, begun, strict=True):
        assert joined([*updates, *stream]) == expected
    (mine,) = (output for output in generator.engine.step() if output.finished)
    assert mine.outputs[0].text.strip() == expected[0]


def test_a_generator_may_be_called_from_several_threads(cases: Callable) -> None:
    generator, options = cases("bart").generator, {"max_tokens": 12}
    expected = [generator.summarize(text, **options) for text in TEXTS]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda index: generator.summarize(TEXTS[index % len(TEXTS)], **options), range(36)))
    assert [result.text for result in results] == [expected[index % len(TEXTS)].text for index in range(36)]
