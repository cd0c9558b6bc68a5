"""Builds the CPU kernels: one shared library for each instruction set, from the C++ of transept/core/kernels/cpu.

Everything else about the package is in pyproject.toml. A library has plain C functions and does not depend on Python,
so one wheel serves all Python versions of a platform. The compiler is $CXX, or else the first of c++, g++ and clang++
that exists, or else the one in the `ziglang` package, which build_backend.py requires if there is no other, and always
on Windows. With $TRANSEPT_TARGET, the tag of a wheel in TARGETS, `ziglang` builds for another platform.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SOURCES = Path("transept/core/kernels/cpu")
LIBRARIES = SOURCES / "lib"  # where library.py looks for them

FLAGS = [
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),  # but NaN and infinity keep their meaning
    *("-Wall", "-Wextra", "-Wno-psabi", "-Wno-unknown-pragmas", "-Wno-uninitialized", "-Wno-maybe-uninitialized"),
]

TARGETS = {  # a wheel's platform: its machine, and what zig calls it
    "manylinux_2_28_x86_64": ("x86_64", "x86_64-linux-gnu.2.28"),
    "manylinux_2_28_aarch64": ("aarch64", "aarch64-linux-gnu.2.28"),
    "macosx_11_0_arm64": ("arm64", "aarch64-macos.11.0"),
    "win_amd64": ("AMD64", "x86_64-windows-gnu"),
    "linux_aarch64": ("aarch64", ""),  # by $CXX, a cross-compiler, for `make test-arm`
}
TARGET = os.environ.get("TRANSEPT_TARGET")
MACHINE, ZIG_TARGET = TARGETS[TARGET] if TARGET else (platform.machine(), "")
_SYSTEMS = {"manylinux": "linux", "linux": "linux", "macosx": "darwin", "win": "win32"}
SYSTEM = _SYSTEMS[TARGET.split("_")[0]] if TARGET else sys.platform
SUFFIX = ".dll" if SYSTEM == "win32" else ".so"
if SYSTEM == "darwin":
    FLAGS.append("-mmacosx-version-min=11.0")

_TABLE = runpy.run_path(str(ROOT / SOURCES / "isas.py"))  # beside the sources; the package is not importable yet
# What needs a permission can be used only on Linux.
LEVELS = {isa.name: isa for isa in _TABLE["compiled_on"](MACHINE) if isa.permission is None or SYSTEM == "linux"}
TESTED_AS: dict[str, str] = _TABLE["TESTED_AS"]


def compiler() -> list[str]:
    """Return the command that compiles C++."""
    zig = [sys.executable, "-m", "ziglang", "c++"]
    if ZIG_TARGET:
        return [*zig, "-target", ZIG_TARGET]
    if "CXX" in os.environ:
        return shlex.split(os.environ["CXX"])
    found = [name for name in ("c++", "g++", "clang++") if shutil.which(name)]
    return zig if SYSTEM == "win32" or not found else found[:1]


def library_name(level: str) -> str:
    """Return the name of a level's library, as library.py expects it."""
    return f"kernels_{level}{SUFFIX}"


def sources(pattern: str) -> list[Path]:
    """Return files of the kernels, in an order that is always the same."""
    return sorted((ROOT / SOURCES).rglob(pattern))


def with_headers(source: Path, isa_header: str) -> list[Path]:
    """Return a source and all headers of the kernels that it includes, in an order that is always the same.

    isa_header: the file in isa/ that isa.h includes.
    """
    found, new = set[Path](), {source}
    while new:
        found |= new
        named = {file: re.findall(r'#include "(.+)"', file.read_text(encoding="utf-8")) for file in new}
        included = {(file.parent / name).resolve() for file, names in named.items() for name in names}
        included |= {file.parent / "isa" / isa_header for file in new if file.name == "isa.h"}
        new = included - found
    return sorted(found)


def content(files: list[Path], *more: str) -> str:
    """Return a hash of files and arguments."""
    digest = hashlib.sha256("\0".join(more).encode())
    for file in files:
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


