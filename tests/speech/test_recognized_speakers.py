"""Speakers recognized by their voices on real speech, through the plugin in examples, and by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from cli.command_line import in_process
from idle import assert_idle
from recordings import RATE, clip
from voices_example import install_voices, needs_weights

from transept import Transcriber, Transcript, Voices
from transept.errors import MediaError, ParameterError, TranseptError
from transept.registry.diarizers import Diarizer
from transept.registry.plugins import Hook, PluginReport

pytestmark = needs_weights
PAUSE = np.zeros(RATE // 4, np.float32)


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install_voices(tmp_path_factory.mktemp("voices")))
        yield


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path, plugin: None) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def talks(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two recordings, each of a reader and a voice of telephone prompts, in the opposite order."""
    folder = tmp_path_factory.mktemp("talks")
    for name, clips in {
        "one": ("librivox/austen-0870", "prompts-en/queue-periodic-announce"),
        "two": ("prompts-en/vm-mailboxfull", "librivox/austen-0890"),
    }.items():
        parts = [part for each in clips for part in (clip(speech_dir / f"{each}.flac"), PAUSE)]
        soundfile.write(folder / f"{name}.flac", np.concatenate(parts), RATE)
    return [folder / "one.flac", folder / "two.flac"]


@pytest.fixture(scope="module")
def reader(speech_dir: Path) -> Path:
    """Further speech of the reader."""
    return speech_dir / "librivox" / "austen-0920.flac"


def turns(result: Transcript | TranseptError) -> list[str | None]:
    """The speakers in the order in which they speak."""
    assert isinstance(result, Transcript), result
    speakers = [segment.speaker for segment in result.segments]
    return [each for index, each in enumerate(speakers) if index == 0 or speakers[index - 1] != each]


def test_a_known_voice_has_its_name_and_an_unknown_one_the_same_in_all_files(
    transcriber: Transcriber, talks: list[Path], reader: Path
) -> None:
    voices = Voices().enrolled("Ann", reader)
    options: dict[str, Any] = {"voices": voices, "same_speakers": True, "quality": "fast"}
    said: list[tuple[int, str | None]] = []
    one, missing, two = transcriber.transcribe_many(
        [talks[0], talks[0].with_name("none.flac"), talks[1]],
        on_segment=lambda index, segment: said.append((index, segment.speaker)),
        **options,
    )
    assert turns(one) == ["Ann", "speaker 1"]
    assert isinstance(missing, MediaError)
    assert turns(two) == ["speaker 1", "Ann"]
    assert sorted(said, key=lambda each: each[0]) == [
        (number, each.speaker) for number, result in ((0, one), (2, two)) for each in result.segments
    ]
    with transcriber.stream(talks[1], voices=voices, quality="fast") as stream:
        assert [segment.speaker for segment in stream][-1] == "Ann"
    assert_idle(transcriber)


def test_a_number_of_speakers_is_kept(transcriber: Transcriber, talks: list[Path]) -> None:
    found = transcriber.model.diarizer(clip(talks[0]), RATE)
    assert len({turn.speaker for turn in found}) == 2
    for number in (1, 2, 3):
        found = transcriber.model.diarizer(clip(talks[0]), RATE, number, number)
        assert len({turn.speaker for turn in found}) == number


def test_a_diarizer_that_takes_no_number_is_named(
    transcriber: Transcriber, talks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Hook(lambda waveform, **_: [[(0.0, 9.0, "a")]], ("waveform", "sample_rate"))
    told = Diarizer(PluginReport("told", "transept-told", "1", "ok", diarize=hook))
    monkeypatch.setitem(transcriber.model.__dict__, "diarizer", told)
    for name, argument in (("speakers", "min_speakers"), ("max_speakers", "max_speakers")):
        with pytest.raises(ParameterError, match=f"{name}=2 needs a diarizer that takes {argument}; told") as raised:
            transcriber.transcribe(talks[0], **{name: 2})
        assert raised.value.param == name


def test_what_several_recordings_need_is_refused_for_one(transcriber: Transcriber, talks: list[Path]) -> None:
    with pytest.raises(ParameterError, match="same_speakers=True is for calls that take several recordings"):
        transcriber.job(talks[0], same_speakers=True)
    with pytest.raises(ParameterError, match="are for transcripts"):
        transcriber.align(talks[0], "He was not", speakers=2)
    other = Voices().with_voice("Ann", [1.0, 0.0], 3.0, "another model")
    with pytest.raises(ParameterError, match='were enrolled with "another model", and the installed plugin has "res'):
        transcriber.transcribe(talks[0], voices=other)
    with pytest.raises(ParameterError, match="leave voices out"):
        transcriber.transcribe(talks[0], voices=other, channel="each")
    with pytest.raises(ParameterError, match="recordings: give at least one"):
        Voices().enrolled("Ann")
    with pytest.raises(ParameterError, match="name must be a name on one line"):
        Voices().enrolled(" ", talks[0])


def test_voices_are_enrolled_listed_used_kept_and_removed(
    talks: list[Path],
    reader: Path,
    tiny_en_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def run(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
        done = in_process(capfdbinary, *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    assert run("voices", "enroll", "Ann", reader)[0] == "Ann: 6.0 s of speech in 1 recording\n"
    soundfile.write(tmp_path / "short.wav", clip(reader)[:RATE], RATE)
    assert "a voice needs at least 1.6 s" in run("voices", "enroll", "Bob", tmp_path / "short.wav", code=1)[1]
    command = ("transcribe", *talks, "--model", tiny_en_dir, "--voices", "default", "--quality", "fast", "--json")
    answers = [json.loads(line) for line in run(*command, "--add-voices")[0].splitlines()]
    speakers = [list(dict.fromkeys(each["speaker"] for each in answer["segments"])) for answer in answers]
    assert speakers == [["Ann", "speaker 1"], ["speaker 1", "Ann"]]
    listed = json.loads(run("voices", "list", "--json")[0])
    assert listed["file"] == str(tmp_path / "transept" / "voices.json")
    assert [each["name"] for each in listed["voices"]] == ["Ann", "speaker 1"]
    assert "sounds like speaker 1" in run("voices", "enroll", "Carol", talks[1])[1]
    assert "no voice is called 'Dave'" in run("voices", "remove", "Carol", "Dave", code=2)[1]
    assert run("voices", "remove", "Carol", "speaker 1")[1].endswith("1 voice left\n")
    assert run("voices", "list")[0] == "Ann: 6.0 s of speech in 1 recording\n"
    assert "must be a name on one line" in run("voices", "enroll", "A\nB", tmp_path / "none.wav", code=2)[1]
    cut = json.loads(Path(listed["file"]).read_text())
    cut["voices"]["Ann"]["embedding"] = [1, 2, 3]
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    refused = run("voices", "enroll", "Bob", reader, "--voices", tmp_path / "cut.json", code=2)[1]
    assert 'cut.json" have 3 numbers, and those of the installed plugin 256; enroll' in refused
    missing = run("transcribe", talks[0], "--model", tiny_en_dir, "--voices", tmp_path / "none.json", code=2)[1]
    assert "transept voices enroll NAME FILE" in missing
