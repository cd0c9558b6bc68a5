"""Strip the prefixes that training wrappers put in front of weight names.

A model saved inside a wrapper (torch.compile, data parallelism, sharding, PEFT) has the wrapper's name in the name of
every weight. The readers of Hugging Face checkpoints call `unwrapped` for each file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

# Wrappers of any part of a model, which may be anywhere in a name: torch.compile, FSDP, activation checkpointing.
ANYWHERE = re.compile(r"(?:(?<=\.)|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Wrappers of a whole model: DataParallel, DistributedDataParallel and DeepSpeed; PEFT.
AROUND_ALL = ("module.", "base_model.model.")
ADAPTER = re.compile(r"(?:.*\.)?(?:lora_\w+|base_layer|modules_to_save|original_module)(?:\..*)?")


def unwrapped(names: Sequence[str], is_known: Callable[[str], bool] | None = None) -> list[str]:
    """Return the names of one file's weights without wrappers.

    A prefix of a whole model is stripped only if all names have it.
    is_known: returns True for a name of the family. With it, any prefix is stripped if the family then knows more of
    the names, and most of them: a module may have the model as ``self.model`` or ``self.whisper``.
    """
    plain = [ANYWHERE.sub("", name) for name in names]
    while prefix := next((each for each in AROUND_ALL if plain and all(name.startswith(each) for name in plain)), ""):
        plain = [name.removeprefix(prefix) for name in plain]
    if not is_known or all(map(is_known, plain)):
        return plain
    most, best = max(sum(map(is_known, plain)), len(plain) // 2), plain
    for dot in re.finditer(r"\.", plain[0]):
        prefix = plain[0][: dot.end()]
        shorter = [name.removeprefix(prefix) for name in plain if name.startswith(prefix)]
        if len(shorter) == len(plain) and (known := sum(map(is_known, shorter))) > most:
            most, best = known, shorter
    return best


def adapter_problem(names: Iterable[str]) -> str:
    """Return advice for weights that PEFT adds or wraps, which only PEFT can merge; empty without such weights."""
    adapters = [name for name in names if ADAPTER.fullmatch(name)]
    if not adapters:
        return ""
    return (
        f"{len(adapters)} of them are a PEFT adapter's, such as {adapters[0]}. Merge the adapter into its model with "
        "PEFT's merge_and_unload(), call save_pretrained(), and load the saved folder"
    )
