"""Runs the kernels' tests at each level of 64-bit Arm under QEMU's user mode, and imports all of the package there.

`make test-arm` runs it in an environment with setuptools and uv. build/arm gets Debian's Python for Arm, the packages
and a wheel whose kernels Debian's cross-compiler builds; nothing is installed in the system. QEMU looks there for each
absolute path first. Arguments are for pytest, and replace the tests; with --wheel, another wheel is tested.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "arm"
SYSTEM, HOME = BUILD / "root", BUILD / "venv"  # Debian's files; the environment with Arm's packages
PYTHON = HOME / "bin" / "python"
TARGET, COMPILER = "linux_aarch64", "aarch64-linux-gnu-g++"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
DEBIAN = ("python3", "libgomp1", "libstdc++6", "libsndfile1")
PACKAGES = ("pytest", "hypothesis", "openai-whisper")  # beside the package's own
LEVELS = runpy.run_path(str(ROOT / "transept" / "core" / "kernels" / "cpu" / "isas.py"))["compiled_on"]("aarch64")

KERNELS = "tests/core/kernels"
OF_EACH_LEVEL = [
    *(f"{KERNELS}/test_{name}.py" for name in ("float_gemm", "int8_gemm", "bfloat16_gemm")),
    *(f"{KERNELS}/test_{name}.py" for name in ("encoder_attention", "paged_attention", "rows", "argmax")),
    "tests/core/layers/test_norm.py",
    "tests/core/layers/test_transformer.py",  # the decoder's layers in one kernel
    "tests/speech/test_alignment.py::test_the_path_is_that_of_openai_whisper",
    "tests/speech/test_alignment.py::test_the_median_is_that_of_openai_whisper",
]
OF_ONE_LEVEL = [
    *(f"{KERNELS}/test_{name}.py" for name in ("equal_bits", "copy_rows", "dispatch")),
    "tests/core/layers/test_feed_forward.py",
    "tests/core/parallel/test_shared_memory.py",
    "tests/speech/test_vad.py::test_probabilities_are_those_of_the_packaged_model",
]
INSTALLED = {"PYTHONSAFEPATH": "1"}  # the package is the installed one, not this folder's
IMPORTS = """
import importlib, pkgutil, platform, transept
from transept.core.kernels.cpu.library import level

imported, missing = 0, set()
for found in pkgutil.walk_packages(transept.__path__, "transept."):
    if ".skeleton." not in found.name and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
            imported += 1
        except ModuleNotFoundError as error:  # of an extra
            assert not error.name.startswith("transept")
            missing.add(error.name)
print(f"{imported} modules on {platform.machine()}, {level()}; others need {', '.join(sorted(missing))}")
"""


class UnavailableError(Exception):
    """Emulation cannot be set up on this machine."""


def run(*command: str | Path, **variables: str) -> None:
    """Run a command; fail if it does."""
    subprocess.run([*map(str, command)], cwd=ROOT, env=os.environ | variables, check=True)


def found(names: tuple[str, ...], package: str) -> str:
    """Return the first of some programs that exists."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise UnavailableError(f"there is no {names[0]}: install Debian's {package}")
    return path


def unpack_system() -> None:
    """Fetch Debian's Python for Arm and its libraries, from the sources of this machine's apt, and unpack them."""
    if SYSTEM.exists():
        return
    found(("apt-get",), "apt")
    apt, unpacked = BUILD / "apt", BUILD / "unpacked"
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    own = (f"Dir::State={apt}/state", f"Dir::State::status={apt}/status", f"Dir::Cache={apt}/cache")
    options = [f"-o{each}" for each in ("APT::Architecture=arm64", "APT::Architectures::=arm64", *own)]
    options += ["-oAPT::Sandbox::User=", "-oDebug::NoLocking=1", "-qq"]
    try:
        run("apt-get", *options, "update")
        run("apt-get", *options, "install", "--yes", "--no-install-recommends", "--download-only", *DEBIAN)
    except subprocess.CalledProcessError:
        raise UnavailableError("apt finds no packages for arm64") from None
    for package in (apt / "cache" / "archives").glob("*.deb"):
        run("dpkg-deb", "--extract", package, unpacked)
    for name in ("bin", "lib"):  # which a package outside the list makes in newer releases
        if not (unpacked / name).exists():
            (unpacked / name).symlink_to(f"usr/{name}")
    unpacked.rename(SYSTEM)


def make_environment(emulator: str) -> str:
    """Make an environment whose `python` starts the emulator, also as a child of itself. Return Python's version."""
    (binary,) = SYSTEM.glob("usr/bin/python3.[0-9]*[0-9]")
    PYTHON.parent.mkdir(parents=True, exist_ok=True)
    (HOME / "pyvenv.cfg").write_text(f"home = {binary.parent}\n", encoding="utf-8")
    # Pointers are signed by a simple hash: the architecture's takes half of the time.
    command = f'exec "{emulator}" -cpu max,pauth-impdef=on -L "{SYSTEM}" -0 "$0" "{binary}" "$@"'
    PYTHON.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    PYTHON.chmod(0o755)
    return binary.name.removeprefix("python")


def install(version: str, wheel: Path) -> None:
    """Unpack the packages for Arm and the wheel, without running anything there."""
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python-platform", "aarch64-manylinux_2_28"]
    uv += ["--python-version", version, "--target", str(HOME / "lib" / f"python{version}" / "site-packages")]
    settings = runpy.run_path(str(ROOT / ".ci" / "install.py"), run_name="settings")["settings"](sys.executable)
    needed = ("--requirement", "pyproject.toml", "--extra", "demo", *PACKAGES)
    run(*uv, "--constraint", "constraints.txt", *needed, **settings)
    run(*uv, "--no-deps", "--reinstall-package", "transept", wheel, **settings)


def build() -> Path:
    """Return a wheel of this checkout whose kernels the cross-compiler builds."""
    base = BUILD / "build"
    shutil.rmtree(base, ignore_errors=True)
    for older in BUILD.glob("*.whl"):
        older.unlink()
    command = ("setup.py", "--quiet", "build", "--build-base", base, "bdist_wheel", "--dist-dir", BUILD)
    run(sys.executable, *command, TRANSEPT_TARGET=TARGET, CXX=COMPILER)
    (wheel,) = BUILD.glob(f"*-{TARGET}.whl")
    return wheel


def passes(level: str, tests: list[str]) -> bool:
    """Run tests at a level, print what pytest prints, and return True if they pass. Without tests: those above."""
    tests = tests or [*OF_EACH_LEVEL, *(OF_ONE_LEVEL if level == LEVELS[-1].name else ())]
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    variables = os.environ | INSTALLED | {"TRANSEPT_CPU_LEVEL": level}
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)
    print(f"{level}:\n{done.stdout}", flush=True)
    return not done.returncode


def main() -> None:
    """Set up, import the package, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=lambda name: Path(name).resolve())
    parser.add_argument("--levels", nargs="+", default=[isa.name for isa in LEVELS])
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    try:
        emulator = found(EMULATORS, "qemu-user-static")
        if arguments.wheel is None:
            found((COMPILER,), "g++-aarch64-linux-gnu")
        unpack_system()
    except UnavailableError as reason:
        print(f"skipped: {reason}")
        return
    install(make_environment(emulator), arguments.wheel or build())
    run(PYTHON, "-c", IMPORTS, **INSTALLED)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(partial(passes, tests=arguments.tests), arguments.levels)
        sys.exit(not all([*done]))


if __name__ == "__main__":
    main()
