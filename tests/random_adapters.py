"""LoRA adapters with seeded random factors, in the files that PEFT writes, and models with their updates added."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

ATTENTION = ("q_proj", "v_proj")


def save_adapter(
    model: nn.Module, folder: Path, *, rank: int = 4, seed: int = 0, modules: Any = ATTENTION, **settings: Any
) -> Path:
    """An adapter of a transformers model. modules: as target_modules. settings: more of adapter_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    alpha = settings.pop("lora_alpha", 2 * rank)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": modules, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and _is_named(name, modules):
            a = torch.randn(rank, layer.in_features, generator=generator) / layer.in_features**0.5
            b = torch.randn(layer.out_features, rank, generator=generator) * 0.1
            tensors[f"base_model.model.{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{name}.lora_B.weight"] = b
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def _is_named(name: str, modules: Any) -> bool:
    if modules == "all-linear":
        return "lm_head" not in name and "output_projection" not in name
    if isinstance(modules, str):
        return re.fullmatch(modules, name) is not None
    return any(name == each or name.endswith(f".{each}") for each in modules)


def adapted(model: nn.Module, folder: Path) -> Any:
    """A copy of a transformers model with an adapter's updates added to its weights."""
    merged, tensors = copy.deepcopy(model), load_file(folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    for name, a in tensors.items():
        if ".lora_A." in name:
            layer = merged.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
            scale = config["lora_alpha"] / (len(a) ** 0.5 if config.get("use_rslora") else len(a))
            layer.weight.data += scale * tensors[name.replace(".lora_A.", ".lora_B.")] @ a
    return merged
