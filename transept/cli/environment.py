"""``transept env``: what this installation runs on, for bug reports."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

from transept.cli.plugins.reports import discover_quietly
from transept.cli.printable import printable

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "av", "soundfile", "soxr", "triton", "xformers")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept env``."""
    about = "print versions, devices and plugins, for bug reports"
    parser = commands.add_parser("env", help=about, description=about)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=env, parser=parser)


def env(arguments: argparse.Namespace) -> int:
    """``transept env``."""
    found = environment()
    if arguments.json:
        print(json.dumps(found))
        return 0
    width = max(map(len, found)) + 2
    for name, value in found.items():
        shown = ", ".join(value) or "none" if isinstance(value, list) else value
        print(printable(f"{name:{width}}{shown}"))
    return 0


def environment() -> dict[str, Any]:
    """What a bug report should say, by name: strings, numbers and lists of strings."""
    import torch

    from transept.core.kernels.cpu.library import level

    return {
        "transept": importlib.metadata.version("transept"),
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: _version(name) for name in PACKAGES},
        "cpu": _processor(),
        "cpu kernels": level(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "plugins": [f"{each.name} {each.version} ({each.status})" for each in discover_quietly().reports],
    }


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
