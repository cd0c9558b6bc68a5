"""``transept read`` on images of text and a small random checkpoint: texts, files, exit codes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Command
from multimodal.pdf_files import pdf_of
from patience import PATIENCE
from rendered_text import LINES, encoded_line

import transept.plugins.vision
from transept import VisionReader
from transept.cli.terminal import escape
from transept.core.checkpoints import model_description
from transept.multimodal.pdf import pdf_pages

SHORT = ("--num-beams", "1", "--max-tokens", "8")


@pytest.fixture(scope="module")
def model(trocr_dir: Path) -> Path:
    return trocr_dir


@pytest.fixture(scope="module")
def texts(model: Path) -> list[str]:
    """What the library makes of each line."""
    images = [encoded_line(text) for text in LINES]
    return [result.text for result in VisionReader(model).read(images, num_beams=1, max_tokens=8)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An image a line, in the working directory."""
    monkeypatch.chdir(tmp_path)
    names = [f"line{number}.png" for number in range(len(LINES))]
    for name, text in zip(names, LINES, strict=True):
        Path(name).write_bytes(encoded_line(text))
    return names


def test_texts_in_order_and_bad_images_reported(
    command: Command, model: Path, files: list[str], texts: list[str]
) -> None:
    Path("letter.png").write_text("Dear Sir")
    Path("folder").mkdir()
    done = command("read", files[0], "letter.png", "lime1.png", "folder", *files[1:], "--model", model, *SHORT)
    assert done.returncode == 1
    assert done.stdout == "".join(f"{file}: {escape(text)}\n" for file, text in zip(files, texts, strict=True))
    assert "transept: letter.png: " in done.stderr
    assert "not a readable image" in done.stderr
    assert "lime1.png: cannot read it: No such file or directory. Did you mean 'line1.png'?" in done.stderr
    assert "folder: this folder has no image or PDF; --recursive also searches its folders" in done.stderr
    assert f"{len(files)} images, " in done.stderr
    assert " s, 3 failed\n" in done.stderr


def test_one_image_is_printed_without_a_name(command: Command, model: Path, files: list[str], texts: list[str]) -> None:
    done = command("read", files[1], "--model", model, *SHORT)
    assert (done.returncode, done.stdout) == (0, f"{texts[1]}\n")
    assert "1 image, " in done.stderr


def test_json_is_one_object_an_image(command: Command, model: Path, files: list[str], texts: list[str]) -> None:
    done = command("read", *files, "--json", "--model", model, *SHORT, "--task", "read")
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["file"], row["text"]) for row in rows] == list(zip(files, texts, strict=True))
    assert all(0 < row["score"] <= 1 and row["error"] is None for row in rows)


def test_json_has_a_line_for_each_image_that_cannot_be_read(
    command: Command, model: Path, files: list[str], texts: list[str]
) -> None:
    Path("letter.png").write_text("Dear Sir")
    given = ["gone.png", files[0], "letter.png", files[1]]
    done = command("read", *given, "--json", "--model", model, *SHORT)
    assert done.returncode == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["file"], row["text"]) for row in rows] == list(zip(given, ["", texts[0], "", texts[1]], strict=True))
    assert [row["finish_reason"] == "error" for row in rows] == [True, False, True, False]
    assert "No such file" in rows[0]["error"]
    assert "not a readable image" in rows[2]["error"]
    assert "transept: letter.png: " in done.stderr
    done = command("read", "gone.png", "--json", "--model", "no-such-model")
    assert (done.returncode, json.loads(done.stdout)) == (1, rows[0])


def test_an_image_is_not_overwritten(command: Command, files: list[str]) -> None:
    image = Path(files[0]).read_bytes()
    Path("line0.txt").write_bytes(image)
    Path("link").symlink_to(".")
    for folder in ("./", "link"):
        done = command("read", files[0], "line0.txt", "-f", "json,txt", "-o", folder, "--model", "no-such-model")
        assert done.returncode == 2
        assert "line0.txt would be overwritten" in done.stderr
        assert Path("line0.txt").read_bytes() == image
    assert not list(Path().glob("*.json"))


def test_files_are_written(command: Command, model: Path, files: list[str], texts: list[str]) -> None:
    Path("broken.png").write_bytes(encoded_line(LINES[0])[:80])
    done = command("read", *files[:2], "broken.png", "-f", "txt,json", "-o", "read", "--model", model, *SHORT)
    assert (done.returncode, done.stdout) == (1, "")
    written = {path.name: path.read_text() for path in Path("read").iterdir()}
    assert sorted(written) == ["broken.json", "line0.json", "line0.txt", "line1.json", "line1.txt"]
    assert [written["line0.txt"], written["line1.txt"]] == [f"{text}\n" for text in texts[:2]]
    assert json.loads(written["line1.json"])["text"] == texts[1]
    failed = json.loads(written["broken.json"])
    assert (failed["file"], failed["text"], failed["finish_reason"]) == ("broken.png", "", "error")
    assert failed["error"].startswith("MediaError: ")
    done = command("read", files[2], "-f", "txt", "--output-name", "{stem}-{model}", "--model", model, *SHORT)
    assert done.returncode == 0
    assert Path(f"line2-{model.name}.txt").read_text() == f"{texts[2]}\n"


