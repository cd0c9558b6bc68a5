"""SamplingParams: what is refused, what is equal, and what a checkpoint's generation_config.json completes."""

import dataclasses
import math

import numpy as np
import pytest
from transformers import GenerationConfig

from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.core.request.generation_defaults import complete as complete_params
from transept.core.request.generation_defaults import tokenize_bad_words
from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError

VOCAB_SIZE = 100
ROOM = 40  # positions left for output
PROMPT_LENGTH = 3


def resolve(params, **generation):
    return complete_params(
        params,
        GenerationConfig(**generation),
        prompt_token_ids=range(PROMPT_LENGTH),
        max_positions=PROMPT_LENGTH + ROOM,
        vocab_size=VOCAB_SIZE,
    )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("temprature", "temperature"),
        ("topk", "top_k"),
        ("repitition_penalty", "repetition_penalty"),
        ("stop_tokens_ids", "stop_token_ids"),
        ("logprob", "logprobs"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, nearest):
    with pytest.raises(ParameterError, match=rf"no '{name}'\. Did you mean '{nearest}'\?"):
        SamplingParams(**{name: 1})


def test_names_of_transformers_are_answered_with_ours():
    with pytest.raises(ParameterError, match=r"no 'max_output_tokens'\. Here that is 'max_new_tokens'"):
        SamplingParams(max_output_tokens=5)


