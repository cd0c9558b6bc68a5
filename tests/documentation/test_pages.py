"""The pages for readers: links lead somewhere, commands are valid, and no public name is missing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from documentation_pages import FENCE, PAGES, ROOT

from transept.cli.commands import COMMANDS

REFERENCE = {"options.md"}
OWN = "https://github.com/transept/transept/blob/main/"


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


def prose(page: Path) -> str:
    """The text of a page without its examples and without code in a line."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings, as GitHub spells them, and names of the reference."""
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
    """Return the output of a program that runs in a folder."""
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