def test_folders_and_patterns_give_images_and_a_tree_like_theirs(
    command: Command, model: Path, files: list[str], texts: list[str]
) -> None:
    Path("scans/old/.hidden").mkdir(parents=True)
    for name, file in (("b.png", 0), ("a.PNG", 1), ("notes.doc", 2), ("old/c.png", 2), ("old/.hidden/d.png", 3)):
        Path("scans", name).write_bytes(Path(files[file]).read_bytes())
    flat = command("read", "scans", "--model", model, *SHORT)
    assert (flat.returncode, flat.stdout) == (
        0,
        "".join(f"scans/{name}: {escape(texts[number])}\n" for name, number in (("a.PNG", 1), ("b.png", 0))),
    )
    for arguments in (("scans", "--recursive"), ("scans/**/*.png", "scans/a.PNG")):
        folder = Path(arguments[-1]).suffix or "tree"
        done = command("read", *arguments, "-f", "txt", "-o", folder, "--model", model, *SHORT)
        assert (done.returncode, done.stdout) == (0, "")
        written = {str(path.relative_to(folder)) for path in Path(folder).rglob("*.txt")}
        assert written == {"a.txt", "b.txt", "old/c.txt"}
        assert Path(folder, "old/c.txt").read_text() == f"{texts[2]}\n"
    done = command("read", "scans/*.gif", "https://example.com/a.png", "--model", "no-such-model")
    assert done.returncode == 1
    assert "scans/*.gif: no such file, and no file matches it as a pattern" in done.stderr
    assert "a.png: this command fetches no URLs; download it" in done.stderr
    assert not Path("scans/a.txt").exists()
    done = command("read", "scans/old/c.png", "scans", "--recursive", "-o", "t", "--output-name", "x", "--model", "m")
    assert (done.returncode, Path("t").exists()) == (2, False)
    assert "would both be written to t/x.txt" in done.stderr


def test_what_is_there_is_skipped_but_for_failures(
    command: Command, model: Path, files: list[str], texts: list[str]
) -> None:
    Path("broken.png").write_bytes(encoded_line(LINES[0])[:80])
    arguments = ("read", *files[:3], "broken.png", "-f", "json", "-o", "read", "--skip-existing")
    assert command(*arguments, "--model", model, *SHORT).returncode == 1
    Path("read/line1.json").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in Path("read").iterdir()}
    done = command(*arguments, "--model", model, *SHORT)
    assert done.returncode == 1  # that of the broken one, which is read again
    assert "1 image, " in done.stderr
    assert ", 2 skipped, whose files exist" in done.stderr
    assert json.loads(Path("read/line1.json").read_text())["text"] == texts[1]
    assert {name for name, time in before.items() if Path("read", name).stat().st_mtime_ns != time} == {"broken.json"}
    done = command("read", *files[:3], "-f", "json", "-o", "read", "--skip-existing", "--model", "no-such-model")
    assert done.returncode == 0  # without a model
    assert "0 images, 3 skipped" in done.stderr
    done = command("read", *files, "--skip-existing", "--model", "no-such-model")
    assert done.returncode == 2
    assert "--skip-existing applies to files; write some with -f or -o" in done.stderr


