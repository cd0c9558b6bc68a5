"""CheckpointView: all that a plugin's functions may need of a checkpoint besides its weights.

Made by the engine, once, and handed to mappers, prompt rules and the functions of SpeechSpec and TextSpec. What takes
time to read is read on first use, once, whatever thread asks first.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transept.errors import CheckpointError
from transept.json_files import read_json

# Keys of config.json with generation settings, from before there was a generation_config.json.
GENERATION_SETTINGS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
)


class CheckpointView:
    """A checkpoint's folder and what its small files hold, read-only: others look at the same objects.

    path: the folder. config: what the model is built from.
    load_generation_config, load_tokenizer: called once, when what they return is asked for.
    """

    def __init__(
        self,
        path: Path,
        config: Any,
        *,
        load_generation_config: Callable[[], Any] = lambda: None,
        load_tokenizer: Callable[[], Any] = lambda: None,
    ) -> None:
        self._path = path
        self._config = config
        self._generation_config = _OnFirstUse(load_generation_config)
        self._tokenizer = _OnFirstUse(load_tokenizer)
        self._config_json = _OnFirstUse(partial(_settings, path / "config.json"))
        self._preprocessor_config = _OnFirstUse(partial(_settings, path / "preprocessor_config.json"))
        self._processor_config = _OnFirstUse(partial(_settings, path / "processor_config.json"))

    @property
    def path(self) -> Path:
        """The checkpoint's folder, for whatever other file a family reads."""
        return self._path

    @property
    def config(self) -> Any:
        """The model's config: of transformers, or what the plugin's weight map derives."""
        return self._config

    @property
    def generation_config(self) -> Any:
        """A transformers GenerationConfig or a PlainConfig. Raises CheckpointError for settings that cannot be."""
        return self._generation_config()

    @property
    def has_generation_settings(self) -> bool:
        """True if the checkpoint has generation settings: in generation_config.json or, if it is older, in config.json.

        Raises CheckpointError for a config.json that cannot be read.
        """
        if (self._path / "generation_config.json").is_file():
            return True
        return not self._config_json().keys().isdisjoint(GENERATION_SETTINGS)

    @property
    def tokenizer(self) -> Any:
        """Of transformers, or a PlainTokenizer; None where there is none. Raises CheckpointError for corrupt files."""
        return self._tokenizer()

    @property
    def preprocessor_config(self) -> Mapping[str, Any]:
        """What preprocessor_config.json holds, of images or of sound; empty where there is no such file.

        Raises CheckpointError for one that is no JSON object.
        """
        return self._preprocessor_config()

    @property
    def processor_config(self) -> Mapping[str, Any]:
        """The same of processor_config.json, in which transformers 5 nests what was in preprocessor_config.json."""
        return self._processor_config()

    def lacks(self, setting: str) -> CheckpointError:
        """The error of a checkpoint whose generation config does not have a setting that its family needs.

        It says why: the file is not there, does not name it, or tells transformers to leave it out.
        """
        file = self._path / "generation_config.json"
        settings = read_json(file) if file.exists() else {}
        if setting in settings and settings.get("_from_model_config"):
            return CheckpointError(
                f'"{file}" has {setting}, but says "_from_model_config": true, by which transformers leaves out all '
                "settings of one family alone, and so does Transept: set it to false, or delete it"
            )
        why = "it names none" if file.exists() else "there is no such file"
        return CheckpointError(
            f'"{file}" lacks {setting}: {why}; copy that file from where the checkpoint was published, or save it with '
            "the setting"
        )

    def with_config(self, config: Any) -> CheckpointView:
        """The same checkpoint with another config; what either has read the other need not read."""
        other = copy.copy(self)
        other._config = config
        return other


class _OnFirstUse:
    """What a function returns: called once, and again only where it raised; then let go, with all that it holds."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._lock = threading.Lock()
        self._returned: Any = None  # set when the function is None

    def __call__(self) -> Any:
        with self._lock:
            if self._function is not None:
                self._returned = self._function()
                self._function = None
            return self._returned


def _settings(file: Path) -> Mapping[str, Any]:
    return MappingProxyType(read_json(file) if file.exists() else {})
