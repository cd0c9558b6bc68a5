"""What is compared, by version."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess

import torch

from benchmarks.peers.environment import interpreter

PACKAGES = ("openvino", "openvino-genai", "optimum-intel", "onnxruntime", "pywhispercpp", "transformers")


def versions() -> dict[str, str]:
    """Of the peers' packages, and of what runs here."""
    program = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {PACKAGES}}}))"
    theirs = json.loads(subprocess.run([interpreter(), "-c", program], capture_output=True, check=True).stdout)
    return {"torch": torch.__version__, "ctranslate2": importlib.metadata.version("ctranslate2"), **theirs}
