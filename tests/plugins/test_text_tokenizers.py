"""Tokenizers of BART and T5 without transformers, beside what AutoTokenizer makes of the same folder."""

import io
import json
import random
from pathlib import Path

import pytest
import sentencepiece
from huggingface_whisper import edit, write
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import values_changed
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, RobertaTokenizer, T5Tokenizer

from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.core.checkpoints.plain_tokenizer_files import NamedTokenizer
from transept.errors import CheckpointError
from transept.plugins.bart.plain import PLAIN as BART
from transept.plugins.t5.plain import PLAIN as T5

ROOT = Path(__file__).parents[2]
FAMILIES = {"bart": BART, "t5": T5}
CLASSES = {"bart": RobertaTokenizer, "t5": T5Tokenizer}
LINES = [
    line
    for name in ("architecture", "models", "performance")
    for line in (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    if line
]
TEXTS = [
    "",
    " ",
    "a",
    "summarize: The rain in Spain , falls mainly.\n\n  In the plain ! I 'm sure it 's n't ? ' so '",
    "<s>He</s> said<mask> <mask>, <pad>nothing <unk><extra_id_0> and <extra_id_99> or <extra_id_100>",
    "Größe — naïve café, ﬁne №5 ½ ﷺ 東京は夜の七時 🇯🇵 👩‍👩‍👧 العربية हिन्दी",
    "e\u0301 \u00a0\u200b\ufeff\0 tab\tend\r\n ▁under_score Ġ ##x",
    "  two  spaces  ",
]
MUTATIONS = 20


@pytest.fixture(scope="module")
def bpe():
    """BART's tokenizer.json as facebook publishes it, of 1,000 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=999, initial_alphabet=alphabet, special_tokens=special)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return json.loads(tokenizer.to_str())


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    return trained_unigram(tmp_path_factory.mktemp("unigram"), LINES, 1000)


def trained_unigram(path, lines, size):
    """T5's tokenizer.json as transformers makes it of a SentencePiece model, with its 100 sentinels."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        normalization_rule_name="nmt_nfkc",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        num_threads=1,
    )
    (path / "spiece.model").write_bytes(model.getvalue())
    T5Tokenizer.from_pretrained(path).save_pretrained(path)
    return json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture
def files(bpe, unigram):
    return {"bart": bpe, "t5": unigram}


