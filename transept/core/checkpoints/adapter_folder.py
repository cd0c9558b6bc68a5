"""read_adapter: read a LoRA adapter as PEFT saves it (Hu et al. 2021): low-rank updates of a model's weights.

`load_weights` adds them to the weights if an adapter is merged. The engine reads adapters that requests choose.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex
from torch import Tensor

from transept.core.checkpoints.huggingface import read_tensors
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.checkpoints.wrapped_names import unwrapped
from transept.core.layers.low_rank import LowRankUpdate
from transept.errors import CheckpointError
from transept.json_files import read_json

ADAPTER_CONFIG = "adapter_config.json"
FACTOR_FILES = ("adapter_model.safetensors", "adapter_model.bin")  # in order of preference
FACTOR = regex.compile(r"(.+)\.lora_([AB])(?:\.\w+)?\.weight")
SECONDS_A_MATCH = 1.0  # for a regular expression of a config
NAMES_SHOWN = 3

# Methods of PEFT that compute something else than W + scale * B A, by the settings that ask for them.
OTHER_METHODS = {
    "use_dora": "DoRA",
    "modules_to_save": "whole modules that were trained with it",
    "lora_bias": "biases of its own",
    "trainable_token_indices": "trained embeddings of tokens",
    "layer_replication": "replicated layers",
    "target_parameters": "updates of single parameters",
    "use_qalora": "QALoRA",
    "alora_invocation_tokens": "activation by tokens (aLoRA)",
    "arrow_config": "routing (Arrow)",
    "use_bdlora": "block-diagonal factors (BD-LoRA)",
    **{f"{name}_config": name for name in ("kasa", "monteclora", "lora_ga", "corda", "velora")},
}
# Of init_lora_weights. The others (PiSSA, OLoRA, LoftQ, ...) also change the base model.
KEEPS_BASE = (True, False, None, "gaussian", "orthogonal", "eva")


def read_adapter(folder: Path, weight_map: WeightMap) -> list[LowRankUpdate]:
    """Return the updates of an adapter, whose tensors are in memory. weight_map: the family's for Hugging Face's names.

    Raises CheckpointError for a folder that is not a LoRA adapter, for one that uses a method besides plain LoRA, and
    for tensors that the family's models do not have.
    """
    config = _read_config(folder)
    file = next((folder / name for name in FACTOR_FILES if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(
            f'the adapter "{folder}" has no weights. Put {FACTOR_FILES[0]} beside its {ADAPTER_CONFIG}'
        )
    factors: dict[str, dict[str, Tensor]] = defaultdict(dict)
    strange = []
    for name, tensor in read_tensors(file):
        found = FACTOR.fullmatch(name)
        if found is None or found[2] in factors[found[1]] or tensor.dim() != 2 or not tensor.is_floating_point():
            strange.append(name)
        else:
            factors[found[1]][found[2]] = tensor.clone()  # the file may change
    if strange:
        raise CheckpointError(
            f'the adapter "{folder}" has tensors that are not factors of a linear layer: {_listed(strange)}. Only LoRA '
            "of linear layers is supported, not of embeddings and convolutions"
        )
    updates, unknown = [], []
    names = unwrapped([f"{name}.weight" for name in factors], weight_map.is_known)
    for (name, pair), weight in zip(factors.items(), names, strict=True):
        if weight_map.is_ignored(weight):  # of a layer that the model does not compute, such as a pooler
            continue
        target = weight_map.tied_target(weight) or weight_map.target(weight)
        if target is None:
            unknown.append(name)
        else:
            updates.append(config.update(name, target, pair))
    if unknown:
        raise CheckpointError(
            f'the adapter "{folder}" updates layers that this model does not have: {_listed(unknown)}. Load it with '
            "the model for which it was trained"
        )
    if not updates:
        raise CheckpointError(f'the adapter "{folder}" has no factors in {file.name}. Save it again with PEFT')
    return updates


@dataclass(frozen=True)
class _Config:
    """The settings of an adapter_config.json. ranks, alphas: of modules whose names match a pattern."""

    folder: Path
    rank: int
    alpha: float
    by_root: bool
    ranks: Mapping[str, Any]
    alphas: Mapping[str, Any]
    modules: str | Sequence[str]

    def update(self, name: str, target: str, pair: Mapping[str, Tensor]) -> LowRankUpdate:
        """Return a module's update. pair: its factors, "A" and "B". Raises CheckpointError if they do not fit."""
        rank, alpha = self._of(self.ranks, name, self.rank), self._of(self.alphas, name, self.alpha)
        if missing := {"A", "B"} - {*pair}:
            raise CheckpointError(
                f'the adapter "{self.folder}" lacks {name}.lora_{missing.pop()}.weight. Save it again with PEFT'
            )
        a, b = pair["A"], pair["B"]
        if not len(a) == b.shape[1] == rank:
            raise CheckpointError(
                f'the adapter "{self.folder}" has factors {[*a.shape]} and {[*b.shape]} for {name}, whose rank is '
                f"{rank} by {ADAPTER_CONFIG}. Keep the two files of one save together"
            )
        if not self._includes(name):
            raise CheckpointError(
                f'the adapter "{self.folder}" has factors for {name}, which is not among its target_modules. Keep '
                "the two files of one save together"
            )
        return LowRankUpdate(name, target, a, b, alpha / (math.sqrt(rank) if self.by_root else rank))

    def _of(self, patterns: Mapping[str, Any], name: str, default: Any) -> Any:
        """Return the value of the first pattern that matches the end of a module's name, as in PEFT."""
        return next((value for key, value in patterns.items() if self._matches(rf"(.*\.)?({key})", name)), default)

    def _includes(self, name: str) -> bool:
        """True if target_modules names a module."""
        if isinstance(self.modules, str):
            return self.modules == "all-linear" or self._matches(self.modules, name)
        return any(name == each or name.endswith(f".{each}") for each in self.modules)

    def _matches(self, pattern: str, name: str) -> bool:
        try:
            return regex.fullmatch(pattern, name, timeout=SECONDS_A_MATCH) is not None
        except (regex.error, TimeoutError) as error:
            raise CheckpointError(
                f'"{self.folder / ADAPTER_CONFIG}" has an unusable regular expression {pattern!r} ({error}). '
                "Name the modules in target_modules"
            ) from None


