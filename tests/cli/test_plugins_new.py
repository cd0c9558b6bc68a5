"""``transept plugins new`` and docs/plugins.md: what they promise is built, installed and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_environment import FreshEnvironment, make_environment

from transept.cli import main

TUTORIAL = Path(__file__).parents[2] / "docs" / "plugins.md"
FILES = (
    "README.md",
    "pyproject.toml",
    "tests/conftest.py",
    "tests/test_{module}.py",
    "transept_{module}/__init__.py",
    "transept_{module}/model.py",
    "transept_{module}/weights.py",
)
KINDS = {  # kind -> (name, files besides FILES)
    "text": ("two-words", ()),
    "speech": ("heard-words", ("tests/test_transcribe.py", "transept_{module}/mapper.py")),
    "image": ("seen-words", ("tests/test_read.py", "transept_{module}/mapper.py")),
}
NUM_CHECKS = 7
OWN_CLASS = '''class BlenderbotForConditionalGeneration(BlenderbotForConditionalGeneration):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""


'''
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


def new(name: str, directory: Path, kind: str = "text") -> Path:
    asked = [] if kind == "text" else ["--kind", kind]
    assert main(["plugins", "new", name, "--directory", str(directory), *asked]) == 0
    return directory / f"transept-{name}"


def describe(plugin: Path) -> None:
    """Write the metadata beside a plugin's sources, with the tutorial's command, so that PYTHONPATH is enough."""
    (code,) = re.findall(r'^python -c "(import .*)" -q egg_info$', TUTORIAL.read_text(encoding="utf-8"), re.M)
    subprocess.run([sys.executable, "-c", code, "-q", "egg_info"], cwd=plugin, check=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def skeletons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, str]]]:
    """A plugin of each kind as it is made, and its files."""
    folder = tmp_path_factory.mktemp("skeletons")
    made = {kind: new(name, folder, kind) for kind, (name, _) in KINDS.items()}
    return {
        kind: (
            plugin,
            {str(path.relative_to(plugin)): path.read_text() for path in plugin.rglob("*") if path.is_file()},
        )
        for kind, plugin in made.items()
    }


@pytest.fixture(scope="module")
def blenderbot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, after the diff in the tutorial."""
    plugin = new("blenderbot", tmp_path_factory.mktemp("blenderbot"))
    tool = ["patch", "-p1", "--fuzz=0"] if shutil.which("patch") else ["git", "apply", "--unidiff-zero", "-"]
    done = subprocess.run(tool, input=first_block("diff"), cwd=plugin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return plugin


@pytest.fixture(scope="module")
def passed(environment: FreshEnvironment, skeletons: dict[str, tuple[Path, dict[str, str]]], blenderbot: Path) -> str:
    """The tests of theirs that pass, a line each. Blenderbot is found without pip, the others are installed."""
    environment.install(*(argument for plugin, _ in skeletons.values() for argument in ("--editable", plugin)))
    describe(blenderbot)
    checked = environment.transept("plugins", "check", PYTHONPATH=str(blenderbot))
    assert checked.returncode == 0, checked.stdout
    assert re.search(r"^blenderbot +transept-blenderbot 0\.1\.0 +ok ", checked.stdout, re.M)
    plugins = [*(plugin for plugin, _ in skeletons.values()), blenderbot]
    root = os.path.commonpath(plugins)  # else pytest takes the fixtures of one conftest.py for all of them
    tests = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", root, *plugins)
    done = environment.run(*tests, PYTHONPATH=str(blenderbot))
    assert done.returncode == 0, done.stdout
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("PASSED "))


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_passes_its_own_tests(
    kind: str, skeletons: dict[str, tuple[Path, dict[str, str]]], passed: str
) -> None:
    name, more = KINDS[kind]
    _, files = skeletons[kind]
    module, prefix = name.replace("-", "_"), name.title().replace("-", "")
    assert sorted(files) == sorted(file.format(module=module) for file in (*FILES, *more))
    assert f"class {prefix}ForConditionalGeneration(ForConditionalGeneration)" in files[f"transept_{module}/model.py"]
    assert not [file for file, text in files.items() if "skeleton" in (file + text).lower()]
    assert passed.count(f"tests/test_{module}.py::") == NUM_CHECKS
    assert all(f"{file}::" in passed for file in more if file.startswith("tests/"))


def test_the_diff_in_the_tutorial_makes_it_blenderbot(blenderbot: Path, passed: str) -> None:
    changed = [line for line in first_block("diff").splitlines() if re.match(r"[+-](?!\+\+ |-- )", line)]
    assert len(changed) <= MOST_CHANGED_LINES
    assert f"All of it, {len(changed)} lines:" in TUTORIAL.read_text(encoding="utf-8")
    assert "import BlenderbotConfig, BlenderbotForConditionalGeneration" in (
        blenderbot / "tests" / "conftest.py"
    ).read_text(encoding="utf-8")
    assert passed.count("tests/test_blenderbot.py::") == NUM_CHECKS


@pytest.mark.slow
def test_the_first_errors_of_the_tutorial_come(tmp_path: Path) -> None:
    """The reference is Blenderbot, and nothing else is changed."""
    environment = make_environment(tmp_path / "venv")
    plugin = new("blenderbot", tmp_path)
    describe(plugin)
    conftest = plugin / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text().replace("Bart", "Blenderbot").replace(OWN_CLASS, ""))
    done = environment.run("-m", "pytest", "-x", "-p", "no:cacheprovider", plugin, PYTHONPATH=str(plugin))
    shown = re.search(r"^CheckpointError: the weights .*?^```$", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)[0]
    for line in shown.splitlines()[1:-1]:
        assert line.strip() == "..." or line.strip() in done.stdout


@pytest.mark.slow
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


def test_a_class_may_have_another_name(tmp_path: Path) -> None:
    arguments = ["plugins", "new", "b-art", "--directory", str(tmp_path), "--class-name", "BArtFor2"]
    assert main(arguments) == 0
    plugin = tmp_path / "transept-b-art"
    assert "class BArtFor2(ForConditionalGeneration)" in (plugin / "transept_b_art" / "model.py").read_text()
    declared = (plugin / "transept_b_art" / "__init__.py").read_text()
    assert 'architectures=("BArtFor2",)' in declared
    assert 'model_class="transept_b_art.model:BArtFor2"' in declared
    assert "class BArtFor2(BartForConditionalGeneration)" in (plugin / "tests" / "conftest.py").read_text()
    assert not [path for path in plugin.rglob("*.py") if "BArtForConditionalGeneration" in path.read_text()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["class"], '"class" is a keyword of Python; choose another name, such as "class-model"'),
        (["json"], '"json" is a module\'s name; choose another name, such as "json-model"'),
        (["torch"], '"torch" is a module\'s name; choose another name, such as "torch-model"'),
        (["huggingface-hub"], '"huggingface-hub" is a module\'s name'),
        (["mine", "--class-name", "My-Class"], '"My-Class" cannot name a class; write it as "MyFor'),
        (["mine", "--class-name", "None"], '"None" cannot name a class'),
        (
            ["mine", "--class-name", "LayerContext"],
            "LayerContext is already a name in the new plugin's transept_mine/",
        ),
        (["mine", "--class-name", "BartModel"], "the plugin would run BartModel, as bart from transept"),
    ],
)
def test_names_that_mean_something_else_are_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["plugins", "new", "--directory", str(tmp_path), *arguments])
    except SystemExit as done:
        code = done.code
    assert code
    assert message in capsys.readouterr().err
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
