"""Config, generation config and tokenizer of a checkpoint. Never runs a checkpoint's code.

They are transformers' classes if transformers reads a Hugging Face checkpoint. It is not imported, since that is slow,
for configs that a weight map derives, for files that match its `PlainFiles`, and for a lone tokenizer.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.core.checkpoints.checkpoint import Checkpoint, cause_of
from transept.core.checkpoints.hub import SMALL_FILES
from transept.core.checkpoints.lone_vocabulary import lone_vocabulary
from transept.core.checkpoints.plain_files import PlainFiles, plain_config, plain_generation_config
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.request.generation_settings import CONTROL_TOKENS, check_generation_settings, check_token_ids
from transept.errors import CheckpointError, PluginError, TranseptError
from transept.json_files import check_file, read_json
from transept.registry.plain_config import PlainConfig

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerBase

    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

MAX_LABELS = 100_000  # of a classifier; transformers makes two tables of them
MOST_TOKENIZER_BYTES = 256 << 20  # 256 MiB, for each file; files for 256,000 tokens have 35 MB


def load_config(
    checkpoint: Checkpoint, weight_map: WeightMap, made_by: str = "its weight map"
) -> PretrainedConfig | PlainConfig:
    """Return the model's config, from the weight map if it derives one, else from config.json.

    made_by: names the weight map in messages.
    Raises CheckpointError if config.json does not fit its class, or if the weight map cannot make a config of the
    checkpoint. Raises PluginError if it must make one and does not.
    """
    if weight_map.config is None:
        if checkpoint.format != "huggingface":
            raise PluginError(
                f"a {checkpoint.format} checkpoint has no config; {made_by} must derive one, and does not"
            )
        config = huggingface_config(checkpoint, weight_map.plain)
    else:
        try:
            config = weight_map.config(checkpoint)
        except TranseptError:
            raise
        except Exception as error:  # of a plugin's code, for unexpected values
            made = f'{made_by} cannot make a config of "{checkpoint.config_file}"'
            raise CheckpointError(f"{made}: {cause_of(error)}") from error
    tokens = {name: getattr(config, name, None) for name in CONTROL_TOKENS}
    check_token_ids(tokens, CONTROL_TOKENS, checkpoint.config_file)
    return config


def huggingface_config(checkpoint: Checkpoint, plain: PlainFiles | None = None) -> PretrainedConfig | PlainConfig:
    """Read the config in a Hugging Face checkpoint's config.json.

    plain: used to read it without transformers if the file matches this declaration. Otherwise, a ``model_type`` that
        transformers knows gives its config class; any other gives a PretrainedConfig with the keys of config.json as
        attributes, so that families need not be in transformers.
    Raises CheckpointError if config.json does not fit its class.
    """
    config = plain_config(checkpoint, plain) if plain else None
    if config is not None:
        return config
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = checkpoint.config_dict.get("model_type")
    if not isinstance(model_type, str | None):
        raise CheckpointError(f'"{checkpoint.config_file}": model_type must be a string, not {model_type!r}')
    num_labels = checkpoint.config_dict.get("num_labels")
    if isinstance(num_labels, int) and num_labels > MAX_LABELS:
        raise CheckpointError(f'"{checkpoint.config_file}": num_labels must be at most {MAX_LABELS}, not {num_labels}')
    try:
        if model_type in CONFIG_MAPPING:
            return AutoConfig.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
        return PretrainedConfig.from_dict(checkpoint.config_dict)
    except Exception as error:  # each config class validates in its own way
        raise CheckpointError(f'cannot make a config of "{checkpoint.config_file}": {cause_of(error)}') from error


def plain_files(weight_map: WeightMap, config: Any) -> PlainFiles | None:
    """Return the family's declaration of its files if the config was read without transformers.

    Otherwise transformers is imported already, and also reads the other files.
    """
    return weight_map.plain if isinstance(config, PlainConfig) else None


def load_generation_config(
    checkpoint: Checkpoint,
    weight_map: WeightMap,
    config: PretrainedConfig | PlainConfig,
    made_by: str = "its weight map",
) -> GenerationConfig | PlainConfig:
    """Return the model's generation config: from the weight map, generation_config.json, or the config's keys.

    made_by: names the weight map in messages.
    Raises CheckpointError if generation_config.json cannot be read, or has settings that no request could use.
    """
    file = checkpoint.path / "generation_config.json"
    if weight_map.generation_config is not None or not file.is_file():
        file = checkpoint.path / "config.json"
    try:
        settings = _generation_config(checkpoint, weight_map, config)
    except TranseptError:
        raise
    except Exception as error:  # transformers and plugins validate in many ways
        by_map = f"{made_by} " if weight_map.generation_config is not None else ""
        raise CheckpointError(f'{by_map}cannot make a generation config of "{file}": {cause_of(error)}') from error
    if not hasattr(settings, "to_dict"):
        raise PluginError(
            f'{made_by} made a generation config of type {type(settings).__name__} of "{file}"; it must return a '
            "GenerationConfig of transformers, or a PlainConfig"
        )
    check_generation_settings(settings.to_dict(), file)
    return settings


def _generation_config(
    checkpoint: Checkpoint, weight_map: WeightMap, config: PretrainedConfig | PlainConfig
) -> GenerationConfig | PlainConfig:
    if weight_map.generation_config is not None:
        return weight_map.generation_config(checkpoint, config)
    file = checkpoint.path / "generation_config.json"
    if not file.is_file():
        return _from_config(checkpoint, config)
    settings = read_json(file)
    check_generation_settings(settings, file)  # before transformers does, whose errors do not name the key
    files = plain_files(weight_map, config)
    plain = plain_generation_config(settings, files) if files else None
    if plain is not None:
        return plain
    from transformers import GenerationConfig

    return GenerationConfig.from_dict(_as_its_version_reads_it(settings))


def _as_its_version_reads_it(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the meaning that they had in the version of transformers that wrote them.

    Up to transformers 4 a null top_k turned top-k sampling off; later versions read it as unset, which means 50.
    """
    version = str(settings.get("transformers_version") or "")
    if "top_k" in settings and settings["top_k"] is None and version.partition(".")[0] in ("2", "3", "4"):
        return {**settings, "top_k": 0}
    return settings


