"""CheckpointView: a checkpoint without its weights, for a plugin's functions.

The engine makes one, and passes it to mappers, prompt functions and the functions of SpeechSpec, TextSpec and
VisionSpec. Slow parts are read once, on first use, by any thread.
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

# Generation settings in config.json of checkpoints that are older than generation_config.json.
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
    """A checkpoint's folder and the contents of its small files. Read-only, because all functions share the objects.

    It does not include the model, because the functions that receive it prepare requests, possibly in several threads.
    A test makes one with ``CheckpointView(folder, config, load_tokenizer=lambda: tokenizer)``.

    path: the folder.
    config: the config from which the model is built.
    load_generation_config, load_tokenizer: called once, when the attribute is first read.
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
        """The checkpoint's folder, for other files that a family reads."""
        return self._path

    @property
    def config(self) -> Any:
        """The model's config: transformers', or the one that the plugin's weight map makes."""
        return self._config

    @property
    def generation_config(self) -> Any:
        """A transformers GenerationConfig or a PlainConfig. Raises CheckpointError for invalid settings."""
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
        """A transformers tokenizer, a PlainTokenizer, or None without one. Raises CheckpointError for corrupt files."""
        return self._tokenizer()

    @property
    def preprocessor_config(self) -> Mapping[str, Any]:
        """The content of preprocessor_config.json, for images or audio; empty without such a file.

        Raises CheckpointError if it is not a JSON object.
        """
        return self._preprocessor_config()

    @property
    def processor_config(self) -> Mapping[str, Any]:
        """The content of processor_config.json, in which transformers 5 nests the former preprocessor_config.json."""
        return self._processor_config()

    def lacks(self, setting: str) -> CheckpointError:
        """Make the error for a checkpoint whose generation config lacks a setting that its family needs.

        It has the reason: the file is missing, lacks the setting, or makes transformers omit it.
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
        """Return the same checkpoint with another config. Both views share what either of them has read."""
        other = copy.copy(self)
        other._config = config
        return other


class _OnFirstUse:
    """Caches a function's result. Calls the function again only if it raised, and drops it after it has returned."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._lock = threading.Lock()
        self._returned: Any = None  # set once the function has run

    def __call__(self) -> Any:
        with self._lock:
            if self._function is not None:
                self._returned = self._function()
                self._function = None
            return self._returned


def _settings(file: Path) -> Mapping[str, Any]:
    return MappingProxyType(read_json(file) if file.exists() else {})
