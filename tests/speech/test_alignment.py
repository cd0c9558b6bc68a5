"""Median filter and dynamic time warping against openai-whisper's own, and token pieces against its tokenizer."""

import numpy as np
import pytest
import torch
import whisper.timing
from whisper.tokenizer import get_tokenizer

from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.core.kernels.cpu.speech.alignment import NEIGHBOURS
from transept.speech.timing.words import median_filter, split_words, warping_path

SENTENCES = {
    "en": " \"Well,\" said Mr. O'Neill (slowly) - it's 9:30... isn't it?",
    "de": " Über fünfzig Straßen, „ganz“ ohne Übermut!",
    "ru": " Съешь ещё этих мягких французских булок, да выпей же чаю.",
    "el": " Ξεσκεπάζω την ψυχοφθόρα βδελυγμία;",
    "hi": " ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश।",
    "ar": " نص حكيم له سر قاطع وذو شأن عظيم؟",
    "zh": "视野无限广，窗外有蓝天。龘𪚥",  # noqa: RUF001
    "ja": "いろはにほへと、散りぬるを「我が世」誰ぞ?",
    "th": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดา",
    "my": "သီဟိုဠ်မှ ဉာဏ်ကြီးရှင်သည်",
    "ko": " 다람쥐 헌 쳇바퀴에 타고파.",
    "emoji": " 👩🏽‍🚀 said\u00a0hi\t🇩🇪\n  twice  ",
}


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 3), (3, 2), (40, 7), (13, 250), (120, 500)])
@pytest.mark.parametrize("values", ["any", "ties"])
def test_the_path_is_that_of_openai_whisper(shape: tuple[int, int], values: str) -> None:
    draws = np.random.default_rng(0)
    for _ in range(5):
        cost = draws.standard_normal(shape) if values == "any" else draws.integers(0, 3, shape)
        cost = cost.astype(np.float32)
        rows, columns = warping_path(cost)
        expected_rows, expected_columns = whisper.timing.dtw_cpu(cost.astype(np.float64))
        assert rows.tolist() == expected_rows.tolist()
        assert columns.tolist() == expected_columns.tolist()


@pytest.mark.parametrize("shape", [(2, 3), (2, 4), (3, 8), (2, 5, 100), (1, 1500)])
@pytest.mark.parametrize("values", ["any", "ties"])
def test_the_median_is_that_of_openai_whisper(shape: tuple[int, ...], values: str) -> None:
    draws = np.random.default_rng(1)
    numbers = draws.standard_normal(shape) if values == "any" else draws.integers(0, 3, shape)
    expected = whisper.timing.median_filter(torch.from_numpy(numbers.astype(np.float32)), 2 * NEIGHBOURS + 1)
    assert np.array_equal(median_filter(numbers.astype(np.float32)), expected.numpy())


@pytest.fixture(scope="module")
def tokenizer(base_dir):
    return load_tokenizer(base_dir)


@pytest.mark.parametrize("language", SENTENCES)
def test_words_are_those_of_openai_whisper(tokenizer, language: str) -> None:
    reference = get_tokenizer(True, language="en" if language == "emoji" else language)
    tokens = reference.encode(SENTENCES[language])
    expected_words, expected_tokens = reference.split_to_word_tokens([*tokens, reference.eot])
    words = split_words(tokens, tokenizer, language)
    assert [word for word, _ in words] == expected_words[:-1]
    assert [ids for _, ids in words] == expected_tokens[:-1]


def test_tokens_that_make_no_text_are_split_as_by_openai_whisper_as_far_as_that_goes(tokenizer) -> None:
    """It may come to no end after bytes that are no characters; then the rest is one word here."""
    reference = get_tokenizer(True, language="ja")
    draws = np.random.default_rng(2)
    byte_tokens = [*range(256), *(token for token in range(256, 3000) if "\ufffd" in reference.decode([token]))]
    ended = 0
    for _ in range(100):
        tokens = [int(token) for token in draws.choice(byte_tokens, 12)] + reference.encode(" end")
        expected = list(zip(*reference.split_to_word_tokens([*tokens, reference.eot]), strict=True))
        words = split_words(tokens, tokenizer, "ja")
        assert [token for _, ids in words for token in ids] == tokens
        if expected[-1][1] == [reference.eot]:
            ended += 1
            assert words == expected[:-1]
        else:
            assert words[: len(expected)] == expected
            assert len(words) == len(expected) + 1
    assert 50 < ended < 100


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_text_that_breaks_off_inside_a_character_loses_no_token(tokenizer, language: str) -> None:
    tokens = get_tokenizer(True, language=language).encode(" sushi 寿龘")
    for length in range(1, len(tokens) + 1):
        words = split_words(tokens[:length], tokenizer, language)
        assert [token for _, ids in words for token in ids] == tokens[:length]
        assert "".join(word for word, _ in words) == tokenizer.decode(tokens[:length])