def test_unknown_name_without_a_neighbour_lists_the_known():
    with pytest.raises(ParameterError, match=r"no 'xyzzy'\. docs/options\.md lists all \d+ names"):
        SamplingParams(xyzzy=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("n", "max_tokens", "logprobs", "num_beams", "num_return_sequences")
            for value in (0, -1, 1.5, "2", True)
        ),
        *(
            (name, value)
            for name in (
                "min_tokens",
                "top_k",
                "seed",
                "no_repeat_ngram_size",
                "encoder_no_repeat_ngram_size",
                "forced_bos_token_id",
            )
            for value in (-1, 1.5, "2", False)
        ),
        *(("length_penalty", value) for value in (math.inf, math.nan, "1", True, 33, -33)),
        *(("patience", value) for value in (0, -1.0, math.inf, None)),
        *(("logits_processors", value) for value in ("abc", [7], [[]])),
        *(("early_stopping", value) for value in ("always", 2, None.__class__, [])),
        *(("bad_words_ids", value) for value in ([1], [[]], [[-1]], 7, "ab")),
        *(("sequence_bias", value) for value in (7, [7], {(): 1.0}, {(-1,): 1.0}, {(1,): math.nan}, {(1,): 1e7})),
        *(("exponential_decay_length_penalty", value) for value in (7, (1,), (1.5, 2.0), (1, 0.0), (1, math.inf))),
        *(("encoder_repetition_penalty", value) for value in (0, -1.0, "2")),
        *(("max_time", value) for value in (-1, math.inf, "2")),
        *(("forced_eos_token_id", value) for value in (-1, 1.5, "2")),
        ("n", None),
        ("seed", 2**64),
        *((name, value) for name in ("temperature", "repetition_penalty") for value in (-0.1, math.inf, 10**400)),
        ("temperature", 1.1e38),
        *((name, value) for name in ("top_p", "min_p") for value in (-0.1, 1.1)),
        *((name, value) for name in ("presence_penalty", "frequency_penalty") for value in (-2.1, 2.1)),
        *(
            (name, value)
            for name in ("temperature", "repetition_penalty", "top_p", "min_p", "presence_penalty", "frequency_penalty")
            for value in (math.nan, "1", True, 1j)
        ),
        *((name, None) for name in ("presence_penalty", "frequency_penalty")),
        ("top_p", 0.0),
        ("repetition_penalty", 0.0),
        *(
            (name, value)
            for name in ("allowed_token_ids", "suppress_tokens", "begin_suppress_tokens", "stop_token_ids")
            for value in ([-1], [1.5], ["1"], "1", 7, [None])
        ),
        ("stop_token_ids", None),
        *(("logit_bias", value) for value in ([1, 2], {"a": 1.0}, {1: "b"}, {1: None}, 5, None)),
        *(("logit_bias", value) for value in ({-1: 1.0}, {1: math.nan}, {1: -math.inf}, {1: 1e39})),
        *((name, value) for name in ("stop", "bad_words") for value in ("", ["a", ""], [1], 5, None, b"end")),
        ("stop", ["a"] * 257),
        ("bad_words", ["a"] * 2049),
        ("bad_words_ids", [[1]] * 8193),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("n", np.int64(3)),
        ("max_tokens", 1),
        ("min_tokens", 0),
        ("temperature", 0),
        ("temperature", 1e-30),
        ("temperature", np.float32(0.5)),
        ("top_k", 0),
        ("top_p", 1.0),
        ("top_p", 1e-9),
        ("min_p", 1.0),
        ("repetition_penalty", 0.1),
        ("presence_penalty", -2.0),
        ("frequency_penalty", 2),
        ("seed", 0),
        ("seed", 2**64 - 1),
        ("logprobs", 1),
        ("stop", "\n"),
        ("stop", ["a", "b"]),
        ("stop_token_ids", np.array([1, 2])),
        ("logit_bias", {5: -100}),
        ("suppress_tokens", []),
        ("length_penalty", -2.5),
        ("early_stopping", "never"),
        ("early_stopping", False),
        ("bad_words_ids", []),
        ("bad_words_ids", [[3], (4, 5)]),
        ("forced_bos_token_id", 0),
        ("forced_eos_token_id", 0),
        ("forced_eos_token_id", [2, 3]),
    ],
)
def test_values_at_the_edge_of_their_range_are_taken(name, value):
    SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens=5 is over max_tokens=4"),
        ({"temperature": 0, "n": 2}, "n=2 has no meaning"),
        ({"temperature": 0, "top_k": 5}, "top_k=5 has no meaning"),
        ({"temperature": 0, "top_p": 0.5}, "top_p=0.5 has no meaning"),
        ({"temperature": 0, "min_p": 0.1}, "min_p=0.1 has no meaning"),
        ({"temperature": 0, "typical_p": 0.1}, "typical_p=0.1 has no meaning"),
        ({"typical_p": 0}, "typical_p must be a number above 0 and at most 1, not 0"),
        ({"epsilon_cutoff": 1}, "epsilon_cutoff must be a number of at least 0 and below 1, not 1"),
        ({"allowed_token_ids": []}, "leaves no token"),
        ({"allowed_token_ids": [1, 2], "suppress_tokens": [1, 2, 3]}, "leaves no token"),
        ({"allowed_token_ids": [1, 2], "begin_suppress_tokens": [1, 2]}, "leaves no token"),
        ({"allowed_token_ids": [1, 2], "suppress_tokens": [1], "begin_suppress_tokens": [2]}, "leaves no token"),
        ({"allowed_token_ids": [1], "stop_token_ids": [1], "min_tokens": 1}, "min_tokens forbids"),
        ({"num_beams": 4, "num_beam_groups": 3}, "num_beam_groups=3 must divide num_beams=4"),
        ({"num_beams": 1, "num_beam_groups": 2}, "num_beam_groups=2 must divide num_beams=1"),
        ({"num_beam_groups": 1, "diversity_penalty": 0.5}, "diversity_penalty=0.5 needs several groups"),
        ({"num_beam_groups": 2, "diversity_penalty": 0}, "would all find the same texts"),
        ({"num_beams": 2, "num_beam_groups": 2, "temperature": 1}, "num_beam_groups=2 do not work with beams"),
        ({"num_beams": 2, "num_beam_groups": 2, "keywords": ["a"]}, "keywords do not work with num_beam_groups=2"),
        ({"num_beams": 2, "temperature": 0.5, "keywords": ["a"]}, "keywords do not work with beams"),
        ({"num_beams": 4, "n": 2}, "num_return_sequences"),
        ({"num_beams": 4, "num_return_sequences": 5}, "num_return_sequences=5 is over num_beams=4"),
        ({"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 2}, "n=2"),
        ({"num_beams": 4, "num_return_sequences": 3, "patience": 0.5}, "patience=0.5 ends .*num_beams=4 with 2 hypoth"),
        ({"num_beams": 2, "temperature": 0, "top_k": 4}, "top_k=4 has no meaning"),
        ({"stop": "a", "detokenize": False}, "leave detokenize True"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        SamplingParams(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"min_tokens": 4, "max_tokens": 4},
        {"temperature": 0, "n": 1, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 0, "seed": 1},
        {"allowed_token_ids": [1, 2], "suppress_tokens": [1]},
        {"allowed_token_ids": [1], "stop_token_ids": [1]},
    ],
)
def test_neutral_values_contradict_nothing(options):
    SamplingParams(**options)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"seed": 1}, {"seed": 2}),
        ({"stop": "a"}, {"stop": ["a"]}),
        ({"stop_token_ids": [1, 2]}, {"stop_token_ids": (1, 2)}),
        ({"suppress_tokens": [1]}, {"suppress_tokens": np.array([1])}),
        ({"logit_bias": {2: 1, 1: 0.5}}, {"logit_bias": ((1, 0.5), (2, 1.0))}),
        ({"logit_bias": {"7": 1}}, {"logit_bias": {7: 1.0}}),
        ({"temperature": 1}, {"temperature": 1.0}),
        ({"bad_words_ids": [[1], [2, 3]]}, {"bad_words_ids": ((1,), np.array([2, 3]))}),
        ({"forced_eos_token_id": 2}, {"forced_eos_token_id": [2]}),
        ({"bad_words": "a"}, {"bad_words": ["a"]}),
        ({"keywords": "a, b"}, {"keywords": ["a", "b"]}),
    ],
)
def test_equal_parameters_are_equal_and_hash_alike(one, other):
    assert SamplingParams(**one) == SamplingParams(**other)
    assert hash(SamplingParams(**one)) == hash(SamplingParams(**other))


