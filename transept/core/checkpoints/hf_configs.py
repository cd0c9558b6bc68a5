"""Config, generation config and tokenizer of a checkpoint, as transformers' classes. Never runs a checkpoint's code.

transformers is imported when one of them is asked for, not before: its import is slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.core.checkpoints.checkpoint import Checkpoint, read_json
from transept.core.checkpoints.weight_map import WeightMap
from transept.errors import CheckpointError, PluginError

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerBase


def load_config(checkpoint: Checkpoint, weight_map: WeightMap) -> PretrainedConfig:
    """The model's config: from the weight map where it derives one, else from config.json.

    Raises CheckpointError when config.json does not fit its class, PluginError when there is no way to a config.
    """
    if weight_map.config is not None:
        return weight_map.config(checkpoint)
    if checkpoint.format != "huggingface":
        raise PluginError(f"a {checkpoint.format} checkpoint has no config of its own, and its weight map derives none")
    return huggingface_config(checkpoint)


def huggingface_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The config in a Hugging Face checkpoint's config.json.

    A ``model_type`` that transformers knows gives its config class; any other gives a plain PretrainedConfig with the
    keys of config.json as attributes, so that a family does not need transformers' blessing.
    Raises CheckpointError when config.json does not fit its class.
    """
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        if checkpoint.config_dict.get("model_type") in CONFIG_MAPPING:
            return AutoConfig.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
        return PretrainedConfig.from_dict(checkpoint.config_dict)
    except Exception as error:  # each config class validates in its own way
        raise CheckpointError(f'cannot make a config of "{checkpoint.path}/config.json": {_cause(error)}') from error


def load_generation_config(checkpoint: Checkpoint, weight_map: WeightMap, config: PretrainedConfig) -> GenerationConfig:
    """The model's generation config: from the weight map, generation_config.json, or the config's generation keys.

    Raises CheckpointError when generation_config.json cannot be read.
    """
    if weight_map.generation_config is not None:
        return weight_map.generation_config(checkpoint, config)
    from transformers import GenerationConfig

    file = checkpoint.path / "generation_config.json"
    try:
        if file.is_file():
            return GenerationConfig.from_dict(read_json(file))
        # Config classes drop the generation keys of an old config.json, so they are taken from the file as it is.
        as_read = checkpoint.config_dict if checkpoint.format == "huggingface" else {}
        return GenerationConfig.from_model_config({**config.to_dict(), **as_read})
    except CheckpointError:
        raise
    except Exception as error:  # transformers validates generation options in many ways
        source = file if file.is_file() else checkpoint.path / "config.json"
        raise CheckpointError(f'cannot make a generation config of "{source}": {_cause(error)}') from error


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside the weights, or None when there is none.

    With tokenizer_config.json it is what AutoTokenizer makes of it; a lone tokenizer.json gives a tokenizer without
    named special tokens. Raises CheckpointError when the files cannot be read, or make a tokenizer that cannot work.
    """
    try:
        tokenizer = _tokenizer(path)
        if tokenizer is not None:  # some faults show when it is used
            tokenizer.decode(tokenizer("").input_ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library raises bare Exception, and panics that are none
        raise CheckpointError(f'cannot read the tokenizer in "{path}": {_cause(error)}') from error
    return tokenizer


def _tokenizer(path: Path) -> PreTrainedTokenizerBase | None:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (path / "tokenizer_config.json").is_file():
        return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if (path / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), clean_up_tokenization_spaces=False)
    return None


def _cause(error: BaseException) -> Any:
    """An error's kind and first line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
