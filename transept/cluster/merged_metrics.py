"""Metrics of several replicas as one text in Prometheus's format. Called by `router`."""

from __future__ import annotations

import re
from collections.abc import Mapping

MODEL_LABEL = re.compile(r'[{,]model="')


def merged_metrics(texts: Mapping[str, str]) -> str:
    """Merge texts in Prometheus's format: each family once, each sample with its model.

    texts: model -> the text from its replica. Samples without a model belong to the replica's process.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for model, text in texts.items():
        name = ""
        for line in text.splitlines():
            if line.startswith("# EOF") or not line:
                continue
            if line.startswith("#"):
                name = line.split()[2]
                about = families.setdefault(name, ([], []))[0]
                if line not in about:
                    about.append(line)
            else:
                families.setdefault(name, ([], []))[1].append(_of_model(line, model))
    return "".join(f"{line}\n" for about, samples in families.values() for line in (*about, *samples))


def _of_model(sample: str, model: str) -> str:
    """Return a sample with its model as a label."""
    if MODEL_LABEL.search(sample):
        return sample
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{model="{escaped}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{model="{escaped}"}} {value}'
