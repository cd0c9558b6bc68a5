"""What importing Transept does not import, and the names that its two public modules offer."""

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "transformers", "librosa", "av"}

BOOKKEEPING = (
    "transept.core.scheduling.scheduler",
    "transept.core.scheduling.block_manager",
    "transept.core.scheduling.sequence",
    "transept.core.request.prompts",
    "transept.core.request.sampling_params",
    "transept.core.outputs",
)
DECLARATIONS = ("transept.authoring", "transept.registry.plugins", "transept.registry.lookup")


@pytest.mark.parametrize(
    "statement",
    [
        "import transept",
        "import transept; dir(transept); transept.SamplingParams(); transept.TextPrompt(prompt='x')",
        "import " + ", ".join(BOOKKEEPING),
        "import " + ", ".join(DECLARATIONS),
        "from transept.registry.plugins import discover; assert discover().with_status('ok')",
    ],
)
def test_what_needs_no_tensors_loads_none(statement):
    code = f"{statement}\nimport sys\nprint(*{HEAVY} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize(
    ("given", "rounds"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["by default", "as given", "as a policy says"],
)
def test_idle_threads_leave_their_cores_to_others_soon(given, rounds):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    code = "import os, transept; print(os.environ.get('GOMP_SPINCOUNT'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment | given
    )
    assert ran.stdout.split() == [rounds]


CLIP = Path(__file__).parent / "data" / "speech" / "librivox" / "austen-0880.flac"
SLOW_TO_IMPORT = {"transformers", "huggingface_hub", "librosa", "numba", "scipy", "sklearn", "pandas", "matplotlib"}
RUNS = """
import json, sys
from transept.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def huggingface_dir(tiny_en_dir, tmp_path_factory):
    """The weights of tiny.en with every file that openai/whisper-tiny.en has."""
    from huggingface_whisper import save_huggingface_whisper

    return save_huggingface_whisper(tiny_en_dir, tmp_path_factory.mktemp("whisper") / "tiny.en")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("directory", "options"),
    [
        ("tiny_en_dir", ["--quantization", "int8"]),
        ("tiny_en_dir", ["--word-timestamps"]),
        ("huggingface_dir", []),
        pytest.param("tiny_en_dir", [], marks=pytest.mark.slow),
        pytest.param("huggingface_dir", ["--quantization", "int8"], marks=pytest.mark.slow),
        pytest.param("huggingface_dir", ["--word-timestamps"], marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_whisper_checkpoint_transcribes_without_transformers(directory, options, request):
    command = ["transcribe", str(CLIP), "--model", str(request.getfixturevalue(directory)), *options]
    assert "young man" in runs_without_slow_imports(*command)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "text", "command", "expected"),
    [
        ("bart-g2p", "transept", ["summarize"], "T R AE0 N S EH1 P T"),
        ("t5-g2p", "R EY1 N", ["translate", "--source", "phonemes", "--target", "graphemes"], "rain"),
    ],
)
def test_a_text_model_writes_without_transformers(name, text, command, expected, tmp_path):
    document = tmp_path / "document.txt"
    document.write_text(text)
    checkpoint = Path(__file__).parent / "data" / "cmudict" / name
    assert runs_without_slow_imports(*command, str(document), "--model", str(checkpoint)) == expected


def runs_without_slow_imports(*command):
    """What a command prints, which is one line."""
    ran = subprocess.run([sys.executable, "-c", RUNS, *command], capture_output=True, text=True, check=True)
    text, imported = ran.stdout.splitlines()
    code, packages = json.loads(imported)
    assert code == 0
    assert not SLOW_TO_IMPORT & set(packages)
    assert "tokenizers" in packages
    return text


@pytest.mark.parametrize("public", ["transept", "transept.authoring"])
def test_every_public_name_resolves(public):
    module = importlib.import_module(public)
    assert sorted(set(module.__all__)) == module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module._LAZY_IMPORTS) <= set(module.__all__)


@pytest.mark.parametrize("public", ["transept", "transept.authoring", "transept.cluster"])
def test_type_checkers_see_the_names_that_load_on_first_use(public):
    module = importlib.import_module(public)
    (block,) = (
        each
        for each in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
    )
    seen = {name.name: each.module for each in block.body for name in each.names}
    assert seen == {**module._LAZY_IMPORTS, **({"aio": "transept"} if public == "transept" else {})}
    assert {name for name in dir(module) if not name.startswith("__")} == seen.keys()


@pytest.mark.parametrize("public", ["transept", "transept.authoring"])
def test_star_import_and_dir_know_every_public_name(public):
    module = importlib.import_module(public)
    names = {}
    exec(f"from {public} import *", names)
    assert set(module.__all__) <= names.keys()
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("public", ["transept", "transept.authoring"])
def test_an_unknown_name_is_an_attribute_error(public):
    module = importlib.import_module(public)
    with pytest.raises(AttributeError, match=f"module '{public}' has no attribute 'Enginee'"):
        _ = module.Enginee
