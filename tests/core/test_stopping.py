"""When a sequence ends and what its text then is, with Whisper's real byte-level tokenizer."""

from itertools import pairwise

import pytest
from transformers import PreTrainedTokenizerFast

from transept.core.request.inputs import DecoderInputs, EncoderDecoderInputs, EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.stopping import StopChecker

EOS = 50256
START = 50257  # <|startoftranscript|>
RUNNING, STOPPED, LENGTH = SequenceStatus.RUNNING, SequenceStatus.STOPPED, SequenceStatus.LENGTH


@pytest.fixture(scope="module")
def tokenizer(tiny_en_dir):
    return PreTrainedTokenizerFast(
        tokenizer_file=str(tiny_en_dir / "tokenizer.json"), clean_up_tokenization_spaces=False
    )


def decode_until_finished(checker, params, token_ids):
    """Feed tokens one by one, as the engine does, until the sequence finishes or they run out."""
    seq = Sequence(0, EncoderDecoderInputs(EncoderInputs(None, [1], 1), DecoderInputs(None, [2])))
    seq.status = RUNNING
    for token in token_ids:
        seq.append_token(SampledToken(token, 0.0, None))
        checker.check(seq, params)
        if seq.finished:
            break
    return seq


def outcome(seq):
    return seq.status, seq.stop_reason, len(seq.output_token_ids), seq.output_text


@pytest.fixture(scope="module")
def run(tokenizer):
    def run(text, *, eos=(EOS,), **options):
        token_ids = text if isinstance(text, list) else tokenizer(text, add_special_tokens=False).input_ids
        return decode_until_finished(StopChecker(tokenizer), SamplingParams(eos_token_ids=eos, **options), token_ids)

    return run


def test_the_tokens_that_the_rows_below_count_on(tokenizer):
    def pieces(text):
        return [tokenizer.decode([token]) for token in tokenizer(text, add_special_tokens=False).input_ids]

    assert pieces(" one two three four five") == [" one", " two", " three", " four", " five"]
    assert pieces("<|endoftext|>") == ["<|endoftext|>"]
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == EOS
    assert len(pieces("🦉")) > 1


FIVE = " one two three four five"
ONE, TWO, THREE, FOUR, FIVE_IDS = 530, 734, 1115, 1440, [530, 734, 1115, 1440, 1936]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        # nothing ends it
        (FIVE, {}, (RUNNING, None, 5, "")),
        # end of sequence
        (" one<|endoftext|> two", {}, (STOPPED, None, 2, " one")),
        ("<|endoftext|>", {}, (STOPPED, None, 1, "")),
        (" one<|endoftext|> two", {"skip_special_tokens": False}, (STOPPED, None, 2, " one<|endoftext|>")),
        (" one two", {"eos": (ONE, TWO)}, (STOPPED, None, 1, " one")),
        (" three two", {"eos": (ONE, TWO)}, (STOPPED, None, 2, " three two")),
        (" one two", {"eos": ()}, (RUNNING, None, 2, "")),
        # ignore_eos
        (" one<|endoftext|> two", {"ignore_eos": True}, (RUNNING, None, 3, "")),
        (" one<|endoftext|> two", {"ignore_eos": True, "max_tokens": 3}, (LENGTH, None, 3, " one two")),
        (" one<|endoftext|> two", {"ignore_eos": True, "stop_token_ids": [EOS]}, (STOPPED, EOS, 2, " one")),
        # stop tokens
        (FIVE, {"stop_token_ids": [THREE]}, (STOPPED, THREE, 3, " one two three")),
        (FIVE, {"stop_token_ids": [FOUR, TWO]}, (STOPPED, TWO, 2, " one two")),
        (" one<|endoftext|>", {"stop_token_ids": [EOS]}, (STOPPED, None, 2, " one")),
        # max_tokens
        (FIVE, {"max_tokens": 2}, (LENGTH, None, 2, " one two")),
        (FIVE, {"max_tokens": 1}, (LENGTH, None, 1, " one")),
        (" one<|endoftext|>", {"max_tokens": 2}, (STOPPED, None, 2, " one")),
        (FIVE, {"max_tokens": 2, "stop_token_ids": [TWO]}, (STOPPED, TWO, 2, " one two")),
        # a forced end at max_tokens is a cut, whatever else the token is; before max_tokens an end is the model's
        (" one<|endoftext|>", {"max_tokens": 2, "forced_eos_token_id": EOS}, (LENGTH, None, 2, " one")),
        ("<|endoftext|>", {"max_tokens": 1, "forced_eos_token_id": EOS}, (LENGTH, None, 1, "")),
        (
            " one<|endoftext|>",
            {"max_tokens": 2, "forced_eos_token_id": EOS, "stop_token_ids": [EOS]},
            (LENGTH, None, 2, " one"),
        ),
        (
            " one two",
            {"max_tokens": 2, "forced_eos_token_id": [EOS, TWO], "eos": (TWO,)},
            (LENGTH, None, 2, " one two"),
        ),
        (" one<|endoftext|> two", {"max_tokens": 3, "forced_eos_token_id": EOS}, (STOPPED, None, 2, " one")),
        (" one two", {"max_tokens": 2, "forced_eos_token_id": EOS, "stop": " one"}, (STOPPED, " one", 1, "")),
        # stop strings: cut, the earliest wins, whatever tokens they span
        (FIVE, {"stop": " three"}, (STOPPED, " three", 3, " one two")),
        (FIVE, {"stop": "three"}, (STOPPED, "three", 3, " one two ")),
        (FIVE, {"stop": "o th"}, (STOPPED, "o th", 3, " one tw")),
        (FIVE, {"stop": "e two three f"}, (STOPPED, "e two three f", 4, " on")),
        (FIVE, {"stop": [" four", " two"]}, (STOPPED, " two", 2, " one")),
        (FIVE, {"stop": ["ree", "thr"]}, (STOPPED, "thr", 3, " one two ")),
        (FIVE, {"stop": ["six"]}, (RUNNING, None, 5, FIVE)),
        (" one", {"stop": " one"}, (STOPPED, " one", 1, "")),
        (FIVE, {"stop": " two", "max_tokens": 2}, (STOPPED, " two", 2, " one")),
        (FIVE, {"stop": " two", "stop_token_ids": [TWO]}, (STOPPED, " two", 2, " one")),
        (" one<|endoftext|>", {"stop": "<|endoftext|>"}, (STOPPED, None, 2, " one")),
        # min_tokens: what ends the output comes after so many tokens at the earliest
        (FIVE, {"stop_token_ids": [THREE], "min_tokens": 2}, (STOPPED, THREE, 3, " one two three")),
        (FIVE, {"stop_token_ids": [THREE], "min_tokens": 3}, (RUNNING, None, 5, "")),
        (FIVE, {"stop": " three", "min_tokens": 2}, (STOPPED, " three", 3, " one two")),
        (FIVE, {"stop": " three", "min_tokens": 3}, (RUNNING, None, 5, FIVE)),
        (FIVE, {"stop": " two", "min_tokens": 4}, (RUNNING, None, 5, FIVE)),
        (FIVE + " two", {"stop": " two", "min_tokens": 4}, (STOPPED, " two", 6, FIVE)),
        (FIVE, {"stop": "ee four", "min_tokens": 3}, (STOPPED, "ee four", 4, " one two thr")),
        (FIVE, {"stop": [" two", " five"], "min_tokens": 3}, (STOPPED, " five", 5, " one two three four")),
        (FIVE, {"stop": " two", "min_tokens": 3, "max_tokens": 3}, (LENGTH, None, 3, " one two three")),
        (" one<|endoftext|>", {"stop": " one", "min_tokens": 1}, (STOPPED, None, 2, " one")),
        # a repetition: a run of at least this many tokens, twice in succession
        (" one one two", {"stop_at_repetition": 1}, (STOPPED, None, 2, " one one")),
        (" one one two", {"stop_at_repetition": 2}, (RUNNING, None, 3, "")),
        (" one one one one two", {"stop_at_repetition": 2}, (STOPPED, None, 4, " one one one one")),
        (
            FIVE + " two three four five six",
            {"stop_at_repetition": 4},
            (STOPPED, None, 9, FIVE + FIVE[4:]),
        ),
        (FIVE + " two three four five six", {"stop_at_repetition": 5}, (RUNNING, None, 10, "")),
        (FIVE + " six" + FIVE, {"stop_at_repetition": 4}, (RUNNING, None, 11, "")),
        (" one one", {"stop_at_repetition": 1, "max_tokens": 2}, (LENGTH, None, 2, " one one")),
    ],
)
def test_what_ends_a_sequence(run, text, options, expected):
    assert outcome(run(text, **options)) == expected


