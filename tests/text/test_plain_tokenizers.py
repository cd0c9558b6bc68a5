"""Translation with a tokenizer of no class of its own, as a lone tokenizer.json or PreTrainedTokenizerFast makes it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_checkpoints import mbart_tokenizer, nllb_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MBart50Tokenizer, MBartTokenizer, PreTrainedTokenizerFast
from views import view_of

from transept.core.checkpoints.plain_tokenizer import PlainTokenizer
from transept.errors import ParameterError
from transept.plugins.bart import register_models

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = {spec.name: spec for spec in register_models()}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def backend(words: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: token for token, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.fixture(params=["a lone tokenizer.json", "PreTrainedTokenizerFast"])
def plain(request: pytest.FixtureRequest) -> Any:
    """Make such a tokenizer of one of the tokenizers library's."""
    if request.param == "a lone tokenizer.json":
        return PlainTokenizer
    return lambda tokenizer: PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("family", ["mbart", "mbart50", "nllb"])
def test_a_plain_tokenizer_is_asked_as_that_of_the_family(family: str, plain: Any) -> None:
    if family == "nllb":
        full, (source, target) = nllb_tokenizer(), ("eng_Latn", "fra_Latn")
    else:
        full = mbart_tokenizer(MBartTokenizer if family == "mbart" else MBart50Tokenizer)
        source, target = "en_XX", "ro_RO"
    spec = SPECS["m2m100" if family == "nllb" else "mbart"]
    start = full.convert_tokens_to_ids(target) if family == "mbart" else 2
    config = SimpleNamespace(decoder_start_token_id=start, eos_token_id=2, forced_bos_token_id=None)
    tokenizer = plain(Tokenizer.from_str(full.backend_tokenizer.to_str()))
    translate, languages = spec.text.translate, spec.text.languages
    assert translate(view_of(config, tokenizer), source, target) == translate(view_of(config, full), source, target)
    assert {*languages(view_of(config, tokenizer))[0]} == {*languages(view_of(config, full))[0]}
    rule = spec.prepare_decoder_prompt
    german = full.convert_tokens_to_ids("deu_Latn" if family == "nllb" else "de_DE")
    assert rule([german, 9], view_of(config, tokenizer)) == rule([german, 9], view_of(config, full))


def test_m2m100s_codes_are_found_in_a_vocabulary(plain: Any) -> None:
    tokenizer = plain(backend([*SPECIAL, "word", "__en__", "__fr__", "__ast__"]))
    config = SimpleNamespace(decoder_start_token_id=2, eos_token_id=2, forced_bos_token_id=None)
    task = SPECS["m2m100"].text.translate(view_of(config, tokenizer), "en", "ast")
    assert (task.special_tokens, task.decoder_prompt) == (([5], [2]), [2, 7])
    assert task.settings == {"forced_bos_token_id": 7}


@pytest.mark.parametrize("more", [0, 3, 64])
def test_mbarts_codes_are_where_the_tokenizer_names_them(more: int) -> None:
    tokenizer = mbart_tokenizer(MBartTokenizer)
    romanian, german = (tokenizer.lang_code_to_id[code] for code in ("ro_RO", "de_DE"))
    config = SimpleNamespace(decoder_start_token_id=romanian, eos_token_id=2, vocab_size=len(tokenizer) + more)
    rule, view = SPECS["mbart"].prepare_decoder_prompt, view_of(config, tokenizer)
    assert rule([german, 9], view) == [german, 9]
    for word in (9, *range(len(tokenizer), len(tokenizer) + more)):
        assert rule([word], view) == [romanian, word]


@pytest.fixture
def marian(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES / "transept-marian"))
    from transept_marian import register_models

    yield register_models()[0].text
    for name in [name for name in sys.modules if name.startswith("transept_marian")]:
        del sys.modules[name]


def test_marian_finds_its_targets_in_a_vocabulary(marian: Any, plain: Any) -> None:
    view = view_of(SimpleNamespace(), plain(backend([*SPECIAL, ">>fra<<", "word", ">>por_Latn<<", ">>", "<<"])))
    assert marian.languages(view) == ([], ["fra", "por_Latn"])
    assert marian.translate(view, None, "por_Latn").prefix == ">>por_Latn<< "
    with pytest.raises(ParameterError, match=r"target is missing: this model translates to several languages.*fra"):
        marian.translate(view, None, None)


def test_marian_of_one_target_translates_without_being_told(marian: Any, plain: Any) -> None:
    view = view_of(SimpleNamespace(), plain(backend([*SPECIAL, "word"])))
    assert marian.languages(view) == ([], [])
    assert marian.translate(view, None, None).prefix == ""
    for languages in (("en", None), (None, "fr")):
        with pytest.raises(
            ParameterError, match=r"tokenizer does not say its languages, .*; leave source and target out"
        ):
            marian.translate(view, *languages)
