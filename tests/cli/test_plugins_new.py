"""``transept plugins new`` and docs/plugins.md: what they promise is built, installed by pip, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fresh_environment import FreshEnvironment, make_environment

from transept.cli import main

TUTORIAL = Path(__file__).parents[2] / "docs" / "plugins.md"
FILES = (
    "README.md",
    "pyproject.toml",
    "tests/test_{module}.py",
    "transept_{module}/__init__.py",
    "transept_{module}/model.py",
    "transept_{module}/weights.py",
)
MOST_CHANGED_LINES = 29

# transformers' BART under the name of a class of one's own, as in the tutorial
CHECK_NEWSBART = """
import sys
import torch
from transformers import BartConfig, BartForConditionalGeneration
from transept.testing import Parity

class NewsBart(BartForConditionalGeneration): pass

torch.manual_seed(0)
sizes = {f"{side}_{size}": n for side in ("encoder", "decoder")
         for size, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}
Parity(NewsBart(BartConfig(vocab_size=200, d_model=32, init_std=0.3, **sizes)), sys.argv[1]).check_decode()
"""


def first_block(language: str) -> str:
    """The tutorial's first block of code in a language."""
    return re.search(rf"^```{language}\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)[1]


def new(name: str, directory: Path) -> Path:
    assert main(["plugins", "new", name, "--directory", str(directory)]) == 0
    return directory / f"transept-{name}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A plugin as it is made, and its files."""
    plugin = new("two-words", tmp_path_factory.mktemp("skeleton"))
    return plugin, {str(path.relative_to(plugin)): path.read_text() for path in plugin.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def blenderbot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, after the diff in the tutorial."""
    plugin = new("blenderbot", tmp_path_factory.mktemp("blenderbot"))
    tool = ["patch", "-p1", "--fuzz=0"] if shutil.which("patch") else ["git", "apply", "-"]
    done = subprocess.run(tool, input=first_block("diff"), cwd=plugin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return plugin


@pytest.fixture(scope="module")
def passed(environment: FreshEnvironment, skeleton: tuple[Path, dict[str, str]], blenderbot: Path) -> str:
    """Both are installed as their author does, and load: the tests of theirs that pass, a line each."""
    environment.install("--editable", skeleton[0], "--editable", blenderbot)
    checked = environment.transept("plugins", "check")
    assert checked.returncode == 0, checked.stdout
    done = environment.run("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", skeleton[0], blenderbot)
    assert done.returncode == 0, done.stdout
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("PASSED "))


def test_the_skeleton_passes_its_own_tests(skeleton: tuple[Path, dict[str, str]], passed: str) -> None:
    _, files = skeleton
    assert sorted(files) == [name.format(module="two_words") for name in FILES]
    assert "class TwoWordsForConditionalGeneration(ForConditionalGeneration)" in files["transept_two_words/model.py"]
    assert not [name for name, text in files.items() if "skeleton" in (name + text).lower()]
    assert passed.count("tests/test_two_words.py::") == 5


def test_the_diff_in_the_tutorial_makes_it_blenderbot(blenderbot: Path, passed: str) -> None:
    changed = [line for line in first_block("diff").splitlines() if re.match(r"[+-](?!\+\+ |-- )", line)]
    assert len(changed) <= MOST_CHANGED_LINES
    assert f"All of it, {len(changed)} lines:" in TUTORIAL.read_text(encoding="utf-8")
    assert "import BlenderbotConfig, BlenderbotForConditionalGeneration" in (
        blenderbot / "tests" / "test_blenderbot.py"
    ).read_text(encoding="utf-8")
    assert passed.count("tests/test_blenderbot.py::") == 5


def test_the_nine_lines_of_the_tutorial_run_a_checkpoint(environment: FreshEnvironment, tmp_path: Path) -> None:
    module = first_block("python")
    assert len(module.splitlines()) == 9
    (tmp_path / "transept_newsbart.py").write_text(module, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(first_block("toml"), encoding="utf-8")
    environment.install(tmp_path)
    assert "newsbart" in environment.transept("plugins", "check").stdout
    done = environment.run("-c", CHECK_NEWSBART, tmp_path / "checkpoint")
    assert done.returncode == 0, done.stderr


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "transept-mine"
    mine.mkdir()
    assert main(["plugins", "new", "mine", "--directory", str(tmp_path)]) == 1
    assert f'"{mine}" exists already' in capsys.readouterr().err
    assert not list(mine.iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["plugins", "new", "mine", "--directory", str(tmp_path / "file")]) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_an_architecture_that_is_taken_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "new", "whisper", "--directory", str(tmp_path)]) == 1
    assert "WhisperForConditionalGeneration, as whisper from transept" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("My_Model", "my-model"), ("a--b", "a-b"), ("-x", "x"), ("2nd", None), ("../up", "up"), ("naïve", "na-ve")],
)
def test_names_are_checked(name: str, nearest: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["plugins", "new", "--directory", str(tmp_path), "--", name])
    assert done.value.code == 2
    error = capsys.readouterr().err
    assert f'"{name}" cannot name a distribution and a module' in error
    assert (f'; try "{nearest}"' in error) if nearest else ("; try" not in error)
    assert not list(tmp_path.iterdir())
