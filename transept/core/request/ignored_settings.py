"""Unsupported settings of a generation config, and the warning that names each of them once.

Every field of transformers' GenerationConfig is either supported or in one of three tables here: a test compares them
with the class. The engine checks the config when it loads a model, and each config that comes with a request.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transept.core.request.cutoffs import NEUTRAL
from transept.core.request.score_options import NO_RULE, biased

logger = logging.getLogger(__name__)

# Settings that change the tokens and have no counterpart here, each with the value that has no effect, and the reason.
_MOVED = "in transformers 5 only as a custom generate"
UNSUPPORTED: Mapping[str, tuple[Any, str]] = {
    "constraints": (None, _MOVED),
    "dola_layers": (None, _MOVED),
    "force_words_ids": (None, _MOVED),
    "guidance_scale": (1.0, "in transformers for decoder-only models"),
    "penalty_alpha": (0.0, _MOVED),
    "token_healing": (False, "in transformers for prompts of decoder-only models"),
    "watermarking_config": (None, "logits_processors take transformers' WatermarkLogitsProcessor"),
}
# How transformers computes, caches and returns: these do not change the tokens.
WITHOUT_EFFECT = frozenset(
    {
        *("assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight"),
        *("assistant_lookbehind", "target_lookbehind", "transformers_version", "use_cache", "use_mtp"),
        *("cache_config", "cache_implementation", "compile_config", "continuous_batching_config", "disable_compile"),
        *("is_assistant", "low_memory", "max_cache_len", "max_matching_ngram_size", "num_assistant_tokens"),
        *("num_assistant_tokens_schedule", "output_attentions", "output_hidden_states", "output_logits"),
        *("output_scores", "prefill_chunk_size", "prompt_lookup_num_tokens", "return_dict_in_generate"),
        *("return_legacy_cache", "speculation_type"),
    }
)
SUPPORTED = frozenset(
    {
        *("bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id", "early_stopping"),
        *("encoder_no_repeat_ngram_size", "eos_token_id", "forced_bos_token_id", "forced_eos_token_id"),
        *("length_penalty", "max_length", "max_new_tokens", "min_length", "min_new_tokens", "no_repeat_ngram_size"),
        *("num_beams", "num_return_sequences", "pad_token_id", "repetition_penalty", "suppress_tokens", "do_sample"),
        *("temperature", *NEUTRAL, "num_beam_groups", "diversity_penalty", *NO_RULE, "max_time", "stop_strings"),
    }
)
SUPPRESSED = ("suppress_tokens", "begin_suppress_tokens")


class IgnoredSettings:
    """Warns of ignored settings of a model, which may make outputs differ from transformers'.

    model: the name in the warning. of_the_family: keys that only the model's plugin reads. vocab_size: of the model;
    None: token ids are not checked.
    """

    def __init__(self, model: str, of_the_family: Collection[str] = (), vocab_size: int | None = None) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.of_the_family = frozenset(of_the_family)
        self._named: set[str] = set()  # by earlier warnings

    def warn(self, generation_config: Any) -> None:
        """Log a warning of the ignored settings that no earlier warning named.

        generation_config: a transformers GenerationConfig or a PlainConfig.
        """
        settings = {name: value for name, value in vars(generation_config).items() if value is not None}
        ignored = [*_not_followed(settings), *self._unknown(settings), *self._outside(settings)]
        new = [each for each in ignored if each not in self._named]
        if new:
            self._named.update(new)
            logger.warning('ignoring unsupported settings of "%s": %s', self.model, ", ".join(new))

    def _outside(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the token ids that the vocabulary lacks, by their settings."""
        if self.vocab_size is None:
            return []
        tokens = {name: _listed(settings.get(name)) for name in SUPPRESSED}
        tokens["sequence_bias"] = [token for word in dict(biased(settings.get("sequence_bias"))) for token in word]
        return [
            f"{name}={outside} (this model's token ids end at {self.vocab_size - 1})"
            for name, listed in tokens.items()
            if (outside := [token for token in listed if not 0 <= token < self.vocab_size])
        ]

    def _unknown(self, settings: Mapping[str, Any]) -> list[str]:
        """Return keys that are in no table, with their values, except lists and objects, which families define."""
        known = SUPPORTED | WITHOUT_EFFECT | UNSUPPORTED.keys() | self.of_the_family
        return [
            f"{name}={value}"
            for name, value in settings.items()
            if name not in known and not name.startswith("_") and isinstance(value, bool | int | float | str)
        ]


def _listed(tokens: Sequence[int] | int | None) -> Sequence[int]:
    return (tokens,) if isinstance(tokens, int) else tokens or ()


def _not_followed(settings: Mapping[str, Any]) -> list[str]:
    """Return known keys whose ignored values would change the output, with these values."""
    found = [
        f"{name}={value.to_dict() if hasattr(value, 'to_dict') else value} ({why})"
        for name, (neutral, why) in UNSUPPORTED.items()
        if (value := settings.get(name)) not in (None, neutral)
    ]
    num_beams, num_groups = settings.get("num_beams", 1), settings.get("num_beam_groups", 1)
    if num_groups > 1 and (num_beams == 1 or settings.get("do_sample")):
        beside = "do_sample" if settings.get("do_sample") else "num_beams=1"
        found.append(f"num_beam_groups={num_groups} (beside {beside})")
    if num_groups == 1 and (penalty := settings.get("diversity_penalty", 0.0)):
        found.append(f"diversity_penalty={penalty} (without num_beam_groups)")
    if (asked := settings.get("num_return_sequences", 1)) > num_beams:
        found.append(f"num_return_sequences={asked} (above num_beams={num_beams})")
    return found
