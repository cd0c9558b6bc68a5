"""From the arguments of ``transept transcribe`` to recordings, and the names of what is written of them."""

import os
from pathlib import Path

import pytest

from transept.cli.recordings import Missing, Recording, find_recordings
from transept.cli.result_files import result_files
from transept.errors import ParameterError
from transept.multimodal.audio import load_audio

TREE = ["talks/a.mp3", "talks/B.WAV", "talks/.hidden.mp3", "talks/notes.txt", "talks/2024/c.m4a", "talks/2024/05/d.mkv"]
TREE += ["talks/.trash/e.mp3", "other/a.mp3", "x[1].wav"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: str, recursive: bool = False, allow_urls: bool = False) -> list[str]:
    recordings, missing = find_recordings(arguments, recursive=recursive, allow_urls=allow_urls)
    assert missing == []
    return [each.file for each in recordings]


@pytest.mark.parametrize(
    ("arguments", "recursive", "expected"),
    [
        (["talks/a.mp3", "-"], False, ["talks/a.mp3", "-"]),
        (["talks/notes.txt"], False, ["talks/notes.txt"]),  # named itself, it is tried
        (["talks"], False, ["talks/B.WAV", "talks/a.mp3"]),
        (["talks/"], True, ["talks/B.WAV", "talks/a.mp3", "talks/2024/c.m4a", "talks/2024/05/d.mkv"]),
        (["talks/*.mp3"], False, ["talks/a.mp3"]),
        (["talks/*[!4]"], False, ["talks/B.WAV", "talks/a.mp3"]),  # results, such as notes.txt, are passed over
        (["talks/**/*.m*"], False, ["talks/2024/05/d.mkv", "talks/2024/c.m4a", "talks/a.mp3"]),
        (["*/a.mp3"], False, ["other/a.mp3", "talks/a.mp3"]),
        (["talks/20*"], True, ["talks/2024/c.m4a", "talks/2024/05/d.mkv"]),  # a folder that a pattern matches
        (["x[1].wav"], False, ["x[1].wav"]),  # a file that is there is no pattern
        (["talks/a.mp3", "talks", "./talks/*.mp3"], False, ["talks/a.mp3", "talks/B.WAV"]),  # each once
        (["other/a.mp3", "other/a.mp3"], False, ["other/a.mp3", "other/a.mp3"]),  # as it is asked for
    ],
)
def test_what_arguments_name(tree: Path, arguments: list[str], recursive: bool, expected: list[str]) -> None:
    assert found(*arguments, recursive=recursive) == expected


def test_links_lead_to_a_recording_once(tree: Path) -> None:
    (tree / "talks" / "loop").symlink_to(tree / "talks")
    assert found("talks/*[!4]", recursive=True) == [
        *("talks/B.WAV", "talks/a.mp3", "talks/loop/2024/c.m4a", "talks/loop/2024/05/d.mkv")
    ]


def test_a_pattern_follows_no_link_back_into_its_tree(tree: Path) -> None:
    """Two such links in one folder are as many ways to a file as glob.glob would take forever to walk."""
    for name in ("talks/1", "talks/2024/2", "talks/2024/up"):
        (tree / name).symlink_to(tree if name.endswith("up") else tree / "talks")
    (tree / "talks" / "3").symlink_to(tree / "other")  # which leads elsewhere
    assert found("talks/**/*.m*") == ["talks/2024/05/d.mkv", "talks/2024/c.m4a", "talks/3/a.mp3", "talks/a.mp3"]
    assert found("talks/**/**") == found("talks/**")
    assert found("**/*.mp3") == ["other/a.mp3", "talks/a.mp3"]


@pytest.mark.parametrize("argument", ["talks", "talks/*", "talks/**/*.mp3"])
def test_pipes_that_are_only_found_are_passed_over(tree: Path, argument: str) -> None:
    os.mkfifo(tree / "talks" / "live.mp3")
    assert "talks/live.mp3" not in found(argument)
    assert found("talks/live.mp3") == ["talks/live.mp3"]  # named itself, it is read