@pytest.mark.parametrize(
    "options",
    [
        {"n": 2},
        {"max_tokens": 5},
        {"min_tokens": 5},
        {"temperature": 0.5},
        {"top_k": 5},
        {"top_p": 0.5},
        {"min_p": 0.5},
        {"typical_p": 0.5},
        {"epsilon_cutoff": 0.1},
        {"eta_cutoff": 0.1},
        {"top_h": 0.5},
        {"num_beams": 2},
        {"num_beam_groups": 2},
        {"diversity_penalty": 0.5},
        {"num_return_sequences": 2},
        {"length_penalty": 2.0},
        {"early_stopping": "never"},
        {"no_repeat_ngram_size": 3},
        {"encoder_no_repeat_ngram_size": 3},
        {"encoder_repetition_penalty": 1.5},
        {"exponential_decay_length_penalty": (3, 1.5)},
        {"remove_invalid_values": True},
        {"renormalize_logits": True},
        {"sequence_bias": [[[1, 2], 1.5]]},
        {"max_time": 5.0},
        {"bad_words_ids": [[1]]},
        {"bad_words": "a"},
        {"keywords": ["a"]},
        {"keyword_boost": 2.0},
        {"forced_bos_token_id": 1},
        {"forced_eos_token_id": 1},
        {"repetition_penalty": 1.5},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"logit_bias": {1: 1.0}},
        {"allowed_token_ids": [1]},
        {"suppress_tokens": []},
        {"begin_suppress_tokens": []},
        {"stop": "a"},
        {"stop_at_repetition": 3},
        {"stop_token_ids": [1]},
        {"eos_token_ids": [7]},
        {"ignore_eos": True},
        {"logprobs": 1},
        {"skip_special_tokens": False},
        {"detokenize": False},
        {"patience": 2.0},
        {"guided": {"regex": "a"}},
        {"logits_processors": (print,)},
        {"allowed_next_tokens": len},
        {"stop_at_repetition": 4},
    ],
)
def test_what_changes_the_choice_tells_parameters_apart(options):
    assert SamplingParams(**options) != SamplingParams()


NOT_COMPARED = {"seed", "prompt_probe", "draft", "draft_tokens", "draft_length"}


