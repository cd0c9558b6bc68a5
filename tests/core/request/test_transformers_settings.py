"""Every setting of transformers' generation configs: its default where it is unset, and a warning if it is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig, WatermarkingConfig

from transept import Engine, SamplingParams
from transept.authoring import PlainConfig
from transept.core.request.generation_defaults import complete
from transept.core.request.ignored_settings import SUPPORTED, UNSUPPORTED, WITHOUT_EFFECT, IgnoredSettings

DEFAULTS = GenerationConfig._get_default_generation_params()
WAYS: dict[str, dict[str, Any]] = {"greedy": {}, "samples": {"do_sample": True}, "beams": {"num_beams": 4}}
CUSTOM = "in transformers 5 only as a custom generate"
NO_LENGTH = {"max_length"}  # 20 in transformers; here as much as the decoder has positions for


def completed(config: object, **own: Any) -> SamplingParams:
    params = SamplingParams(seed=1, **own)
    return complete(params, config, prompt_token_ids=[2], max_positions=90, vocab_size=500, eos_token_ids=(2,))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [GenerationConfig, PlainConfig])
@pytest.mark.parametrize("key", sorted(DEFAULTS.keys() - NO_LENGTH))
def test_a_key_that_is_unset_has_transformers_default(key: str, make: type, way: str) -> None:
    assert completed(make(**WAYS[way])) == completed(make(**{key: DEFAULTS[key], **WAYS[way]}))


def test_the_defaults_that_are_left_out_change_nothing() -> None:
    assert {name: UNSUPPORTED[name][0] for name in UNSUPPORTED.keys() & DEFAULTS} == {
        name: DEFAULTS[name] for name in UNSUPPORTED.keys() & DEFAULTS
    }


def test_every_key_of_transformers_is_followed_or_named_or_without_effect() -> None:
    keys = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    tables = (SUPPORTED, WITHOUT_EFFECT, frozenset(UNSUPPORTED))
    assert keys <= frozenset().union(*tables)
    assert sum(map(len, tables)) == len(frozenset().union(*tables))  # each key has one place


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("transept")]
    caplog.clear()
    return [message.partition('": ')[2] for message in messages]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"guidance_scale": 1.5, "penalty_alpha": 0.6, "min_p": 0.1, "num_beams": 2},
            f"guidance_scale=1.5 (in transformers for decoder-only models), penalty_alpha=0.6 ({CUSTOM})",
        ),
        ({"num_beam_groups": 2}, "num_beam_groups=2 (beside num_beams=1)"),
        ({"num_beam_groups": 2, "num_beams": 2, "do_sample": True}, "num_beam_groups=2 (beside do_sample)"),
        ({"num_beams": 2, "diversity_penalty": 0.5}, "diversity_penalty=0.5 (without num_beam_groups)"),
        ({"do_sample": True, "penalty_alpha": 0.4}, f"penalty_alpha=0.4 ({CUSTOM})"),
        ({"do_sample": True, "num_return_sequences": 3}, "num_return_sequences=3 (above num_beams=1)"),
        ({"num_beams": 2, "force_words_ids": [[5]]}, f"force_words_ids=[[5]] ({CUSTOM})"),
        (
            {"token_healing": True, "renormalize_logits": True},
            "token_healing=True (in transformers for prompts of decoder-only models)",
        ),
        ({"num_beam": 4, "lang_to_id": {"en": 1}, "heads": [[1, 2]], "_private": 1}, "num_beam=4"),
    ],
)
@pytest.mark.parametrize("make", [GenerationConfig, PlainConfig])
def test_what_is_not_followed_is_named(
    settings: dict[str, Any], expected: str, make: type, caplog: pytest.LogCaptureFixture
) -> None:
    IgnoredSettings("model").warn(make(**settings))
    assert told(caplog) == [expected]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_sample": True, "top_k": 7, "temperature": 0.5},
        {"do_sample": True, "typical_p": 0.9, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "top_h": 0.4},
        {"num_beams": 4, "num_return_sequences": 4, "early_stopping": True, "top_p": 0.9, "do_sample": False},
        {"do_sample": True, "num_beams": 4, "top_p": 0.9, "temperature": 0.8},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"stop_strings": ["."], "max_time": 2.0, "sequence_bias": [[[4], 1.0]], "encoder_repetition_penalty": 1.1},
        {"use_cache": True, "output_scores": True, "num_assistant_tokens": 20, "lang_to_id": {}},
        DEFAULTS,
    ],
)
def test_what_is_followed_is_not_named(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    IgnoredSettings("model").warn(GenerationConfig(**settings))
    IgnoredSettings("model").warn(GenerationConfig.from_dict({**settings, "no_timestamps_token_id": None}))
    assert told(caplog) == []


def test_tokens_outside_of_the_vocabulary_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    ignored = IgnoredSettings("model", vocab_size=500)
    for _ in range(2):
        ignored.warn(
            PlainConfig(
                suppress_tokens=[1, 499, 500], begin_suppress_tokens=[-1], sequence_bias=[[[5, 501], 1.0], [[7], 1.0]]
            )
        )
    end = "(this model's token ids end at 499)"
    assert told(caplog) == [f"suppress_tokens=[500] {end}, begin_suppress_tokens=[-1] {end}, sequence_bias=[501] {end}"]


def test_a_family_s_own_settings_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    IgnoredSettings("model", ("is_multilingual",)).warn(PlainConfig(is_multilingual=True, other=1))
    assert told(caplog) == ["other=1"]


def with_settings(model: Path, directory: Path, **settings: Any) -> Path:
    """A copy of a checkpoint with these settings over its own."""
    shutil.copytree(model, directory)
    file = directory / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return directory


def test_an_engine_names_them_once(bart_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watermark = {"greenlist_ratio": 0.3, "bias": 2.0, "hashing_key": 7, "seeding_scheme": "lefthash"}
    settings = {"do_sample": True, "num_beams": 2, "penalty_alpha": 0.4, "watermarking_config": watermark}
    engine = Engine(with_settings(bart_dir, tmp_path / "model", **settings), kv_cache_bytes=1 << 22)
    (named,) = told(caplog)
    shown = WatermarkingConfig(**watermark).to_dict()
    why = "logits_processors take transformers' WatermarkLogitsProcessor"
    assert named == f"penalty_alpha=0.4 ({CUSTOM}), watermarking_config={shown} ({why})"
    prompt = {"prompt_tokens": [0, 9, 2]}
    engine.generate(prompt)
    engine.generate(prompt, generation_config=GenerationConfig(max_new_tokens=2, eos_token_id=2, penalty_alpha=0.5))
    engine.generate(prompt, generation_config=GenerationConfig(max_new_tokens=2, eos_token_id=2, penalty_alpha=0.5))
    assert told(caplog) == [f"penalty_alpha=0.5 ({CUSTOM})"]


def test_draws_stay_among_the_50_likeliest(bart_dir: Path, tmp_path: Path) -> None:
    """With a checkpoint that samples and names no top_k; its first token is drawn from 400."""
    sampling = {"do_sample": True, "num_beams": 1, "temperature": 3.0, "forced_eos_token_id": None}
    model = with_settings(bart_dir, tmp_path / "model", **sampling)
    engine = Engine(model, kv_cache_bytes=1 << 24)
    prompt = {"prompt_tokens": [0, 9, 12, 2]}
    likeliest = engine.generate(prompt, SamplingParams(temperature=0.0, max_tokens=1, logprobs=50))[0].outputs[0]
    assert likeliest.logprobs is not None
    draws = engine.generate(prompt, SamplingParams(n=60, max_tokens=1, seed=4))[0].outputs
    free = engine.generate(prompt, SamplingParams(n=60, max_tokens=1, seed=4, top_k=0))[0].outputs
    assert {draw.token_ids[0] for draw in draws} <= likeliest.logprobs[0].keys()
    assert not {draw.token_ids[0] for draw in free} <= likeliest.logprobs[0].keys()


@pytest.mark.parametrize(("version", "top_k"), [("4.57.6", 0), ("5.0.0", 50), (None, 50)])
def test_a_top_k_of_null_means_what_it_meant_when_it_was_written(
    version: str | None, top_k: int, bart_dir: Path, tmp_path: Path
) -> None:
    settings = {"do_sample": True, "num_beams": 1, "top_k": None, "transformers_version": version}
    engine = Engine(with_settings(bart_dir, tmp_path / "model", **settings), kv_cache_bytes=1 << 22)
    assert completed(engine.generation_config).top_k == top_k
