"""``transept env`` and ``transept --version``: the installed versions and the hardware, for bug reports.

They also work on a broken installation: a value that cannot be determined is replaced by the error.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from transept.cli.commands import COMMANDS
from transept.cli.plugins.reports import as_data, as_text, discover_quietly
from transept.cli.terminal import escape
from transept.system import memory_bytes

T = TypeVar("T")

PACKAGES = ("transept", "torch", "transformers", "av")
VARIABLES = ("TRANSEPT_", "OMP_", "GOMP_", "CUDA_VISIBLE_DEVICES")  # prefixes of the variables to show
LABELS = {
    "cpu_level": "CPU level",
    "gpus": "GPUs",
    "unused_cuda_gib": "unused CUDA, GiB",
    "memory_gib": "memory, GiB",
    "cache_folder": "cache folder",
}
GIB = 1 << 30


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept env``."""
    about = COMMANDS["env"]
    parser = commands.add_parser("env", help=about, description=f"{about.capitalize()}.")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=env)


def env(arguments: argparse.Namespace) -> int:
    """Run ``transept env``."""
    plugins = discover_quietly()
    found = environment()
    if arguments.json:
        print(escape(json.dumps({**found, **as_data(plugins)}, indent=2)))
        return 0
    rows = {LABELS.get(name, name): _as_text(value) for name, value in found.items()}
    width = max(map(len, rows))
    for label, text in rows.items():
        print(escape(f"{label.ljust(width)}  {text}"))
    print(escape(f"\n{as_text(plugins)}"))
    return 0


def version_line() -> str:
    """Return versions and hardware: ``transept 0.1.0, torch 2.13.0, CPU level avx2, cuda:0 NVIDIA H200``."""
    said = [f"{name} {_version(name)}" for name in ("transept", "torch")]
    gpus = _found_out(_gpus)
    names = [f"{gpu['device']} {gpu['name']}" for gpu in gpus] if isinstance(gpus, list) else []
    return ", ".join([*said, f"CPU level {_found_out(_cpu_level)}", *names])


def environment() -> dict[str, Any]:
    """Return the values by name, in the order of the table. A value that cannot be determined is its error."""
    return {
        **{name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _found_out(_processor),
        "cores": os.cpu_count(),
        "threads": _found_out(_threads),
        "cpu_level": _found_out(_cpu_level),
        "gpus": _found_out(_gpus),
        "unused_cuda_gib": _found_out(_unused_cuda_gib),
        "memory_gib": _found_out(_memory_gib),
        "cache_folder": _found_out(_cache_folder),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
    }


def _found_out(find: Callable[[], T]) -> T | str:
    """Return the result of `find`, or its error as a sentence."""
    try:
        return find()
    except Exception as error:  # importing torch may raise any
        return f"unknown ({type(error).__name__}: {' '.join(str(error).split())})"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the processor's name on Linux, and its architecture elsewhere."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _cpu_level() -> str:
    from transept.core.kernels.cpu import library

    return library.level()


def _gpus() -> list[dict[str, Any]]:
    import torch

    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [
        {"device": f"cuda:{index}", "name": each.name, "memory_gib": round(each.total_memory / GIB, 1)}
        for index, each in enumerate(properties)
    ]


def _unused_cuda_gib() -> float:
    """Return the size of CUDA's packages if PyTorch sees no GPU. docs/installation.md says how to leave them out."""
    if _gpus():
        return 0.0
    cuda = (each for each in importlib.metadata.distributions() if (each.name or "").startswith("nvidia-"))
    return round(sum(file.size or 0 for each in cuda for file in each.files or ()) / GIB, 1)


def _memory_gib() -> float:
    return round(memory_bytes() / GIB, 1)


def _cache_folder() -> str:
    """Return the folder of the hub's models, with ``~`` for the home folder, which often contains the user's name."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder, home = Path(HF_HUB_CACHE), Path.home()
    return f"~/{folder.relative_to(home).as_posix()}" if folder.is_relative_to(home) else str(folder)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        value = "; ".join(f"{gpu['device']} {gpu['name']}, {gpu['memory_gib']} GiB" for gpu in value)
    elif isinstance(value, dict):
        value = " ".join(f"{name}={text}" for name, text in value.items())
    return str(value) or "none"