def test_standard_input(model: Path, texts: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "transept", "read", "-", "--model", model, *SHORT],
        input=encoded_line(LINES[3], "BMP"),
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout.decode()) == (0, f"{texts[3]}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "txt,jsn"], "there is no format \"jsn\". Did you mean 'json'?"),
        (["--output-name", "a"], "--output-name applies to files"),
        (
            ["-f", "txt", "--output-name", "a"],
            "or give them different names with --output-name, such as '{parent}/{name}'",
        ),
        (["--threads", "-1"], "--threads must be an integer of at least 0"),
        (["--num-beams", "0"], "--num-beams must be an integer of at least 1"),
        (["--dpi", "1"], "error: --dpi must be a number from 18 to 2400, not 1.0"),
        (["--beams", "2"], "there is no option --beams"),
    ],
)
def test_bad_usage_is_told_before_a_model_loads(
    command: Command, files: list[str], arguments: list[str], message: str
) -> None:
    done = command("read", *files, "--model", "no-such-model", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_nothing_there_ends_before_a_model_loads(command: Command) -> None:
    done = command("read", "no-such.png", "--model", "no-such-model")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no-such-model" not in done.stderr


def test_a_task_that_the_model_does_not_have(command: Command, model: Path, files: list[str]) -> None:
    done = command("read", files[0], "--model", model, "--task", "title")
    assert done.returncode == 2
    assert "there is no --task 'title' with this model" in done.stderr


def test_pages_of_a_pdf_are_an_image_each(command: Command, model: Path, files: list[str], texts: list[str]) -> None:
    pytest.importorskip("pypdfium2", reason="needs transept[pdf]")
    Path("report.pdf").write_bytes(pdf_of([f"line {number}" for number in range(11)]))
    Path("cut.PDF").write_bytes(pdf_of(["cut"])[:100])
    reader = VisionReader(model)
    pages = [result.text for result in reader.read(pdf_pages("report.pdf", dpi=96), num_beams=1, max_tokens=8)]
    assert len({*pages}) > 1
    arguments = ("read", files[0], "report.pdf", "cut.PDF", "--dpi", "96", "--model", model, *SHORT)
    done = command(*arguments)
    assert done.returncode == 1
    expected = [f"{files[0]}: {escape(texts[0])}"]
    expected += [f"report.pdf, page {number}: {escape(text)}" for number, text in enumerate(pages, 1)]
    assert done.stdout.splitlines() == expected
    assert 'transept: cut.PDF: PDF file "cut.PDF" cannot be read: ' in done.stderr
    assert "12 images, " in done.stderr
    done = command(*arguments, "--json", "-o", "texts")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["file"], row.get("page")) for row in rows[1:]] == [
        *(("report.pdf", number) for number in range(1, 12)),
        ("cut.PDF", None),
    ]
    names = [f"report-{number:02}" for number in range(1, 12)]
    written = sorted(path.name for path in Path("texts").iterdir())
    both = [f"{name}.{suffix}" for name in [Path(files[0]).stem, *names] for suffix in ("json", "txt")]
    assert written == sorted([*both, "cut.json"])
    assert json.loads(Path("texts/cut.json").read_text())["error"].startswith(
        'MediaError: PDF file "cut.PDF" cannot be'
    )
    assert Path("texts/report-03.txt").read_text() == f"{pages[2]}\n"
    assert json.loads(Path("texts/report-03.json").read_text())["page"] == 3


def test_pages_that_share_a_file_are_bad_usage(command: Command, files: list[str]) -> None:
    pytest.importorskip("pypdfium2", reason="needs transept[pdf]")
    Path("a.pdf").write_bytes(pdf_of(["a"]))
    done = command("read", "a.pdf", "a.pdf", "-o", "texts", "--model", "no-such-model")
    assert done.returncode == 2
    assert "a.pdf, page 1 and a.pdf, page 1 would both be written to texts/a-1.txt; name it once" in done.stderr


def test_usage_is_looked_at_before_pdfs(command: Command, files: list[str]) -> None:
    Path("cut.pdf").write_bytes(pdf_of(["cut"])[:100])
    for wrong in (["--skip-existing"], ["-o", "texts", "--output-name", "{nmae}"], ["--threads", "-1"]):
        done = command("read", "cut.pdf", "--model", "no-such-model", *wrong)
        assert done.returncode == 2
        assert "cut.pdf" not in done.stderr


def test_names_that_are_alike_are_not_told_apart_by_what_is_used(command: Command, files: list[str]) -> None:
    for folder in ("a/x", "b/x"):
        Path(folder).mkdir(parents=True)
        Path(folder, "1.png").write_bytes(Path(files[0]).read_bytes())
    pattern = ("--output-name", "{parent}/{name}")
    done = command("read", "a/x/1.png", "b/x/1.png", "-o", "t", *pattern, "--model", "no-such-model")
    assert done.returncode == 2
    assert done.stderr.endswith("would both be written to t/x/1.png.txt; run the command for each, with its own -o\n")


def test_a_mapper_that_fails_fails_each_image(
    command: Command, model: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = transept.plugins.vision.register_models()[0]
    broken = dataclasses.replace(spec, input_mappers={"image": lambda data, view: 1 / 0})
    monkeypatch.setattr(model_description, "find_model", lambda *given: broken)
    done = command("read", *files[:2], "--json", "--model", model, *SHORT)
    assert done.returncode == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["file"] for row in rows] == files[:2]
    assert all("ZeroDivisionError" in row["error"] for row in rows)
    assert all(
        f'transept: {file}: the "image" mapper of plugin family "trocr" raised' in done.stderr for file in files[:2]
    )
    assert "0 images, 0 tokens in" in done.stderr
    assert " s, 2 failed\n" in done.stderr