class BuildKernels(build_ext):
    """Compiles every source for every level. An object is kept under a hash of its files and options."""

    def run(self) -> None:
        """Compile and link, with as many compilers at a time as there are cores."""
        target = (ROOT if self.inplace or self.editable_mode else Path(self.build_lib)) / LIBRARIES
        objects = ROOT / "build" / "kernels"
        for folder in (target, objects):
            folder.mkdir(parents=True, exist_ok=True)
        made: dict[Path, Future[None]] = {}
        needed: dict[str, list[Path]] = {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for level in LEVELS:
                parts = [self.part(source, level, objects) for source in sources("*.cpp")]
                for part, command in parts:
                    if part not in made:
                        made[part] = pool.submit(self.compile, command, part)
                needed[level] = [part for part, _ in parts]
            for level, parts in needed.items():
                for part in parts:
                    made[part].result()
                self.link(parts, target / library_name(level))

    def part(self, source: Path, level: str, folder: Path) -> tuple[Path, list[str]]:
        """Return the object of a source and the command that compiles it, without options that change nothing in it."""
        isa = LEVELS[level]
        files = with_headers(source, isa.header)
        text = "".join(file.read_text(encoding="utf-8") for file in files if file.parent.name != "isa")
        options = [*FLAGS, *(each for each in isa.flags if TESTED_AS.get(each, "") in text)]
        if "ziglang" in compiler():  # which has its own names of processors
            options = [each.replace("-march=armv8.2-a", "-mcpu=generic+v8_2a") for each in options]
        options.append(f'-DISA_HEADER="isa/{isa.header}"')
        if source.name == "library.cpp":
            options.append(f'-DFINGERPRINT="{content(sources("*.h") + sources("*.cpp"))}"')
        name = content(files, *compiler(), *options)
        return folder / f"{source.stem}-{name[:24]}.o", [*compiler(), *options, "-c", str(source)]

    def compile(self, command: list[str], made: Path) -> None:
        """Compile an object unless it exists."""
        if not made.exists():
            partial = made.with_suffix(f".{os.getpid()}.part")
            subprocess.run([*command, "-o", str(partial)], check=True)
            partial.replace(made)

    def link(self, objects: list[Path], library: Path) -> None:
        """Link objects into a library. It replaces an older one in one step, even if that is in use."""
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            partial = Path(folder, library.name)  # beside which Windows' linker leaves other files
            command = [*compiler(), "-shared", "-pthread", *map(str, objects), "-o", str(partial)]
            if SYSTEM == "darwin":
                command.append(f"-Wl,-install_name,@loader_path/{library.name}")
            if "ziglang" in command:
                command += ["-s"]
            elif SYSTEM == "linux":
                command += ["-static-libstdc++", "-static-libgcc", "-Wl,--strip-all"]
            subprocess.run(command, check=True)
            partial.replace(library)

    def get_outputs(self) -> list[str]:
        """Return the files that a wheel holds."""
        return [str(Path(self.build_lib) / LIBRARIES / library_name(level)) for level in LEVELS]

    def get_output_mapping(self) -> dict[str, str]:
        """Map the files of a wheel to those of an editable install."""
        return {output: str(LIBRARIES / Path(output).name) for output in self.get_outputs()}

    def get_source_files(self) -> list[str]:
        """Return the files that a source distribution holds."""
        return [str(file.relative_to(ROOT)) for file in sources("*.h") + sources("*.cpp")]


class WheelOfAllPythons(bdist_wheel):
    """A wheel whose libraries depend on the platform, not on Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return a tag such as py3-none-linux_x86_64. On a Mac, Python's own tag claims both of Apple's processors."""
        native = f"macosx_11_0_{MACHINE}" if SYSTEM == "darwin" else super().get_tag()[2]
        return "py3", "none", TARGET or native


if __name__ == "__main__":
    setup(
        ext_modules=[Extension("transept.core.kernels.cpu.lib.kernels", [])],
        cmdclass={"build_ext": BuildKernels, "bdist_wheel": WheelOfAllPythons},
    )
