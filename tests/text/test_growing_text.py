"""The text of a sequence that grows, made from its last tokens, against all tokens decoded for every new one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_checkpoints import TEXTS, bart_tokenizer, mbart_tokenizer, nllb_tokenizer, t5_tokenizer
from tokenizers import Tokenizer, decoders, models
from transformers import BertTokenizer, MBartTokenizer, PreTrainedTokenizerFast

from transept.core.checkpoints.plain_tokenizer import PlainTokenizer
from transept.core.scheduling import growing_text
from transept.core.scheduling.growing_text import LONGEST, OVERLAP, GrowingText

LONG = " ".join(TEXTS) + " Don't 🦉 ask: 鯨 é, it isn't 👩🏽‍🚀 they're , we've . Done ! " + " ".join(reversed(TEXTS))


def bytes_tokenizer():
    """Words and, for what they lack, bytes, as in Gemma's vocabularies."""
    pieces = {"<unk>": 0, "<pad>": 1, **{f"<0x{byte:02X}>": byte + 2 for byte in range(256)}}
    for word in (*"▁abcdefghijklmnopqrstuvwxyz", "▁the", "▁church"):
        pieces.setdefault(word, len(pieces))
    tokenizer = Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


def bert_tokenizer():
    """Pieces of words, and text that is cleaned up: no blank before punctuation."""
    letters = "abcdefghijklmnopqrstuvwxyz.,!?':;"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{each}" for each in letters)]
    words += ["the", "church", "##ing", "n", "not", "do", "is"]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)}, clean_up_tokenization_spaces=True)


@pytest.fixture(scope="module")
def tokenizers(tiny_en_dir):
    return {
        "whisper": PlainTokenizer(Tokenizer.from_file(str(tiny_en_dir / "tokenizer.json"))),
        "bart": bart_tokenizer(),
        "t5": t5_tokenizer(),
        "mbart": mbart_tokenizer(MBartTokenizer),
        "nllb": nllb_tokenizer(),
        "bytes": bytes_tokenizer(),
        "bert": bert_tokenizer(),
    }


NAMES = ("whisper", "bart", "t5", "mbart", "nllb", "bytes", "bert")


def check_grows(tokenizer, token_ids, skip_special_tokens):
    """Compare after every token. Returns how many tokens were decoded."""
    decoded = 0

    def decode(ids):
        nonlocal decoded
        decoded += len(ids)
        return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    growing = GrowingText()
    for length in range(1, len(token_ids) + 1):
        whole = tokenizer.decode(token_ids[:length], skip_special_tokens=skip_special_tokens)
        assert growing.of(token_ids[:length], decode) == whole
        growing = growing.copy() if length % 7 == 0 else growing
    return decoded


@pytest.mark.parametrize("name", NAMES)
def test_a_text_grows_as_all_its_tokens_are_decoded(tokenizers, name):
    tokenizer = tokenizers[name]
    assert tokenizer.is_fast
    token_ids = list(tokenizer(LONG, add_special_tokens=False).input_ids)
    assert len(token_ids) > 100
    decoded = check_grows(tokenizer, token_ids, skip_special_tokens=True)
    assert decoded < (LONGEST + OVERLAP) * len(token_ids)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data(), skip=st.booleans(), sizes=st.sampled_from(((LONGEST, OVERLAP), (8, 3), (4, 2))))
def test_tokens_in_any_order(tokenizers, name, data, skip, sizes):
    tokenizer = tokenizers[name]
    tokens = st.sampled_from(sorted(tokenizer.get_vocab().values())) | st.sampled_from(tokenizer.all_special_ids or [0])
    few = data.draw(st.lists(tokens, min_size=1, max_size=12))  # so that runs repeat
    token_ids = data.draw(st.lists(st.sampled_from(few), min_size=1, max_size=sizes[0] * 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_text, "LONGEST", sizes[0])
        patch.setattr(growing_text, "OVERLAP", sizes[1])
        check_grows(tokenizer, token_ids, skip)
