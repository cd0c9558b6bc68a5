"""Whisper's timestamp rules against openai-whisper's logit filter, on every kind of transcript so far."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperConfig
from views import view_of
from whisper.decoding import ApplyTimestampRules
from whisper.tokenizer import get_tokenizer

from transept.core.scheduling.step import SequenceData
from transept.plugins.whisper.timestamp_rules import Forbidden, forbid_at_once, forbid_by_row, timestamp_rules

CONFIG = WhisperConfig(vocab_size=51864, decoder_start_token_id=50257)
TOKENIZER = get_tokenizer(multilingual=False)
FIRST = TOKENIZER.timestamp_begin
PROMPT = [50257]

# what may have been transcribed so far: text, and timestamps alone and in pairs, some of them not allowed by the rules
pieces = st.one_of(st.integers(0, 50000), st.integers(FIRST, FIRST + 1500), st.just(FIRST), st.just(FIRST + 1500))
transcripts = st.lists(st.lists(pieces, max_size=6), min_size=1, max_size=4)


def filtered(transcripts: list[list[int]], logits: torch.Tensor, max_initial: float | None) -> torch.Tensor:
    """openai-whisper's: rows of one batch are of one length there, so each is filtered on its own."""
    bound = None if max_initial is None else round(max_initial / 0.02)
    rules = ApplyTimestampRules(TOKENIZER, len(PROMPT), bound)
    rows = []
    for tokens, row in zip(transcripts, logits, strict=True):
        row = row.clone()[None]
        rules.apply(row, torch.tensor([[*PROMPT, *tokens]]))
        rows.append(row[0])
    return torch.stack(rows)


@settings(max_examples=150)
@given(transcripts, st.sampled_from([1.0, 0.5, None]), st.integers(0, 1000), st.sampled_from([-3.0, 0.0, 3.0]))
def test_the_same_tokens_are_forbidden(transcripts, max_initial, seed, lean) -> None:
    logits = torch.randn(len(transcripts), 51864, generator=torch.Generator().manual_seed(seed))
    logits[:, FIRST:] += lean  # so that timestamps are all together likelier than text, or are not
    expected = filtered(transcripts, logits, max_initial)
    rules = timestamp_rules(view_of(CONFIG), max_initial_timestamp=max_initial)
    rules(logits, [SequenceData(PROMPT, tokens, 0) for tokens in transcripts])
    assert torch.equal(logits, expected)


def test_rows_one_by_one_and_all_at_once_are_forbidden_the_same() -> None:
    rows = [Forbidden(0, 0, 0), Forbidden(5, 3, 9), Forbidden(0, 10, 20), Forbidden(20, 0, 0), Forbidden(7, 12, 13)]
    rows.append(Forbidden(4, 6, 8, 18))
    by_row = torch.randn(len(rows), 20)
    at_once = by_row.clone()
    forbid_by_row(by_row, rows)
    forbid_at_once(at_once, torch.tensor(rows))
    assert torch.equal(by_row, at_once)
    assert by_row.isinf().sum(dim=1).tolist() == [0, 9, 10, 20, 8, 8]


@settings(max_examples=100)
@given(transcripts, st.sampled_from([1.0, None]), st.integers(0, 1000), st.sampled_from([-3.0, 0.0, 3.0]))
def test_tokens_after_the_timestamps_are_forbidden_as_text_is(transcripts, max_initial, seed, lean) -> None:
    added = 3
    logits = torch.randn(len(transcripts), 51864, generator=torch.Generator().manual_seed(seed))
    logits[:, FIRST:] += lean
    grown = torch.cat([logits, logits[:, 300:301].repeat(1, added)], dim=1)  # each as likely as token 300
    rows = [SequenceData(PROMPT, tokens, 0) for tokens in transcripts]
    no_timestamps = SimpleNamespace(no_timestamps_token_id=FIRST - 1, is_multilingual=False)
    config = WhisperConfig(vocab_size=51864 + added, decoder_start_token_id=50257)
    timestamp_rules(view_of(CONFIG), max_initial_timestamp=max_initial)(logits, rows)
    view = view_of(config, generation_config=no_timestamps)
    timestamp_rules(view, max_initial_timestamp=max_initial)(grown, rows)
    assert torch.equal(grown[:, :51864], logits)
    assert torch.equal(grown[:, 51864:], logits[:, 300:301].repeat(1, added))


def test_an_added_token_in_a_transcript_is_no_time() -> None:
    no_timestamps = SimpleNamespace(no_timestamps_token_id=FIRST - 1, is_multilingual=False)
    view = view_of(WhisperConfig(vocab_size=51866, decoder_start_token_id=50257), generation_config=no_timestamps)
    rules = timestamp_rules(view)
    for tokens in ([FIRST, 300], [FIRST, 300, FIRST + 50], [300], [FIRST, 400, FIRST + 9, FIRST + 9, 300]):
        text, added = (torch.zeros(1, 51866) for _ in range(2))
        rules(text, [SequenceData(PROMPT, tokens, 0)])
        rules(added, [SequenceData(PROMPT, [51865 if token == 300 else token for token in tokens], 0)])
        assert torch.equal(text, added)


def test_a_prefix_counts_as_transcribed() -> None:
    logits = torch.randn(1, 51864, generator=torch.Generator().manual_seed(0))
    expected = filtered([[FIRST, 300, 400, 500]], logits, 1.0)
    rules = timestamp_rules(view_of(CONFIG), max_initial_timestamp=1.0, num_prefix_tokens=3)
    rules(logits, [SequenceData([*PROMPT, FIRST, 300, 400], [500], 0)])
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("bound", [0.0, 1.0, None])
def test_requests_with_equal_rules_share_a_call(bound: float | None) -> None:
    assert timestamp_rules(view_of(CONFIG), max_initial_timestamp=bound) == timestamp_rules(
        view_of(CONFIG), max_initial_timestamp=bound
    )
    assert hash(timestamp_rules(view_of(CONFIG), max_initial_timestamp=bound))
