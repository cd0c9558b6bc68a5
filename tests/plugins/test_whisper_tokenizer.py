"""Whisper's tokenizer without transformers, beside what AutoTokenizer makes of the same folder."""

import json
import random

import pytest
from huggingface_whisper import END, edit, tokenizer_files, write
from json_values import values_changed
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer
from transformers import WhisperTokenizer as Theirs

from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.errors import CheckpointError
from transept.plugins.whisper.plain import PLAIN
from transept.plugins.whisper.tokenizer import NO_TIMESTAMPS, PREVIOUS, START, TOKENIZER, WhisperTokenizer

TEXTS = [
    "",
    " ",
    " The rain in Spain , falls mainly.\n\n  In the plain!",
    f"{START}<|en|>{NO_TIMESTAMPS} The rain<|0.00|>{END}",
    "<|nosuch|> x<|31.00|> <|7.5|>",
    "Größe — naïve café, ﬁne №5 東京 🇯🇵 العربية e\u0301\u200b\ufeff\0\ttab",
]
MUTATIONS = 120


@pytest.fixture(scope="session")
def small():
    """A tokenizer.json of 300 tokens and Whisper's control tokens, without timestamps."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    control = [END, START, "<|en|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", PREVIOUS, NO_TIMESTAMPS]
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    ids = {token: tokenizer.token_to_id(token) for token in control}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} {NO_TIMESTAMPS} $A {END}", special_tokens=[(token, ids[token]) for token in control]
    )
    return json.loads(tokenizer.to_str())


def of_this_year(path, files):
    """As openai publishes it now."""
    for name, content in files.items():
        write(path / name, content)
    write(path / "config.json", {"model_type": "whisper"})


def of_an_older_year(path, files):
    """The tokens are in tokenizer.json alone, and named as transformers 4.23 did it."""
    of_this_year(path, files)
    token = {"__type": "AddedToken", "content": END, "lstrip": False, "normalized": True, "rstrip": False}
    named = {name: {**token, "single_word": False} for name in ("bos_token", "eos_token", "unk_token")}
    edit(path / "tokenizer_config.json", **named, added_tokens_decoder=None, additional_special_tokens=None)
    added = {token["content"]: token["id"] for token in files["tokenizer.json"]["added_tokens"]}
    write(path / "added_tokens.json", added)


def with_vocabulary_and_merges(path, files):
    of_this_year(path, files)
    (path / "tokenizer.json").unlink()


def saved_by_transformers(path, files):
    of_this_year(path, files)
    tokenizer = AutoTokenizer.from_pretrained(path)
    for name in files:
        (path / name).unlink()
    tokenizer.save_pretrained(path)


def without_merges_of_its_own_kind(path, files):
    """Merges are written as one string each in older files, as two in newer ones."""
    tokenizer = json.loads(json.dumps(files["tokenizer.json"]))
    tokenizer["model"]["merges"] = [" ".join(merge) for merge in tokenizer["model"]["merges"]]
    of_this_year(path, {**files, "tokenizer.json": tokenizer})
    edit(path / "tokenizer_config.json", tokenizer_class="WhisperTokenizerFast", clean_up_tokenization_spaces=False)


def agree(ours, theirs):
    vocabulary = theirs.get_vocab()
    assert ours.get_vocab() == vocabulary
    for token in (END, START, "<|0.00|>", "Ġ", "no such token", ""):
        assert ours.convert_tokens_to_ids(token) == theirs.convert_tokens_to_ids(token)
    assert ours.clean_up_tokenization_spaces == theirs.clean_up_tokenization_spaces
    for text in TEXTS:
        assert ours(text).input_ids == theirs(text).input_ids
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours(text, add_special_tokens=False, verbose=False).input_ids == ids
        assert ours.encode(text, add_special_tokens=False) == ids
        previous = theirs.convert_tokens_to_ids(PREVIOUS)
        for tokens in (ids, theirs(text).input_ids, [previous, *ids], [previous, *theirs(text).input_ids]):
            for skip in (True, False):
                assert ours.decode(tokens, skip_special_tokens=skip) == theirs.decode(tokens, skip_special_tokens=skip)
            cleaned = theirs.decode(tokens, clean_up_tokenization_spaces=False)
            assert ours.decode(tokens, clean_up_tokenization_spaces=False) == cleaned
    for token in range(min(len(vocabulary), 2000) + 5):  # beyond the last one, too
        assert ours.decode([token]) == theirs.decode([token])


def ids_mean_one_token(path, theirs):
    """Else chance says which, or the order in which a library adds tokens with other ids than a tokenizer.json says."""
    vocabulary = theirs.get_vocab()
    added = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    as_written = all(vocabulary.get(token["content"]) == token["id"] for token in added)
    return as_written and len(set(vocabulary.values())) == len(vocabulary)


@pytest.mark.parametrize(
    "make",
    [
        of_this_year,
        of_an_older_year,
        saved_by_transformers,
        with_vocabulary_and_merges,
        without_merges_of_its_own_kind,
    ],
)
def test_a_folder_is_read_as_by_transformers(make, small, tmp_path):
    make(tmp_path, tokenizer_files(small))
    ours, theirs = load_tokenizer(tmp_path, PLAIN), load_tokenizer(tmp_path)
    assert (type(ours), type(theirs)) == (WhisperTokenizer, Theirs)
    agree(ours, theirs)


@pytest.mark.parametrize("fixture", ["tiny_en_dir", "base_dir"])
def test_a_released_tokenizer_is_read_as_by_transformers(fixture, tmp_path, request):
    file = request.getfixturevalue(fixture) / "tokenizer.json"
    of_this_year(tmp_path, tokenizer_files(json.loads(file.read_text(encoding="utf-8"))))
    ours, theirs = load_tokenizer(tmp_path, PLAIN), load_tokenizer(tmp_path)
    assert (type(ours), type(theirs)) == (WhisperTokenizer, Theirs)
    agree(ours, theirs)
    assert ours.decode([1, 2, theirs.convert_tokens_to_ids("<|1.00|>")]) == theirs.decode([1, 2])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("add_prefix_space", True),
        ("language", "de"),
        ("task", "transcribe"),
        ("predict_timestamps", True),
        ("split_special_tokens", True),
        ("tokenizer_class", "GPT2Tokenizer"),
        ("unk_token", "<|unknown|>"),
        ("mask_token", "<|mask|>"),
        ("additional_special_tokens", ["<|new|>"]),
        ("extra_special_tokens", {"sound_token": "<|sound|>"}),
        ("added_tokens_decoder", {"700": {"content": "<|far|>", "special": True}}),
    ],
)
def test_what_says_more_is_left_to_transformers(key, value, small, tmp_path):
    of_this_year(tmp_path, tokenizer_files(small))
    edit(tmp_path / "tokenizer_config.json", **{key: value})
    assert TOKENIZER.read(tmp_path) is None


@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"])
def test_any_value_is_taken_or_refused_as_by_transformers(name, small, tmp_path):
    of_an_older_year(tmp_path, tokenizer_files(small))
    content, plain = (tmp_path / name).read_bytes(), 0
    for number in range(MUTATIONS):
        (tmp_path / name).write_bytes(values_changed(content, random.Random(number)))
        made = []
        for files in (PLAIN, None):
            try:
                made.append(load_tokenizer(tmp_path, files))
            except CheckpointError:
                made.append(None)
        ours, theirs = made
        assert (ours is None) == (theirs is None), f"mutation {number}"
        if isinstance(ours, WhisperTokenizer) and ids_mean_one_token(tmp_path, theirs):
            plain += 1
            agree(ours, theirs)
    assert plain > 0
