"""All that documentation names can be imported, and a newcomer's one-liners work as docs/index.md has them."""

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import transept
from transept import errors
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment, Word
from transept.speech.transcript import Transcript

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOR_AUTHORS = {"architecture.md", "authoring.md", "inputs.md", "plugins.md"}
LINES = 12


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, errors.TranseptError) and each.__module__ == errors.__name__
    }
    assert len(raised) > 15
    assert raised <= {*transept.__all__}


def test_names_in_documentation_are_exported() -> None:
    named: set[str] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named |= set(re.findall(r"\btransept\.([A-Za-z]\w+)(?!/)\b", text))
        for group in re.findall(r"^from transept import (.*)$", text, re.M):
            named |= {name.strip() for name in group.split(",")}
        if page.name not in FOR_AUTHORS:
            named |= {name for name in re.findall(r"`([A-Z]\w+Error)`", text) if name != "ValueError"}
    files = {path.stem for path in (ROOT / "transept").iterdir()} | {"md", "toml", "service"}
    assert len(named) > 30
    assert named - files <= {*transept.__all__}
    assert all(hasattr(transept, name) for name in transept.__all__)


def test_classes_for_asyncio_are_in_one_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"`(Async\w+)", text)) <= {*transept.aio.__all__}
    assert all(inspect.isclass(getattr(transept.aio, name)) for name in transept.aio.__all__)


def transcript(*segments: Segment, reason: str | None = None) -> Transcript:
    text = "".join(each.text for each in segments).strip()
    return Transcript(text, "en", None, {}, 9.0, 9.0, [*segments], TranscriptionOptions(), reason=reason)


def segment(text: str, start: float, end: float) -> Segment:
    words = [Word(start, end, text, 0.5)]
    return Segment(0, 0, start, end, text, [], 0.0, 0.0, 1.0, 0.0, words)


def test_a_transcript_is_its_segments_and_any_format(tmp_path: Path) -> None:
    whole = transcript(segment(" So far", 0.0, 1.5), segment(" so good.", 2.0, 3.0))
    assert list(whole) == whole.segments
    assert [each.text for each in whole] == [" So far", " so good."]
    assert whole.to_srt().startswith("1\n00:00:00,000 --> 00:00:01,500\nSo far\n\n2\n")
    assert whole.to_vtt().startswith("WEBVTT\n\n00:00.000 --> 00:01.500\nSo far\n\n")
    for name in ("txt", "srt", "vtt", "tsv", "json", "lrc", "csv", "ass", "ttml"):
        whole.write(tmp_path / f"talk.{name}")
        assert whole.to_str(name) == (tmp_path / f"talk.{name}").read_text(encoding="utf-8")
    whole.write(tmp_path / "filled.srt", max_line_width=80, max_line_count=1)
    filled = (tmp_path / "filled.srt").read_text(encoding="utf-8")
    assert whole.to_srt(max_line_width=80, max_line_count=1) == filled != whole.to_srt()
    with pytest.raises(transept.ParameterError, match=r"no format 'str'\. Did you mean 'srt'"):
        whole.to_str("str")
    with pytest.raises(transept.ParameterError, match="'max_line_widths'"):
        whole.to_vtt(max_line_widths=3)  # type: ignore[call-arg]


def test_an_empty_transcript_says_why_and_is_still_one() -> None:
    empty = transcript(reason="the recording is silent")
    assert (list(empty), empty.text, bool(empty)) == ([], "", True)
    assert empty.to_srt() == ""
    with pytest.raises(TypeError):  # segments are counted by name
        len(empty)  # type: ignore[arg-type]


def one_liners() -> list[str]:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\nimport transept\n\n(.*?)```", page, re.S)
    return block.strip().splitlines()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, base_dir: Path, t5_dir: Path, speech_dir: Path) -> Path:
    """A folder with the files of the one-liners, in which the default models' names are checkpoints."""
    folder = tmp_path_factory.mktemp("desk")
    checkpoints = {
        "base": base_dir,
        "facebook/bart-large-cnn": ROOT / "tests" / "data" / "cmudict" / "bart-g2p",
        "google-t5/t5-base": t5_dir,
        "microsoft/trocr-base-printed": ROOT / "tests" / "data" / "printed" / "trocr-numbers",
    }
    for name, checkpoint in checkpoints.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(checkpoint)
    shutil.copy(speech_dir / "prompts-en" / "conf-getpin.flac", folder / "talk.flac")
    shutil.copy(speech_dir / "prompts-en" / "conf-onlyone.flac", folder / "call.flac")
    shutil.copy(ROOT / "tests" / "data" / "printed" / "heldout" / "00.png", folder / "line.png")
    (folder / "article.txt").write_text("transept")
    return folder


def test_the_one_liners_of_a_newcomer_work(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    lines = one_liners()
    assert len(lines) == LINES
    results: list[Any] = [eval(line, {"transept": transept}) for line in lines]
    with pytest.raises(transept.ParameterError, match="one recording; for a list of them call transcribe_many"):
        transept.transcribe(["talk.flac", "call.flac"])  # type: ignore[arg-type]
    text, segments, written, words, german, several, summary, translation, read, language, logprob, vector = results
    assert "conference" in text.lower()
    assert "".join(each[2] for each in segments).strip() == text
    assert 0 <= segments[0][0] < segments[0][1]
    assert written == len(Path("talk.srt").read_text()) > 0
    assert Path("talk.srt").read_text().startswith("1\n00:00:0")
    assert "".join(words).strip() == text
    assert german
    assert several[0] == text
    assert "participant" in several[1].lower()
    assert summary
    assert isinstance(translation, str)
    assert read == "25.03.1910"
    assert language == "en"
    assert logprob < 0
    assert vector.ndim == 1
