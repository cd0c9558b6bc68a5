"""Checkpoints with a vocabulary and no tokenizer files: the same token ids as with them."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from huggingface_whisper import save_huggingface_whisper, tokenizer_files, write
from transformers import AutoTokenizer

from transept import Engine, Transcriber, summarize
from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.errors import CheckpointError

TEXTS = ["Please hold, while I connect you.", " It's 7 o'clock; déjà vu?", ""]


def keep_vocabulary(directory: Path, *also: str) -> Path:
    """The folder without the files that say which tokenizer it has."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        if name not in also:
            (directory / name).unlink(missing_ok=True)
    return directory


def write_pairs(directory: Path) -> None:
    """vocab.json and merges.txt of what a tokenizer.json holds."""
    content = tokenizer_files(json.loads((directory / "tokenizer.json").read_text(encoding="utf-8")))
    for name in ("vocab.json", "merges.txt"):
        write(directory / name, content[name])


def test_bart(bart_dir: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(bart_dir, tmp_path / "model"))
    whole = AutoTokenizer.from_pretrained(directory)
    write_pairs(directory)
    tokenizer = load_tokenizer(keep_vocabulary(directory))
    assert [tokenizer(text).input_ids for text in TEXTS] == [whole(text).input_ids for text in TEXTS]
    text = "Press one to hold the line. Press two to leave a message."
    assert summarize(text, model=directory).text == summarize(text, model=bart_dir).text


def test_whisper(tiny_en_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    directory = save_huggingface_whisper(tiny_en_dir, tmp_path / "model")
    clip = speech_dir / "prompts-en" / "agent-pass.flac"
    expected = Transcriber(directory).transcribe(clip).text
    assert Transcriber(keep_vocabulary(directory, "added_tokens.json")).transcribe(clip).text == expected


def test_a_ctranslate2_folder(tiny_en_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny_en_dir, tmp_path / "model"))
    write_pairs(directory)
    content = tokenizer_files(json.loads((directory / "tokenizer.json").read_text(encoding="utf-8")))
    keep_vocabulary(directory)
    write(directory / "added_tokens.json", content["added_tokens.json"])
    clip = speech_dir / "prompts-en" / "agent-pass.flac"
    assert Transcriber(directory).transcribe(clip).text == Transcriber(tiny_en_dir).transcribe(clip).text


def test_t5s_pieces(t5_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    said = json.loads((speech_dir / "prompts-en" / "transcripts.json").read_text(encoding="utf-8"))
    directory = keep_vocabulary(Path(shutil.copytree(t5_dir, tmp_path / "model")))
    with (directory / "spiece.model").open("wb") as pieces:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([each["text"] for each in said]),
            model_writer=pieces,
            vocab_size=120,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            minloglevel=2,
        )
    expected = AutoTokenizer.from_pretrained(directory)
    assert [load_tokenizer(directory)(text).input_ids for text in TEXTS] == [expected(text).input_ids for text in TEXTS]
    (directory / "spiece.model").write_bytes(b"no pieces")
    assert load_tokenizer(directory) is None
    assert Engine(directory, kv_cache_bytes=1 << 20).generate({"prompt_token_ids": [5, 6, 1]})[0].finished


@pytest.mark.parametrize("broken", ["vocab.json", "merges.txt"])
@pytest.mark.parametrize("model_type", ["bart", None])
def test_a_vocabulary_that_cannot_be_read_is_refused(
    broken: str, model_type: str | None, bart_dir: Path, tmp_path: Path
):
    write(tmp_path / "config.json", {"model_type": model_type})
    shutil.copy(bart_dir / "tokenizer.json", tmp_path)
    write_pairs(tmp_path)
    write(keep_vocabulary(tmp_path) / broken, "{")
    with pytest.raises(CheckpointError, match="cannot read"):
        load_tokenizer(tmp_path)


def test_other_files_are_no_vocabulary(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"model_type": "bart"})
    for name in ("vocab.json", "vocabulary.json", "readme.txt"):
        write(tmp_path / name, {})
        assert load_tokenizer(tmp_path) is None
    write(tmp_path / "merges.txt", "")
    write(tmp_path / "config.json", {"model_type": "unheard-of"})
    assert load_tokenizer(tmp_path) is None  # not byte-level
