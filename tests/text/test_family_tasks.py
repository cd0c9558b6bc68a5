"""Tasks of the built-in families: prefixes, language codes, refusals."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_checkpoints import T5_TASKS, TEXTS, m2m100_tokenizer, mbart_tokenizer, nllb_tokenizer, t5_tokenizer
from transformers import MBart50Tokenizer, MBartConfig, MBartTokenizer
from views import view_of

from transept.authoring import ModelSpec, TextTask
from transept.errors import ParameterError, UnsupportedTaskError
from transept.registry.plugins import discover
from transept.text.encoding import DocumentEncoder

SPECS: dict[str, ModelSpec] = {spec.name: spec for report in discover().reports for spec in report.models}
G2P = {"translation_graphemes_to_phonemes": {}, "translation_phonemes_to_graphemes": {}}


def translate_t5(
    tasks: dict[str, dict] | None, source: str | None, target: str | None, family: str = "t5", tokenizer: Any = None
) -> TextTask:
    config = SimpleNamespace(task_specific_params=tasks)
    return SPECS[family].text.translate(view_of(config, tokenizer or t5_tokenizer()), source, target)


@pytest.mark.parametrize(
    ("tasks", "source", "target", "name", "prefix"),
    [
        (None, "en", "de", "translation_en_to_de", "translate English to German: "),
        (None, "German", "romanian", "translation_de_to_ro", "translate German to Romanian: "),
        (T5_TASKS, "English", "fr", "translation_en_to_fr", "translate English to French: "),
        (T5_TASKS, None, "de", "translation_en_to_de", "translate English to German: "),
        (T5_TASKS, "fr", "en", "translation_fr_to_en", "translate French to English: "),
        (G2P, "graphemes", "Phonemes", "translation_graphemes_to_phonemes", ""),
        (G2P, None, "graphemes", "translation_phonemes_to_graphemes", ""),
        ({"translation_en_to_xx": {}}, None, None, "translation_en_to_xx", ""),
    ],
)
def test_t5_translations(
    tasks: dict[str, dict] | None, source: str | None, target: str | None, name: str, prefix: str
) -> None:
    task = translate_t5(tasks, source, target)
    assert (task.name, task.prefix) == (name, prefix)


@pytest.mark.parametrize(
    ("tasks", "source", "target", "message"),
    [
        (T5_TASKS, "en", None, "^several translations fit source='en'; give target: en to de, en to fr$"),
        (T5_TASKS, None, None, "^several translations fit this model; give source and target: "),
        (T5_TASKS, "en", "es", "en to de"),
        (T5_TASKS, "", None, "^this model makes no translation with source=''. It makes: "),
        ({"translation_en_to_de": {}, "translation_EN_to_DE": {}}, "en", "de", "^several translations fit source='en'"),
        (None, "en", "en", "en to ro"),
        (G2P, "en", "de", "makes: graphemes to phonemes, phonemes to graphemes$"),
    ],
)
def test_t5_names_the_translations_that_there_are(
    tasks: dict[str, dict] | None, source: str, target: str, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        translate_t5(tasks, source, target)


def test_madlad_marks_the_target_by_a_token_of_its_vocabulary() -> None:
    tokenizer = t5_tokenizer(additional_special_tokens=["<2de>", "<2ro>"])
    task = translate_t5(None, None, "ro", tokenizer=tokenizer)
    assert task.prefix == "<2ro> "
    tokens = DocumentEncoder(tokenizer, task, 100)(TEXTS[0]).prompts[0]
    assert tokens[0] == tokenizer.convert_tokens_to_ids("<2ro>")


def test_mt5_knows_what_its_config_names() -> None:
    assert translate_t5(None, None, None, "mt5") == TextTask("translation")
    assert translate_t5(G2P, None, "phonemes", "umt5").name == "translation_graphemes_to_phonemes"
    with pytest.raises(ParameterError, match="leave source and target out"):
        translate_t5(None, "en", "de", "mt5")


@pytest.mark.parametrize("family", ["bart", "pegasus"])
def test_bart_and_pegasus_do_not_translate(family: str) -> None:
    with pytest.raises(ParameterError, match=f'"{family}" models do not translate. This one summarizes'):
        SPECS[family].text.translate(view_of(SimpleNamespace(model_type=family)), "en", "de")


def test_bart_summarizes_with_its_configs_prefix() -> None:
    assert SPECS["bart"].text.summarize(view_of(SimpleNamespace(prefix=" "))) == TextTask("summarization", prefix=" ")
    assert SPECS["bart"].text.summarize(view_of(SimpleNamespace())) == TextTask("summarization")


@pytest.mark.parametrize("kind", [MBartTokenizer, MBart50Tokenizer])
@pytest.mark.parametrize(("source", "code"), [("en_XX", "en_XX"), ("de", "de_DE"), ("RO", "ro_RO")])
def test_mbart_documents_are_what_the_tokenizer_makes_with_src_lang(kind: type, source: str, code: str) -> None:
    tokenizer = mbart_tokenizer(kind)
    task = SPECS["mbart"].text.translate(view_of(SimpleNamespace(decoder_start_token_id=2), tokenizer), source, "fr")
    tokens = DocumentEncoder(tokenizer, task, 500)(TEXTS[0]).prompts[0]
    assert tokenizer.src_lang == "en_XX"
    tokenizer.src_lang = code
    assert tokens == tokenizer(TEXTS[0]).input_ids


@pytest.mark.parametrize(
    ("family", "source", "code"),
    [("nllb", "eng_Latn", "eng_Latn"), ("nllb", "DEU", "deu_Latn"), ("m2m100", "de", "de"), ("m2m100", "EN", "en")],
)
def test_m2m100_documents_are_what_the_tokenizer_makes_with_src_lang(
    family: str, source: str, code: str, tmp_path: Path
) -> None:
    tokenizer = nllb_tokenizer() if family == "nllb" else m2m100_tokenizer(tmp_path)
    target, target_code = ("fra", "fra_Latn") if family == "nllb" else ("fr", "fr")
    config = SimpleNamespace(decoder_start_token_id=2, forced_bos_token_id=None)
    task = SPECS["m2m100"].text.translate(view_of(config, tokenizer), source, target)
    tokens = DocumentEncoder(tokenizer, task, 500)(TEXTS[0]).prompts[0]
    tokenizer.src_lang = code
    assert tokens == tokenizer(TEXTS[0]).input_ids
    tokenizer.src_lang = target_code
    (target_id,) = tokenizer.prefix_tokens
    assert (task.decoder_prompt, task.settings) == ([2, target_id], {"forced_bos_token_id": target_id})


def test_nllb_in_the_first_release_of_its_tokenizer_puts_the_code_behind() -> None:
    tokenizer = nllb_tokenizer(legacy_behaviour=True)
    config = SimpleNamespace(decoder_start_token_id=2, forced_bos_token_id=None)
    task = SPECS["m2m100"].text.translate(view_of(config, tokenizer), "deu", "fra")
    german, french = map(tokenizer.convert_tokens_to_ids, ("deu_Latn", "fra_Latn"))
    assert task.special_tokens == ([], [2, german])
    assert task.decoder_prompt == [2, french]


def test_nllb_names_its_languages() -> None:
    translate, config = SPECS["m2m100"].text.translate, SimpleNamespace(forced_bos_token_id=None)
    tokenizer = nllb_tokenizer()
    for source, target, message in (
        (None, "fra", r"source is missing.*ace_Latn.* and 187 more"),
        ("eng", None, r"target is missing.*ace_Latn"),
        ("eng", "fra_Latin", "Did you mean 'fra_Latn'"),
        ("eng", "zho", "'zho' in several scripts; choose one as target: zho_Hans, zho_Hant$"),
        ("eng", "German", "no language 'German' as target. Known: ace_Arab, .* and 187 more"),
    ):
        with pytest.raises(ParameterError, match=message):
            translate(view_of(config, tokenizer), source, target)
    with pytest.raises(ParameterError, match="T5Tokenizer has no language codes: call generate"):
        translate(view_of(config, t5_tokenizer()), "en", "fr")


@pytest.mark.parametrize("kind", [MBartTokenizer, MBart50Tokenizer])
def test_mbart_target_is_the_one_that_the_checkpoint_is_bound_to(kind: type) -> None:
    tokenizer = mbart_tokenizer(kind)
    romanian = tokenizer.lang_code_to_id["ro_RO"]
    first = kind is MBartTokenizer
    config = SimpleNamespace(
        decoder_start_token_id=romanian if first else 2, forced_bos_token_id=None if first else romanian
    )
    translate = SPECS["mbart"].text.translate
    assert translate(view_of(config, tokenizer), "en", None) == translate(view_of(config, tokenizer), "en_XX", "ro_RO")
    if not first:  # transformers' configs leave generation settings to the generation config
        saved = MBartConfig(decoder_start_token_id=2, forced_bos_token_id=romanian)
        settings = SimpleNamespace(forced_bos_token_id=romanian)
        view = view_of(saved, tokenizer, settings)
        assert translate(view, "en", None) == translate(view, "en_XX", "ro_RO")
        assert SPECS["mbart"].default_decoder_prompt(view) == [2, romanian]
    free = SimpleNamespace(decoder_start_token_id=2, forced_bos_token_id=None)
    with pytest.raises(ParameterError, match=r"target is missing.*ro_RO"):
        translate(view_of(free, tokenizer), "en", None)
    with pytest.raises(ParameterError, match=r"source is missing.*en_XX"):
        translate(view_of(free, tokenizer), None, "ro")
    with pytest.raises(ParameterError, match=r"no language 'en_UK'.*Known: .*en_XX"):
        translate(view_of(free, tokenizer), "en_UK", "ro")


def test_mbart_decoder_prompts_start_with_dec_or_in_the_first_release_with_a_language() -> None:
    rule = SPECS["mbart"].prepare_decoder_prompt
    tokenizer = mbart_tokenizer(MBartTokenizer)
    romanian, german = (tokenizer.lang_code_to_id[code] for code in ("ro_RO", "de_DE"))
    first = SimpleNamespace(decoder_start_token_id=romanian, eos_token_id=2, vocab_size=len(tokenizer))
    assert rule([romanian, 9], view_of(first)) == [romanian, 9]
    assert rule([german, 9], view_of(first)) == [german, 9]
    assert rule([9], view_of(first)) == [romanian, 9]
    second = SimpleNamespace(decoder_start_token_id=2, eos_token_id=2, vocab_size=len(tokenizer))
    assert rule([german, 9], view_of(second)) == [2, german, 9]


@pytest.mark.parametrize("tasks", [None, T5_TASKS, G2P], ids=["none", "published", "g2p"])
@pytest.mark.parametrize("family", ["t5", "mt5"])
def test_t5_tells_the_languages_that_it_takes(family: str, tasks: dict[str, dict] | None) -> None:
    spec, config = SPECS[family].text, SimpleNamespace(task_specific_params=tasks)
    sources, targets = spec.languages(view_of(config, t5_tokenizer()))
    assert bool(sources) == bool(targets) == (family == "t5" or tasks is not None)
    for target in targets:  # each goes with one of the sources
        taken = []
        for source in sources:
            try:
                taken.append(spec.translate(view_of(config, t5_tokenizer()), source, target))
            except ParameterError:
                continue
        assert taken


@pytest.mark.parametrize("family", ["mbart", "m2m100", "nllb"])
def test_every_language_that_is_told_is_taken(family: str, tmp_path: Path) -> None:
    made = {
        "mbart": lambda: mbart_tokenizer(MBartTokenizer),
        "m2m100": lambda: m2m100_tokenizer(tmp_path),
        "nllb": nllb_tokenizer,
    }[family]()
    spec = SPECS["m2m100" if family == "nllb" else family].text
    config = SimpleNamespace(decoder_start_token_id=2, forced_bos_token_id=None)
    sources, targets = spec.languages(view_of(config, made))
    assert len(sources) == len(targets) > 1
    for source, target in zip(sources, reversed(targets), strict=True):
        assert spec.translate(view_of(config, made), source, target).decoder_prompt


@pytest.mark.parametrize(
    ("family", "tasks"),
    [
        ("t5", ["summarize", "translate", "generate"]),
        ("bart", ["summarize", "generate"]),
        ("mbart", ["translate", "generate"]),
        ("mbart50", ["translate", "generate"]),
        ("nllb", ["translate", "generate"]),
        ("m2m100", ["translate", "generate"]),
    ],
)
def test_a_checkpoint_offers_what_it_can_do(cases: Callable, family: str, tasks: list[str]) -> None:
    generator = cases(family).generator
    assert generator.tasks == tasks
    for task in ("summarize", "translate"):
        if task not in tasks and family != "mbart" and family != "mbart50":  # fine-tuned ones may summarize
            with pytest.raises(UnsupportedTaskError, match="summarize"):
                getattr(generator, task)("a text")


MADLAD = ["<2en>", "<2de>"]


@pytest.mark.parametrize(
    ("family", "config", "marks", "refused"),
    [
        ("t5", None, [], []),
        ("t5", T5_TASKS, [], []),
        ("t5", G2P, [], []),
        ("t5", None, MADLAD, ["summarize"]),
        ("mt5", None, [], []),
        ("mt5", G2P, [], ["summarize"]),
        ("umt5", {**G2P, "summarization": {}}, [], []),
        ("longt5", None, [], []),
        ("pegasus", None, [], ["translate"]),
        ("blenderbot-small", None, [], ["summarize", "translate"]),
    ],
)
def test_families_refuse_what_they_cannot_do(
    family: str, config: dict[str, dict] | None, marks: list[str], refused: list[str]
) -> None:
    tokenizer = t5_tokenizer(additional_special_tokens=marks) if marks else t5_tokenizer()
    view = view_of(SimpleNamespace(task_specific_params=config, model_type=family), tokenizer)
    spec = SPECS[family].text
    calls = {"summarize": lambda: spec.summarize(view), "translate": lambda: spec.translate(view, None, None)}
    for task, call in calls.items():
        if task in refused:
            with pytest.raises(UnsupportedTaskError):
                call()
    if "summarize" not in refused:
        assert spec.summarize(view).name == "summarization"


def test_a_task_that_a_family_leaves_open_is_offered_where_the_config_names_it(
    cases: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = cases("mbart").generator
    monkeypatch.setattr(generator.engine.model_config, "task_specific_params", {"summarization": {"num_beams": 2}})
    assert generator.tasks == ["summarize", "translate", "generate"]


def test_a_checkpoint_without_language_codes_offers_no_translation() -> None:
    view = view_of(SimpleNamespace(), SimpleNamespace(all_special_tokens=["<s>"]))
    with pytest.raises(UnsupportedTaskError, match="no language codes: call generate"):
        SPECS["m2m100"].text.translate(view, "en", "de")


@pytest.mark.parametrize(("example", "refused"), [("fsmt", "summarize"), ("marian", "summarize"), ("led", "translate")])
def test_examples_refuse_what_they_cannot_do(example: str, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / f"transept-{example}")
    (spec,) = importlib.import_module(f"transept_{example}").register_models()
    languages = (None, None) if refused == "translate" else ()
    with pytest.raises(UnsupportedTaskError, match=refused):
        getattr(spec.text, refused)(view_of(SimpleNamespace()), *languages)
