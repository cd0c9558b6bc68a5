"""What the engines of the project's environment call the weights that benchmarks name."""

from __future__ import annotations

from typing import Any

TRANSEPT: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8"},
}
CTRANSLATE2 = {"float32": "float32", "int8": "int8_float32"}  # compute types