def test_what_gives_nothing_is_told(tree: Path) -> None:
    arguments = ["empty", "talks/*.ogg", "other", "nowhere.mp3"]
    _, missing = find_recordings(arguments, recursive=False, allow_urls=False)
    assert missing == [
        Missing("empty", "this folder has no audio or video file; --recursive also searches its folders"),
        Missing("talks/*.ogg", "no such file, and no file matches it as a pattern"),
        Missing("nowhere.mp3", 'audio file "nowhere.mp3" cannot be opened: No such file or directory'),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_told(tree: Path) -> None:
    (tree / "empty").chmod(0)
    assert "cannot read this folder" in find_recordings(["empty"], recursive=True, allow_urls=False)[1][0].reason


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("monday-mornin.mp3", "monday-morning.mp3"),
        ("talks/Monday.MP3", "talks/monday.mp3"),
        ("monday.wav", None),
        ("friday.mp3", None),
        ("none/monday-morning.mp3", None),
    ],
)
def test_a_file_that_is_not_there_is_answered_with_the_nearest(
    typed: str, meant: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks").mkdir()
    for name in ("monday-morning.mp3", "talks/monday.mp3", "talks/tuesday.mp3"):
        (tmp_path / name).touch()
    _, (missing,) = find_recordings([typed], recursive=False, allow_urls=False)
    assert missing.reason.endswith("No such file or directory" if meant is None else f". Did you mean '{meant}'?")


def test_urls_want_leave(tree: Path) -> None:
    url = "https://example.org/talks/monday%20morning.mp3?key=1"
    with pytest.raises(ParameterError, match="is a URL; add allow_urls"):
        found(url)
    (recording,), _ = find_recordings([url], recursive=False, allow_urls=True)
    assert (recording.name, recording.directory, recording.folder) == ("monday morning.mp3", None, "")
    for other in ("file:///etc/passwd", "concat://a", "s3://bucket/a.mp3"):
        with pytest.raises(ParameterError, match="cannot be fetched: a URL begins with one of http, https"):
            found(other, allow_urls=True)


def names(
    *arguments: str, recursive: bool = True, folder: str | None = "out", template: str | None = None
) -> list[str]:
    recordings, _ = find_recordings(arguments, recursive=recursive, allow_urls=True)
    path = None if folder is None else Path(folder)
    each = result_files(recordings, ("srt",), folder=path, template=template, model="org/whisper-base")
    return [str(path) for (path,) in each]


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (["other/a.mp3", "-"], {}, ["out/a.srt", "out/stdin.srt"]),
        (["talks"], {}, ["out/B.srt", "out/a.srt", "out/2024/c.srt", "out/2024/05/d.srt"]),
        (["talks/**/*.m*"], {}, ["out/2024/05/d.srt", "out/2024/c.srt", "out/a.srt"]),
        (["other", "talks/2024"], {}, ["out/other/a.srt", "out/2024/c.srt", "out/2024/05/d.srt"]),
        (["talks"], {"folder": None, "recursive": False}, ["talks/B.srt", "talks/a.srt"]),
        (["talks/2024"], {"template": "{folder}-{stem}.{ext}-{model}"}, ["out/-c.m4a-whisper-base.srt"]),
        (["talks/2024/c.m4a"], {"template": "{parent}/{name}"}, ["out/2024/c.m4a.srt"]),
        (["https://h/x/%2e%2e%2fy.mp3", "http://h"], {}, ["out/y.srt", "out/recording.srt"]),
    ],
)
def test_names_of_results(tree: Path, arguments: list[str], options: dict[str, object], expected: list[str]) -> None:
    assert names(*arguments, **options)[: len(expected)] == expected


def test_recordings_that_differ_in_their_suffix_keep_it(tree: Path) -> None:
    for name in ("talks/a.wav", "talks/2024/a.mp3"):
        (tree / name).touch()
    assert names("talks/*.*") == ["out/B.srt", "out/a.mp3.srt", "out/a.wav.srt"]
    assert names("talks", folder=None)[1:3] == ["talks/a.mp3.srt", "talks/a.wav.srt"]
    assert "out/2024/a.srt" in names("talks")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["talks/a.mp3", "other/a.mp3"], {}, r"talks/a.mp3 and other/a.mp3 would both be written to out/a.srt;"),
        (["talks/a.mp3", "talks/a.mp3"], {}, "would both be written"),
        (["talks"], {"template": "all"}, "would both be written to out/all.srt"),
        (["talks"], {"template": "{stim}"}, r"no field \{stim\}. Did you mean 'stem'\?"),
        (["talks"], {"template": "{stem:>5}"}, "takes plain fields"),
        (["talks"], {"template": "{stem"}, "expected '}'"),
        (["talks"], {"template": "../{stem}"}, "is not a file.s name"),
        (["talks"], {"template": "{folder}/"}, "is not a file.s name"),
        (["talks"], {"template": "/tmp/{stem}"}, "within the folder"),
        (["talks"], {"template": ""}, "is not a file.s name"),
        (["-"], {"folder": None}, "- is in no folder;"),
        (["http://h/a.mp3"], {"folder": None}, "is in no folder"),
    ],
)
def test_names_that_cannot_be(tree: Path, arguments: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        names(*arguments, **options)


def test_no_name_is_given_twice(tree: Path) -> None:
    """a.mp3.wav beside a.mp3 and a.wav, whose names with their suffixes are as its own without."""
    for name in ("talks/a.wav", "talks/a.mp3.wav"):
        (tree / name).touch()
    with pytest.raises(ParameterError, match=r"would both be written to out/a\.mp3\.srt"):
        names("talks")
    given = names("talks", template="{folder}/{name}")
    assert len(given) == len(set(given)) == 6


def test_a_recording_is_what_is_read(tree: Path) -> None:
    assert Recording("talks/a.mp3").audio(None) == "talks/a.mp3"
    with pytest.raises(Exception, match="cannot be read: Connection refused"):
        load_audio(Recording("http://127.0.0.1:9/a.mp3", is_url=True).audio(None))