def test_special_tokens_stay_out_of_the_text_unless_wanted(run):
    token_ids = [START, ONE, START, EOS]
    assert run(token_ids).output_text == " one"
    kept = run(token_ids, skip_special_tokens=False)
    assert kept.output_text == "<|startoftranscript|> one<|startoftranscript|><|endoftext|>"


def test_text_that_nobody_reads_is_not_made(run):
    assert outcome(run([ONE, TWO, EOS], detokenize=False)) == (STOPPED, None, 3, "")


def test_a_stop_string_can_be_a_special_token_that_is_kept(run):
    seq = run([ONE, START, TWO], stop="<|startoftranscript|>", skip_special_tokens=False)
    assert outcome(seq) == (STOPPED, "<|startoftranscript|>", 2, " one")


@pytest.mark.parametrize("text", [" one 🦉", " one é", " one 鯨", " one 🦉 two 👩🏽‍🚀 three"])
def test_unfinished_text_ends_with_a_whole_character(tokenizer, text):
    checker = StopChecker(tokenizer)
    token_ids = tokenizer(text, add_special_tokens=False).input_ids
    shown = []
    for length in range(1, len(token_ids) + 1):
        seq = decode_until_finished(checker, SamplingParams(eos_token_ids=[EOS]), token_ids[:length])
        checker.update_text(seq, SamplingParams())
        shown.append(seq.output_text)
    assert shown[-1] == text
    for before, after in pairwise(shown):
        assert after.startswith(before)
    assert all(text.startswith(each) for each in shown)


def test_finished_text_shows_that_its_last_character_is_incomplete(tokenizer, run):
    (first, *_) = tokenizer("🦉", add_special_tokens=False).input_ids
    assert outcome(run([ONE, first], max_tokens=2)) == (LENGTH, None, 2, " one\N{REPLACEMENT CHARACTER}")


def test_a_stop_string_of_several_tokens_in_one_character(run):
    assert outcome(run(" one 🦉 two", stop="🦉"))[1::2] == ("🦉", " one ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (RUNNING, None, 5, "")),
        ({"max_tokens": 3}, (LENGTH, None, 3, "")),
        ({"stop_token_ids": [TWO]}, (STOPPED, TWO, 2, "")),
        ({"eos": (THREE,)}, (STOPPED, None, 3, "")),
    ],
)
def test_without_a_tokenizer_tokens_end_a_sequence_and_texts_are_empty(options, expected):
    options = dict(options)
    params = SamplingParams(eos_token_ids=options.pop("eos", ()), **options)
    checker = StopChecker(None)
    seq = decode_until_finished(checker, params, FIVE_IDS)
    checker.update_text(seq, params)
    assert outcome(seq) == expected