def test_all_that_may_change_the_choice_have_a_row_above():
    (mark,) = test_what_changes_the_choice_tells_parameters_apart.pytestmark
    rows = {name for options in mark.args[1] for name in options}
    assert rows == {field.name for field in dataclasses.fields(SamplingParams)} - NOT_COMPARED


def test_parameters_do_not_change_with_the_users_lists():
    mine = [1, 2]
    params = SamplingParams(suppress_tokens=mine)
    mine.append(3)
    assert params.suppress_tokens == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2


@pytest.mark.parametrize(
    ("own", "generation", "expected"),
    [
        # temperature
        ({}, {}, {"temperature": 0.0}),
        ({}, {"do_sample": False}, {"temperature": 0.0, "top_k": 0, "top_p": 1.0}),
        ({}, {"do_sample": True}, {"temperature": 1.0}),
        ({}, {"do_sample": True, "temperature": 0.6}, {"temperature": 0.6}),
        ({"temperature": 0.3}, {"do_sample": True, "temperature": 0.6}, {"temperature": 0.3}),
        ({"temperature": 0.3}, {}, {"temperature": 0.3, "top_k": 0, "top_p": 1.0}),
        ({"temperature": 0}, {"do_sample": True, "top_k": 5}, {"temperature": 0.0, "top_k": 0, "top_p": 1.0}),
        # truncation belongs to the checkpoint's sampling
        ({}, {"do_sample": True, "top_k": 7, "top_p": 0.8}, {"top_k": 7, "top_p": 0.8}),
        ({"top_k": 3}, {"do_sample": True, "top_k": 7, "top_p": 0.8}, {"top_k": 3, "top_p": 0.8}),
        ({"top_k": 0, "top_p": 1.0}, {"do_sample": True, "top_k": 7, "top_p": 0.8}, {"top_k": 0, "top_p": 1.0}),
        ({}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.1}),
        ({"min_p": 0.0}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.0}),
        ({"temperature": 0.3}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.1}),
        ({"temperature": 0.3}, {"min_p": 0.1}, {"min_p": 0.0}),
        ({}, {"min_p": 0.1}, {"min_p": 0.0}),
        ({}, {"do_sample": True, "typical_p": 0.9, "eta_cutoff": 0.1}, {"typical_p": 0.9, "eta_cutoff": 0.1}),
        ({"epsilon_cutoff": 0.0}, {"do_sample": True, "epsilon_cutoff": 0.1}, {"epsilon_cutoff": 0.0}),
        ({}, {"typical_p": 0.9, "top_h": 0.5}, {"typical_p": 1.0, "top_h": None}),
        ({"temperature": 0}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.0}),
        ({"num_beams": 2}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.1, "temperature": 1.0}),
        ({"num_beams": 2, "temperature": 0}, {"do_sample": True, "min_p": 0.1}, {"min_p": 0.0, "num_beams": 2}),
        ({}, {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}, {"num_beam_groups": 2}),
        ({"num_beams": 1}, {"num_beam_groups": 2, "diversity_penalty": 0.5}, {"num_beam_groups": 1}),
        ({"num_beams": 2}, {"diversity_penalty": 0.5}, {"diversity_penalty": 0.0}),
        # which is among the 50 likeliest tokens where it does not say, as in transformers
        ({}, {"do_sample": True}, {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0}),
        ({"temperature": 1.5}, {"do_sample": True}, {"temperature": 1.5, "top_k": 50}),
        ({"top_k": 0}, {"do_sample": True}, {"top_k": 0}),
        ({}, {"do_sample": True, "top_k": 0}, {"top_k": 0}),
        ({"temperature": 1.5}, {}, {"top_k": 0}),
        ({"num_beams": 2}, {"do_sample": True}, {"top_k": 50}),
        # the repetition penalty applies to greedy decoding, too
        ({}, {}, {"repetition_penalty": 1.0}),
        ({}, {"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"repetition_penalty": 1.0}, {"repetition_penalty": 1.3}, {"repetition_penalty": 1.0}),
        # suppression
        ({}, {}, {"suppress_tokens": (), "begin_suppress_tokens": ()}),
        ({}, {"suppress_tokens": [1, 2]}, {"suppress_tokens": (1, 2)}),
        ({}, {"begin_suppress_tokens": [3]}, {"begin_suppress_tokens": (3,)}),
        ({"suppress_tokens": []}, {"suppress_tokens": [1, 2]}, {"suppress_tokens": ()}),
        ({"begin_suppress_tokens": [4]}, {"begin_suppress_tokens": [3]}, {"begin_suppress_tokens": (4,)}),
        ({}, {"suppress_tokens": [1, VOCAB_SIZE, -1]}, {"suppress_tokens": (1,)}),
        # length
        ({}, {}, {"max_tokens": ROOM}),
        ({"max_tokens": ROOM - 1}, {}, {"max_tokens": ROOM - 1}),
        ({"max_tokens": ROOM + 1}, {}, {"max_tokens": ROOM}),
        ({}, {"max_length": 20}, {"max_tokens": 20 - PROMPT_LENGTH}),  # which counts the decoder prompt
        ({}, {"max_length": 20, "max_new_tokens": 7}, {"max_tokens": 7}),
        ({}, {}, {"min_tokens": 0}),
        ({}, {"min_length": 12}, {"min_tokens": 12 - PROMPT_LENGTH}),
        ({}, {"min_length": 2}, {"min_tokens": 0}),
        ({}, {"min_length": 12, "min_new_tokens": 4}, {"min_tokens": 4}),
        ({"min_tokens": 0}, {"min_length": 12, "min_new_tokens": 4}, {"min_tokens": 0}),
        ({"max_tokens": 5}, {"min_length": 12}, {"min_tokens": 5}),  # the user's bound wins over a default
        # beam search, unless the user asks for something else
        (
            {},
            {},
            {
                "num_beams": 1,
                "num_beam_groups": 1,
                "diversity_penalty": 0.0,
                "num_return_sequences": 1,
                "length_penalty": 1.0,
                "early_stopping": False,
            },
        ),
        ({}, {"num_beams": 4}, {"num_beams": 4, "temperature": 0.0}),
        ({"temperature": 0.0}, {"num_beams": 4}, {"num_beams": 1}),
        ({"temperature": 0.7, "n": 3}, {"num_beams": 4}, {"num_beams": 1, "temperature": 0.7}),
        ({"temperature": 0.0, "num_beams": 2}, {"num_beams": 4}, {"num_beams": 2}),
        ({"num_beams": 2}, {"num_beams": 4, "num_return_sequences": 3}, {"num_return_sequences": 2}),
        (
            {"num_beams": 3, "num_return_sequences": 2},
            {"num_beams": 4, "num_return_sequences": 3},
            {"num_return_sequences": 2},
        ),
        (
            {},
            {"num_beams": 2, "length_penalty": 2.0, "early_stopping": "never"},
            {"length_penalty": 2.0, "early_stopping": "never"},
        ),
        ({"early_stopping": False}, {"num_beams": 2, "early_stopping": True}, {"early_stopping": False}),
        # runs and forced tokens
        ({}, {}, {"no_repeat_ngram_size": 0, "bad_words_ids": (), "forced_bos_token_id": None}),
        ({}, {"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
        ({"no_repeat_ngram_size": 0}, {"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 0}),
        ({}, {"encoder_no_repeat_ngram_size": 3}, {"encoder_no_repeat_ngram_size": 3}),
        ({"encoder_no_repeat_ngram_size": 0}, {"encoder_no_repeat_ngram_size": 3}, {"encoder_no_repeat_ngram_size": 0}),
        ({}, {"stop_strings": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": "c"}, {"stop_strings": "ab"}, {"stop": ("c",)}),
        ({"detokenize": False}, {"stop_strings": "ab"}, {"stop": ()}),
        ({}, {"sequence_bias": [[[4, 5], 2.0], [[VOCAB_SIZE], 1.0]]}, {"sequence_bias": (((4, 5), 2.0),)}),
        ({"sequence_bias": ()}, {"sequence_bias": {(4, 5): 2.0}}, {"sequence_bias": ()}),
        ({"max_time": 3}, {"max_time": 2.0}, {"max_time": 3.0}),
        ({}, {"exponential_decay_length_penalty": [5, 1.1]}, {"exponential_decay_length_penalty": (5, 1.1)}),
        ({}, {"bad_words_ids": [[4], [5, 6], [9]], "eos_token_id": 9}, {"bad_words_ids": ((4,), (5, 6))}),
        ({}, {"forced_bos_token_id": 8, "forced_eos_token_id": 9}, {"forced_bos_token_id": 8}),
        ({}, {"forced_eos_token_id": [8, 9]}, {"forced_eos_token_id": (8, 9)}),
        ({"forced_eos_token_id": ()}, {"forced_eos_token_id": 9}, {"forced_eos_token_id": ()}),
        ({}, {"forced_bos_token_id": VOCAB_SIZE}, {"forced_bos_token_id": None}),
    ],
)
def test_resolve_completes_what_the_user_left_open(own, generation, expected):
    params = resolve(SamplingParams(**own), **generation)
    assert {name: getattr(params, name) for name in expected} == expected


def test_resolve_leaves_nothing_open_that_the_sampler_reads():
    params = resolve(SamplingParams(), do_sample=True)
    left_open = {field.name for field in dataclasses.fields(params) if getattr(params, field.name) is None}
    left_open -= {"stop_at_repetition", "draft", "draft_tokens", "draft_length"}  # which the scheduler reads
    unset = {"allowed_token_ids", "allowed_next_tokens", "logprobs", "forced_bos_token_id", "prompt_probe", "top_h"}
    assert left_open == {*unset, "guided", "exponential_decay_length_penalty", "max_time"}


def test_a_bos_token_in_the_prompt_counts_as_new_in_the_checkpoints_lengths():
    """transformers' generate starts from <DEC> and forces <BOS>; here the decoder prompt is <DEC><BOS>."""
    decay = {"exponential_decay_length_penalty": (5, 1.1)}
    generation = {"forced_bos_token_id": 0, "max_new_tokens": 10, "min_new_tokens": 4, **decay}

    def lengths(prompt_token_ids, **own):
        params = complete_params(
            SamplingParams(**own),
            GenerationConfig(**generation),
            prompt_token_ids=prompt_token_ids,
            max_positions=None,
            vocab_size=VOCAB_SIZE,
        )
        return params.min_tokens, params.exponential_decay_length_penalty[0], params.max_tokens

    assert lengths([2, 0]) == (3, 4, 9)
    assert lengths([2]) == (4, 5, 10)
    assert lengths([2, 0, 7]) == (4, 5, 10)
    assert lengths([2, 7]) == (4, 5, 10)
    assert lengths([2, 0], min_tokens=4, max_tokens=10, **decay) == (4, 5, 10)  # the user's own are as they say


def test_bad_words_are_tokenized_as_words_and_within_words(tiny_en_dir):
    tokenizer = load_tokenizer(tiny_en_dir)
    resolved = resolve(SamplingParams(bad_words=["cat"]), bad_words_ids=[[7]])
    params = tokenize_bad_words(resolved, tokenizer)
    assert params.bad_words == ()
    assert params.bad_words_ids[0] == (7,)
    assert [tokenizer.decode(list(run)) for run in params.bad_words_ids[1:]] == ["cat", " cat"]
    with pytest.raises(ParameterError, match="pass bad_words_ids"):
        tokenize_bad_words(resolved, None)


def test_resolve_keeps_what_the_user_gave():
    own = {
        "n": 2, "max_tokens": 9, "min_tokens": 3, "temperature": 0.7, "top_k": 4, "top_p": 0.9, "min_p": 0.01,
        "typical_p": 0.9, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "top_h": 0.9,
        "repetition_penalty": 1.2, "presence_penalty": 0.1, "frequency_penalty": 0.2, "logit_bias": {1: 2.0},
        "allowed_token_ids": [1, 2, 3], "suppress_tokens": [9], "begin_suppress_tokens": [8], "stop": "x",
        "stop_token_ids": [7], "eos_token_ids": [6], "ignore_eos": True, "seed": 5, "logprobs": 2,
        "skip_special_tokens": False,
        "num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0,
        "num_return_sequences": 1, "length_penalty": 0.5, "early_stopping": True,
        "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 3, "bad_words_ids": [[4, 5]],
        "forced_bos_token_id": 3, "forced_eos_token_id": 4, "encoder_repetition_penalty": 1.1, "max_time": 9.0,
        "exponential_decay_length_penalty": (2, 1.1), "remove_invalid_values": True, "renormalize_logits": True,
        "sequence_bias": {(4, 5): 1.0},
    }  # fmt: skip
    params = SamplingParams(**own)
    generation = {"do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "repetition_penalty": 9.0}
    resolved = resolve(params, suppress_tokens=[50], begin_suppress_tokens=[51], **generation)
    assert resolved == params
    assert resolved.seed == 5


def test_sampling_without_a_seed_draws_one_at_random():
    seeds = {resolve(SamplingParams(temperature=1.0)).seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert resolve(SamplingParams(), do_sample=True).seed is not None


def test_greedy_decoding_needs_no_seed():
    assert resolve(SamplingParams()).seed is None


@pytest.mark.parametrize("options", [{"n": 2}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_sampling_options_on_a_greedy_checkpoint_ask_for_a_temperature(options):
    with pytest.raises(ParameterError, match="set temperature above 0"):
        resolve(SamplingParams(**options))
    assert resolve(SamplingParams(**options), do_sample=True).temperature == 1.0


@pytest.mark.parametrize(
    ("own", "generation", "message"),
    [
        ({"min_tokens": ROOM + 1}, {}, f"min_tokens={ROOM + 1} is over max_tokens={ROOM}"),
        ({"allowed_token_ids": [1]}, {"suppress_tokens": [1]}, "leaves no token"),
        ({"allowed_token_ids": [1]}, {"begin_suppress_tokens": [1]}, "leaves no token"),
        ({"allowed_token_ids": [1], "min_tokens": 2}, {"eos_token_id": 1}, "min_tokens forbids"),
        ({"allowed_token_ids": [1, 2], "min_tokens": 2}, {"eos_token_id": [1, 2]}, "min_tokens forbids"),
        ({"logprobs": VOCAB_SIZE + 1}, {}, f"logprobs={VOCAB_SIZE + 1} is more than the {VOCAB_SIZE} tokens"),
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, {}, f"logit_bias holds {VOCAB_SIZE}; .* end at {VOCAB_SIZE - 1}"),
        ({"allowed_token_ids": [1, VOCAB_SIZE]}, {}, f"allowed_token_ids holds {VOCAB_SIZE}"),
        ({"suppress_tokens": [VOCAB_SIZE]}, {}, f"suppress_tokens holds {VOCAB_SIZE}"),
        ({"begin_suppress_tokens": [VOCAB_SIZE]}, {}, f"begin_suppress_tokens holds {VOCAB_SIZE}"),
        ({"stop_token_ids": [VOCAB_SIZE]}, {}, f"stop_token_ids holds {VOCAB_SIZE}"),
        ({"bad_words_ids": [[1, VOCAB_SIZE]]}, {}, f"bad_words_ids holds {VOCAB_SIZE}"),
        ({"forced_bos_token_id": VOCAB_SIZE}, {}, f"forced_bos_token_id holds {VOCAB_SIZE}"),
        ({"forced_eos_token_id": VOCAB_SIZE}, {}, f"forced_eos_token_id holds {VOCAB_SIZE}"),
        ({"num_return_sequences": 3}, {"num_beams": 2}, "num_return_sequences=3 is over num_beams=2"),
        ({"num_return_sequences": 3}, {}, "n=3"),
    ],
)
def test_contradictions_with_the_checkpoint_are_refused(own, generation, message):
    with pytest.raises(ParameterError, match=message):
        resolve(SamplingParams(**own), **generation)


def test_greedy():
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=0.1).greedy


@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_a_beam_search_with_a_filter_needs_a_temperature(options):
    with pytest.raises(ParameterError, match="set temperature above 0"):
        SamplingParams(num_beams=3, temperature=0, **options)
    with pytest.raises(ParameterError, match="set temperature above 0"):
        resolve(SamplingParams(num_beams=3, **options))
    assert resolve(SamplingParams(num_beams=3, temperature=0.5, **options)).draws_beams