def published(path, name, tokenizer):
    """As on the hub: names and settings in tokenizer_config.json, written by transformers 4 before it listed tokens."""
    write(path / "config.json", {"model_type": name})
    write(path / "tokenizer.json", tokenizer)
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    common = {"name_or_path": "org/model", "model_max_length": 512, "special_tokens_map_file": None, **named}
    if name == "bart":
        mask = {"content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
        named |= {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>"}
        own = {**named, "mask_token": {"__type": "AddedToken", **mask}, "add_prefix_space": False, "trim_offsets": True}
        write(path / "special_tokens_map.json", {**named, "mask_token": mask})
        write(
            path / "tokenizer_config.json", {**common, **own, "errors": "replace", "tokenizer_class": "BartTokenizer"}
        )
    else:
        lists = {"additional_special_tokens": [f"<extra_id_{number}>" for number in range(100)]}
        own = {"extra_ids": 100, "sp_model_kwargs": {}, "tokenizer_class": "T5Tokenizer"}
        write(path / "special_tokens_map.json", {**named, **lists})
        write(path / "tokenizer_config.json", {**common, **lists, **own})


def published_with_a_length_alone(path, name, tokenizer):
    published(path, name, tokenizer)
    (path / "special_tokens_map.json").unlink()
    write(path / "tokenizer_config.json", {"model_max_length": 512})


def saved_by_transformers_4(path, name, tokenizer):
    """It lists every added token."""
    published(path, name, tokenizer)
    added = [dict(token) for token in tokenizer["added_tokens"]]
    listed = {str(token.pop("id")): token for token in added}
    edit(path / "tokenizer_config.json", added_tokens_decoder=listed, clean_up_tokenization_spaces=True)
    edit(path / "tokenizer_config.json", tokenizer_class=CLASSES[name].__name__ + "Fast")


def saved_by_transformers_5(path, name, tokenizer):
    published(path, name, tokenizer)
    read = AutoTokenizer.from_pretrained(path)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (path / file).unlink()
    read.save_pretrained(path)


def with_a_space_in_front(path, name, tokenizer):
    published(path, name, tokenizer)
    edit(path / "tokenizer_config.json", add_prefix_space=name == "bart")


def without_its_other_parts(path, name, tokenizer):
    """What the class replaces may say anything."""
    published(path, name, {**tokenizer, "post_processor": None, "decoder": None, "pre_tokenizer": None})


FOLDERS = [
    published,
    published_with_a_length_alone,
    saved_by_transformers_4,
    saved_by_transformers_5,
    with_a_space_in_front,
    without_its_other_parts,
]


def agree_on(ours, theirs, text):
    assert ours(text).input_ids == theirs(text).input_ids
    ids = theirs.encode(text, add_special_tokens=False)
    assert ours(text, add_special_tokens=False, verbose=False).input_ids == ids
    assert ours.encode(text, add_special_tokens=False) == ids
    for tokens in (ids, theirs(text).input_ids):
        for skip in (True, False):
            for clean_up in (None, True, False):
                options = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": clean_up}
                assert ours.decode(tokens, **options) == theirs.decode(tokens, **options)


def agree(ours, theirs, texts=TEXTS, every=1):
    vocabulary = theirs.get_vocab()
    assert ours.get_vocab() == vocabulary
    for token in ("</s>", "<mask>", "<extra_id_7>", "Ġ", "▁the", "no such token", ""):
        assert ours.convert_tokens_to_ids(token) == theirs.convert_tokens_to_ids(token)
    assert ours.clean_up_tokenization_spaces == theirs.clean_up_tokenization_spaces
    assert ours.all_special_tokens == theirs.all_special_tokens
    assert ours.all_special_ids == theirs.all_special_ids
    for text in texts:
        agree_on(ours, theirs, text)
    for token in range(0, len(vocabulary) + 3, every):  # beyond the last one, too
        assert ours.decode([token]) == theirs.decode([token])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("make", FOLDERS)
def test_a_folder_is_read_as_by_transformers(make, name, files, tmp_path):
    make(tmp_path, name, files[name])
    ours, theirs = load_tokenizer(tmp_path, FAMILIES[name]), load_tokenizer(tmp_path)
    assert (type(ours), type(theirs)) == (NamedTokenizer, CLASSES[name])
    agree(ours, theirs, TEXTS + LINES[::7])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_classes_that_take_the_file_as_it_is(kind, name, files, tmp_path):
    published(tmp_path, name, {**files[name], "post_processor": None})
    (tmp_path / "special_tokens_map.json").unlink()
    kept = {"tokenizer_class": kind, "eos_token": "</s>", "unk_token": "<unk>", "clean_up_tokenization_spaces": True}
    write(tmp_path / "tokenizer_config.json", kept)
    ours = load_tokenizer(tmp_path, FAMILIES[name])
    assert isinstance(ours, NamedTokenizer)
    agree(ours, load_tokenizer(tmp_path))


@pytest.mark.parametrize("name", FAMILIES)
def test_trained_checkpoints(name):
    path = ROOT / "tests" / "data" / "cmudict" / f"{name}-g2p"
    ours = load_tokenizer(path, FAMILIES[name])
    assert isinstance(ours, NamedTokenizer)
    agree(ours, load_tokenizer(path), [*TEXTS, "rain", "spell: R EY1 N", "T R AE0 N S EH1 P T"])


def test_a_released_vocabulary_with_special_tokens_behind_it(tiny_en_dir, tmp_path):
    tokenizer = Tokenizer.from_file(str(tiny_en_dir / "tokenizer.json"))  # GPT-2's 50,256 tokens
    tokenizer = Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": []}))
    named = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.add_special_tokens([*named, AddedToken("<mask>", lstrip=True, normalized=False)])
    published(tmp_path, "bart", json.loads(tokenizer.to_str()))
    ours = load_tokenizer(tmp_path, BART)
    assert isinstance(ours, NamedTokenizer)
    agree(ours, load_tokenizer(tmp_path), TEXTS + LINES, every=13)


@pytest.mark.slow
def test_a_larger_unigram_vocabulary(tmp_path):
    lines = [line for file in ROOT.glob("docs/*.md") for line in file.read_text(encoding="utf-8").splitlines() if line]
    published(tmp_path, "t5", trained_unigram(tmp_path, lines, 4000))
    ours = load_tokenizer(tmp_path, T5)
    assert isinstance(ours, NamedTokenizer)
    agree(ours, load_tokenizer(tmp_path), TEXTS + lines[::3])


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, bpe, unigram, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    published(path, request.param, {"bart": bpe, "t5": unigram}[request.param])
    return load_tokenizer(path, FAMILIES[request.param]), load_tokenizer(path)


@settings(max_examples=80)
@given(text=st.lists(st.sampled_from([*"aeist .,\n\té東🇯", "<s>", "</s>", "<mask>", "<extra_id_3>", "▁"])).map("".join))
def test_any_text_becomes_the_same_tokens(pair, text):
    agree_on(*pair, text)


@settings(max_examples=80)
@given(text=st.text(max_size=30), tokens=st.lists(st.integers(0, 1105), max_size=20))
def test_any_tokens_become_the_same_text(pair, text, tokens):
    ours, theirs = pair
    agree_on(ours, theirs, text)
    for skip in (True, False):
        assert ours.decode(tokens, skip_special_tokens=skip) == theirs.decode(tokens, skip_special_tokens=skip)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("add_prefix_space", "yes"),
        ("add_bos_token", True),
        ("auto_map", {"AutoTokenizer": ["x.Y", None]}),
        ("split_special_tokens", True),
        ("tokenizer_class", "PegasusTokenizer"),
        ("unk_token", "<unknown>"),
        ("cls_token", "<new>"),
        ("sound_token", "<sound>"),
        ("additional_special_tokens", ["<new>"]),
        ("extra_special_tokens", {"sound_token": "<sound>"}),
        ("added_tokens_decoder", {"700": {"content": "<far>", "special": True}}),
        ("model_max_length", "long"),
    ],
)
def test_what_says_more_is_left_to_transformers(key, value, name, files, tmp_path):
    published(tmp_path, name, files[name])
    (tmp_path / "special_tokens_map.json").unlink()  # whose values come last
    assert FAMILIES[name].tokenizer(tmp_path) is not None
    edit(tmp_path / "tokenizer_config.json", **{key: value})
    assert FAMILIES[name].tokenizer(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("bart", "normalizer", {"type": "Lowercase"}),
        ("bart", "model", {"ignore_merges": True}),
        ("t5", "normalizer", {"type": "Lowercase"}),
        ("t5", "model", {"unk_id": 1}),
        ("t5", "model", {"byte_fallback": True}),
    ],
)
def test_another_kind_of_tokenizer_is_left_to_transformers(name, part, value, files, tmp_path):
    tokenizer = files[name]
    published(tmp_path, name, {**tokenizer, part: {**(tokenizer[part] or {}), **value}})
    if part == "normalizer":
        edit(tmp_path / "tokenizer.json", normalizer=value)
    assert FAMILIES[name].tokenizer(tmp_path) is None


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"])
def test_any_value_is_taken_or_refused_as_by_transformers(file, name, files, tmp_path):
    published(tmp_path, name, files[name])
    edit(tmp_path / "special_tokens_map.json", additional_special_tokens=None)
    content, plain = (tmp_path / file).read_bytes(), 0
    for number in range(MUTATIONS):
        (tmp_path / file).write_bytes(values_changed(content, random.Random(number)))
        made = []
        for declared in (FAMILIES[name], None):
            try:
                made.append(load_tokenizer(tmp_path, declared))
            except CheckpointError as error:
                made.append(str(error))
        ours, theirs = made
        assert isinstance(ours, str) == isinstance(theirs, str), f"mutation {number}"
        if isinstance(ours, str):
            assert ours == theirs
        if isinstance(ours, NamedTokenizer):
            plain += 1
            agree(ours, theirs)
    assert plain > 0