def _read_config(folder: Path) -> _Config:
    """Read an adapter_config.json. Raises CheckpointError if it is missing, malformed, or asks for more than LoRA."""
    file = folder / ADAPTER_CONFIG
    if not file.is_file():
        raise CheckpointError(
            f'"{folder}" is not an adapter: it has no {ADAPTER_CONFIG}. Give a folder that PEFT has saved'
        )
    settings = read_json(file)
    if (kind := settings.get("peft_type")) != "LORA":
        raise CheckpointError(f'the adapter "{folder}" is {kind!r} by {ADAPTER_CONFIG}. Only "LORA" is supported')
    used = [what for name, what in OTHER_METHODS.items() if settings.get(name)]
    if settings.get("bias") not in (None, "none"):
        used.append(f"trained biases (bias={settings['bias']!r})")
    if settings.get("init_lora_weights") not in KEEPS_BASE:
        used.append(f"a changed base model (init_lora_weights={settings['init_lora_weights']!r})")
    if used:
        raise CheckpointError(
            f'the adapter "{folder}" uses {", ".join(used)}, which is not supported. Merge it with PEFT\'s '
            "merge_and_unload(), or train plain LoRA"
        )
    rank, alpha = settings.get("r", 8), settings.get("lora_alpha", 8)
    by_rank, by_alpha = settings.get("rank_pattern") or {}, settings.get("alpha_pattern") or {}
    modules = settings.get("target_modules") or "all-linear"
    named = isinstance(modules, str) or (isinstance(modules, list) and all(isinstance(each, str) for each in modules))
    maps = isinstance(by_rank, dict) and isinstance(by_alpha, dict)
    ranks = [rank, *by_rank.values()] if maps else []
    alphas = [alpha, *by_alpha.values()] if maps else []
    whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in ranks)
    if not (named and maps and whole and all(map(_is_finite, alphas))):
        raise CheckpointError(
            f'"{file}" has settings of wrong types: r, rank_pattern, lora_alpha, alpha_pattern or target_modules. Save '
            "the adapter again with PEFT"
        )
    return _Config(folder, rank, alpha, bool(settings.get("use_rslora")), by_rank, by_alpha, modules)


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
