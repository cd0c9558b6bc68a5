"""The examples of docs/serving.md and docs/reference/http.md, as a reader would type them, against a small server."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from serve_process import PATIENCE, Serve, ServeProcess

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("serving.md", "reference/http.md"))
PRINTED = Path(__file__).parents[1] / "data" / "printed"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
CURLS = [
    command
    for _, text in FENCE.findall(PAGES)
    for command in text.replace("\\\n", " ").splitlines()
    if command.startswith("curl ")
]


@pytest.fixture
def stands_for(
    server: ServeProcess, speech_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """What stands in an example -> what runs. Recording and image that examples name are in the folder at hand."""
    shutil.copy(speech_dir / "librivox" / "austen-0870.flac", tmp_path / "meeting.m4a")
    shutil.copy(PRINTED / "heldout" / "00.png", tmp_path / "line1.png")
    monkeypatch.chdir(tmp_path)
    return {"http://127.0.0.1:8000": server.url, "openai/whisper-base": "tiny.en"}


def test_the_python_example_runs(stands_for: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [text for language, text in FENCE.findall(PAGES) if language == "python"]
    for stands, runs in stands_for.items():
        example = example.replace(stands, runs)
    exec(compile(example, "docs/serving.md", "exec"), {})
    assert capsys.readouterr().out.count("And Mr. John Dashwood") == 2  # whole, then streamed


@pytest.mark.sampled(2)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", CURLS)
def test_curl_gets_an_answer(command: str, stands_for: dict[str, str], serve: Serve) -> None:
    if "/v1/read" in command:  # of a model that the shared server has not
        stands_for["http://127.0.0.1:8000"] = serve(f"trocr={PRINTED / 'trocr-numbers'}").wait_until_ready().url
    for stands, runs in stands_for.items():
        command = command.replace(stands, runs)
    arguments = [*shlex.split(command), "--silent", "--fail-with-body", "--max-time", str(PATIENCE)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout


def test_there_are_examples() -> None:
    assert len(CURLS) == 6
