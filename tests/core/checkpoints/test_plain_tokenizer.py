"""A tokenizer.json without transformers, beside transformers' PreTrainedTokenizerFast for the same file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

CMUDICT = Path(__file__).parents[2] / "data" / "cmudict"
TEXTS = [
    "",
    " ",
    "a",
    " The rain in Spain , falls mainly.\n\n  In the plain!",
    "<|startoftranscript|><|notimestamps|> The rain<|endoftext|>",
    "<|nosuch|> <|en|>x<|0.00|>",
    "Größe — naïve café, ﬁne №5",
    "東京は夜の七時 🇯🇵 👩‍👩‍👧",
    "العربية हिन्दी עברית ไทย",
    "e\u0301 \u00a0\u200b\ufeff\0 tab\tend",
    "\ufffd broken",
]


@pytest.fixture(scope="module", params=["tiny.en", "base"])
def pair(request, tiny_en_dir, base_dir):
    """Ours and transformers', of one file."""
    file = (tiny_en_dir if request.param == "tiny.en" else base_dir) / "tokenizer.json"
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(file), clean_up_tokenization_spaces=False)
    return load_tokenizer(file.parent), theirs


def agree_on_text(pair, text):
    ours, theirs = pair
    for add in (True, False):
        expected = theirs(text, add_special_tokens=add).input_ids
        assert ours(text, add_special_tokens=add).input_ids == expected
        assert ours.encode(text, add_special_tokens=add) == expected
    assert ours(text).input_ids == theirs(text).input_ids


def agree_on_tokens(pair, tokens):
    ours, theirs = pair
    for skip in (True, False):
        expected = theirs.decode(tokens, skip_special_tokens=skip)
        assert ours.decode(tokens, skip_special_tokens=skip) == expected
        assert ours.decode(tokens, skip_special_tokens=skip, clean_up_tokenization_spaces=False) == expected
    assert ours.decode(tokens) == theirs.decode(tokens)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_become_the_same_tokens(pair, text):
    agree_on_text(pair, text)
    agree_on_tokens(pair, pair[1](text).input_ids)


@settings(max_examples=200)
@given(text=st.text(max_size=40))
def test_any_text_becomes_the_same_tokens(pair, text):
    agree_on_text(pair, text)


@settings(max_examples=300)
@given(tokens=st.lists(st.integers(0, 51_900), max_size=30))  # beyond the last token, too; most are no whole characters
def test_any_tokens_become_the_same_text(pair, tokens):
    agree_on_tokens(pair, tokens)


def test_single_tokens_become_the_same_text(pair):
    ours, theirs = pair
    for token in range(52_000):
        assert ours.decode([token]) == theirs.decode([token])


def test_sequences_of_any_type(pair):
    ours, theirs = pair
    tokens = theirs("The rain in Spain").input_ids
    for sequence in (tuple(tokens), np.array(tokens), torch.tensor(tokens)):
        assert ours.decode(sequence) == theirs.decode(tokens)


@pytest.mark.parametrize("token", [-1, 2**32])
def test_what_is_no_token_id_is_refused(pair, token):
    for tokenizer in pair:
        with pytest.raises(OverflowError):
            tokenizer.decode([token])


def test_vocabulary(pair):
    ours, theirs = pair
    assert ours.get_vocab() == theirs.get_vocab()
    for token in ("<|endoftext|>", "<|0.00|>", "Ġthe", "the", " the", "no such token", ""):
        assert ours.convert_tokens_to_ids(token) == theirs.convert_tokens_to_ids(token)
    assert ours.clean_up_tokenization_spaces is theirs.clean_up_tokenization_spaces is False


def test_padding_and_truncation_of_the_file_are_left_out(tiny_en_dir, tmp_path):
    settings = json.loads((tiny_en_dir / "tokenizer.json").read_text(encoding="utf-8"))
    settings["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    settings["padding"] = {
        "strategy": {"Fixed": 20},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 50256,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    settings["post_processor"] = None
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    ours, theirs = PlainTokenizer(Tokenizer.from_file(str(file))), PreTrainedTokenizerFast(tokenizer_file=str(file))
    agree_on_text((ours, theirs), "The rain in Spain falls mainly in the plain")


@pytest.mark.parametrize("name", ["bart-g2p"])
def test_files_that_stand_beside_a_tokenizer_config(name):
    file = CMUDICT / name / "tokenizer.json"
    pair = PlainTokenizer(Tokenizer.from_file(str(file))), PreTrainedTokenizerFast(tokenizer_file=str(file))
    for text in ("rain", "<s> rain </s>", "r a i n", "Zürich"):
        agree_on_text(pair, text)
        agree_on_tokens(pair, pair[1](text).input_ids)


def test_cleaning_up_is_refused(pair):
    with pytest.raises(ValueError, match=r"needs a tokenizer_config\.json"):
        pair[0].decode([1], clean_up_tokenization_spaces=True)


def test_special_ids_are_those_that_are_skipped(pair):
    ours, _ = pair
    special = set(ours.all_special_ids)
    assert ours.convert_tokens_to_ids("<|endoftext|>") in special
    for token in {*range(0, 50_000, 997), *special}:
        assert (ours.decode([token], skip_special_tokens=True) == "") == (token in special)