def _from_config(checkpoint: Checkpoint, config: PretrainedConfig | PlainConfig) -> GenerationConfig:
    from transformers import GenerationConfig

    # Config classes drop the generation keys of an old config.json, so these come from the file.
    as_read = checkpoint.config_dict if checkpoint.format == "huggingface" else {}
    settings = {**config.to_dict(), **as_read}
    check_generation_settings(settings, checkpoint.config_file)
    return GenerationConfig.from_model_config(settings)


def load_tokenizer(path: Path, files: PlainFiles | None = None) -> PreTrainedTokenizerBase | PlainTokenizer | None:
    """Return the tokenizer beside the weights, or None without one.

    AutoTokenizer reads a tokenizer_config.json, or `files.tokenizer` does without transformers. A lone
    tokenizer.json gives a tokenizer without named special tokens; see `lone_vocabulary` for a lone vocabulary. Raises
    CheckpointError if the files cannot be read, are far too large, or make a tokenizer that does not work.
    """
    for file in path.iterdir():
        if SMALL_FILES.fullmatch(file.name) and file.is_file():
            check_file(file, MOST_TOKENIZER_BYTES)
    try:
        tokenizer = _tokenizer(path, files)
        if tokenizer is not None:  # some faults appear only when it is used
            tokenizer.decode(tokenizer("").input_ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library raises Exception, and its panics are BaseExceptions
        raise CheckpointError(f'cannot read the tokenizer in "{path}": {cause_of(error)}') from error
    return tokenizer


def _tokenizer(path: Path, files: PlainFiles | None) -> PreTrainedTokenizerBase | PlainTokenizer | None:
    if (path / "tokenizer_config.json").is_file():
        plain = files.tokenizer(path) if files and files.tokenizer else None
        if plain is not None:
            return plain
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if (path / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

        return PlainTokenizer(Tokenizer.from_file(str(path / "tokenizer.json")))
    return lone_vocabulary(path)
