"""DocumentEncoder: its token ids are those of the tokenizers, of whole, truncated and chunked documents."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_checkpoints import TEXTS, bart_tokenizer, mbart_tokenizer, nllb_tokenizer, t5_tokenizer
from transformers import MBart50Tokenizer, MBartTokenizer, PreTrainedTokenizerBase

from transept.authoring import TextTask
from transept.core.request.limits import Limits
from transept.errors import ParameterError, PromptError
from transept.text.encoding import DocumentEncoder
from transept.text.options import TextOptions

DOCUMENT = " ".join(TEXTS)
TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "t5": t5_tokenizer,
    "bart": bart_tokenizer,
    "mbart": lambda: mbart_tokenizer(MBartTokenizer),
    "mbart50": lambda: mbart_tokenizer(MBart50Tokenizer),
    "nllb": nllb_tokenizer,
}
T5 = t5_tokenizer()
SUMMARIZE = TextTask(prefix="summarize: ")


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return TOKENIZERS[request.param]()


@pytest.mark.parametrize("prefix", ["", "summarize: ", " "])
def test_a_document_is_what_the_tokenizer_makes_of_it(tokenizer: PreTrainedTokenizerBase, prefix: str) -> None:
    encoder = DocumentEncoder(tokenizer, TextTask(prefix=prefix), 1000)
    for document in (DOCUMENT, "A", "  two\nlines \n"):
        encoded = encoder(document)
        assert encoded.prompts == [tokenizer(prefix + document).input_ids]
        assert not encoded.truncated


@pytest.mark.parametrize("limit", [10, 33, 60])
def test_truncation_is_the_tokenizers(tokenizer: PreTrainedTokenizerBase, limit: int) -> None:
    encoded = DocumentEncoder(tokenizer, TextTask(prefix="Tell: "), limit, truncate=True)(DOCUMENT)
    assert encoded.prompts == [tokenizer("Tell: " + DOCUMENT, truncation=True, max_length=limit).input_ids]
    assert encoded.truncated


def test_a_document_that_fits_is_left_alone() -> None:
    size = len(T5("summarize: " + DOCUMENT).input_ids)
    for options in ({}, {"truncate": True}, {"chunk": True}):
        encoded = DocumentEncoder(T5, SUMMARIZE, size, **options)(DOCUMENT + "\n")
        assert (encoded.prompts, encoded.truncated) == ([T5("summarize: " + DOCUMENT).input_ids], False)


def test_special_tokens_of_the_task_take_the_place_of_the_tokenizers() -> None:
    task = TextTask(prefix="x ", special_tokens=([7, 8], [9]))
    encoder = DocumentEncoder(T5, task, 12, truncate=True)
    content = T5("x " + DOCUMENT, add_special_tokens=False).input_ids
    assert encoder(DOCUMENT).prompts == [[7, 8, *content[:9], 9]]


@given(
    document=st.lists(st.sampled_from([*DOCUMENT.split(), "unknown-ö-word", "\n\n"]), max_size=150).map(" ".join),
    limit=st.integers(20, 60),
)
@example(document="\n\n In In In In In", limit=20)  # whose first piece is blank
def test_chunks_fit_keep_their_frame_and_hold_the_document(document: str, limit: int) -> None:
    document += " end"
    encoded = DocumentEncoder(T5, SUMMARIZE, limit, chunk=True)(document)
    words = []
    for prompt in encoded.prompts:
        assert len(prompt) <= limit
        assert prompt[-1] == T5.eos_token_id
        text = T5.decode(prompt[:-1])
        assert text.startswith("summarize: ")
        words += text.removeprefix("summarize: ").split()
    assert "".join(words) == "".join(T5.decode(T5(document, add_special_tokens=False).input_ids).split())


def test_too_long_names_both_numbers_and_both_ways_out() -> None:
    size = len(T5("summarize: " + DOCUMENT).input_ids)
    with pytest.raises(PromptError, match=rf"{size} tokens; this model reads 50\b.*truncate=True.*chunk=True"):
        DocumentEncoder(T5, SUMMARIZE, 50)(DOCUMENT)


@pytest.mark.parametrize("document", ["", " \n\t"])
def test_an_empty_document_is_refused(document: str) -> None:
    with pytest.raises(PromptError, match="empty"):
        DocumentEncoder(T5, SUMMARIZE, 50)(document)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(PromptError, match="not bytes"):
        DocumentEncoder(T5, SUMMARIZE, 50)(b"text")


def test_a_limit_without_room_and_two_answers_are_refused() -> None:
    framing = len(T5("summarize: ").input_ids)
    with pytest.raises(ParameterError, match=f"take {framing}"):
        DocumentEncoder(T5, SUMMARIZE, framing)
    with pytest.raises(ParameterError, match="choose one"):
        TextOptions(truncate=True, chunk=True)


@pytest.mark.parametrize("options", [{}, {"truncate": True}, {"chunk": True}])
def test_a_document_beyond_the_limits_is_refused_however_it_is_cut(options: dict[str, bool]) -> None:
    encoder = DocumentEncoder(T5, SUMMARIZE, 60, limits=Limits(max_text_characters=100), **options)
    encoder(DOCUMENT[:100])
    with pytest.raises(PromptError, match="the document has 101 characters, more than the 100 of max_text_characters"):
        encoder(DOCUMENT[:101])
