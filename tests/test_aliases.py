"""Other programs' names of options mean the same at every door, and an option is given by one name only."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from transept import EngineConfig, SamplingParams, TranscriptionOptions
from transept.cli import _parser
from transept.cli.documents import DECODING
from transept.cli.engine_options import NAMES, engine_options
from transept.cli.transcribe_options import transcription_options
from transept.errors import ParameterError
from transept.option_names import by_own_names
from transept.options import declared
from transept.serving.configuration import read_settings
from transept.text.options import TranslationOptions

FORMS = {  # tried in tests/core/test_guided.py
    (kind, name)
    for kind in (TranscriptionOptions, SamplingParams)
    for name in ("guided_choice", "guided_regex", "guided_json", "guided_grammar", "structured_outputs")
}
SPEECH = [  # alias, its value, the same under the option's own name
    ("num_beams", 3, {"beam_size": 3}),
    ("vad_filter", True, {"vad": True}),
    ("vad_parameters", {"threshold": 0.4}, {"vad_options": {"threshold": 0.4}}),
    ("log_prob_threshold", -0.5, {"logprob_threshold": -0.5}),
    ("max_tokens", 7, {"max_new_tokens": 7}),
    ("chunk_length_s", 12.5, {"chunk_length": 12.5}),
    ("condition_on_prev_tokens", False, {"condition_on_previous_text": False}),
    ("prompt", "Ada", {"initial_prompt": "Ada"}),
    ("target", "en", {"target_language": "en"}),
    ("tgt_lang", "en", {"target_language": "en"}),
    ("num_speakers", 2, {"speakers": 2}),
    ("speakers_expected", 2, {"speakers": 2}),
]
TEXT: list[tuple[str, Any, dict[str, Any]]] = [
    ("truncation", True, {"truncate": True}),
    ("source_language", "de", {"source": "de"}),
    ("src_lang", "de", {"source": "de"}),
    ("target_language", "de", {"target": "de"}),
    ("tgt_lang", "de", {"target": "de"}),
]
SAMPLING: list[tuple[str, Any, dict[str, Any]]] = [
    ("beam_size", 3, {"num_beams": 3}),
    ("max_new_tokens", 7, {"max_tokens": 7}),
    ("max_completion_tokens", 7, {"max_tokens": 7}),
    ("min_new_tokens", 2, {"min_tokens": 2}),
    ("stop_strings", ["x"], {"stop": ["x"]}),
    ("prefix_allowed_tokens_fn", len, {"allowed_next_tokens": len}),
]
ENGINE: list[tuple[str, Any, dict[str, Any]]] = [
    ("num_threads", 1, {"threads": 1}),
    ("cpu_threads", 1, {"threads": 1}),
    ("cpu_threads", 0, {"threads": None}),
    ("torch_dtype", "bfloat16", {"dtype": "bfloat16"}),
    ("fp16", True, {"dtype": "half"}),
    ("fp16", False, {"dtype": "float32"}),
    ("compute_type", "int8", {"quantization": "int8"}),
    ("compute_type", "int8_float32", {"quantization": "int8", "dtype": "float32"}),
    ("compute_type", "int8_float16", {"quantization": "int8", "dtype": "half"}),
    ("compute_type", "int8_bfloat16", {"quantization": "int8", "dtype": "auto"}),
    ("compute_type", "float16", {"dtype": "half"}),
    ("compute_type", "float32", {"dtype": "float32"}),
    ("compute_type", "default", {}),
    ("download_root", "/models", {"model_dir": "/models"}),
    ("download_dir", "/models", {"model_dir": "/models"}),
    ("cache_dir", "/models", {"model_dir": "/models"}),
    ("local_files_only", True, {"offline": True}),
    ("max_loras", 4, {"max_adapters": 4}),
    ("max_lora_rank", 16, {"max_adapter_rank": 16}),
]
OF_CALLS: list[tuple[Any, list[tuple[str, Any, dict[str, Any]]]]]
OF_CALLS = [(TranscriptionOptions, SPEECH), (SamplingParams, SAMPLING), (TranslationOptions, TEXT)]
ALL = [(kind, *row) for kind, rows in OF_CALLS for row in rows]


def parsed(command: str, *arguments: str) -> argparse.Namespace:
    return _parser([command]).parse_args([command, "file", *arguments])


def flags(name: str, value: Any) -> list[str]:
    (value,) = value if isinstance(value, list) else [value]
    return [f"--{name.replace('_', '-')}", str(value)]


def engine(**options: Any) -> EngineConfig:
    return EngineConfig("model", **options)


def test_every_alias_is_tried_here() -> None:
    tried = {(kind, alias) for kind, alias, *_ in ALL} | {(EngineConfig, alias) for alias, *_ in ENGINE} | FORMS
    kinds = (TranscriptionOptions, SamplingParams, TranslationOptions, EngineConfig)
    aliases = {(kind, alias.name) for kind in kinds for each in declared(kind).values() for alias in each.aliases}
    assert aliases - tried == {(EngineConfig, "model_size_or_path")}


@pytest.mark.parametrize(
    "kinds", [(TranscriptionOptions, EngineConfig), (TranslationOptions, SamplingParams, EngineConfig)]
)
def test_a_call_has_each_name_once(kinds: tuple[type, ...]) -> None:
    """But for an alias of two options, each of which takes its part of the value."""
    own = [name for kind in kinds for name in declared(kind)]
    aliases = [
        alias.name for kind in kinds for each in declared(kind).values() for alias in each.aliases if not alias.values
    ]
    assert len({*own, *aliases}) == len(own) + len(aliases)


@pytest.mark.parametrize(("kind", "alias", "value", "own"), ALL)
def test_python_takes_it(kind: Any, alias: str, value: Any, own: dict[str, Any]) -> None:
    assert kind(**{alias: value}) == kind(**own) != kind()
    (name,) = own
    with pytest.raises(ParameterError, match=f"^{name} and {alias} are the same option: give one of them$") as raised:
        kind(**{alias: value}, **own)
    assert raised.value.param == name


@pytest.mark.parametrize(("alias", "value", "own"), ENGINE)
def test_an_engine_takes_it(alias: str, value: Any, own: dict[str, Any]) -> None:
    assert engine(**{alias: value}) == engine(**own)
    for name in own:
        with pytest.raises(ParameterError, match=f"^{name} and {alias} are the same option"):
            engine(**{alias: value, name: own[name]})


@pytest.mark.parametrize(("alias", "value", "own"), [row for row in SPEECH if row[0] != "vad_parameters"])
def test_transcribe_takes_it(alias: str, value: Any, own: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = own
    expected = transcription_options(parsed("transcribe", *flags(name, own[name])))
    assert transcription_options(parsed("transcribe", *flags(alias, value))) == expected != {}
    with pytest.raises(SystemExit):
        parsed("transcribe", *flags(alias, value), *flags(name, own[name]))
    assert f"--{alias.replace('_', '-')} and " in capsys.readouterr().err


@pytest.mark.parametrize(("alias", "value", "own"), [row for row in SAMPLING if {*row[2]} <= {*DECODING}])
def test_summarize_takes_it(alias: str, value: Any, own: dict[str, Any]) -> None:
    given = vars(parsed("summarize", *flags(alias, value)))
    assert {name: given[name] for name in DECODING if given[name] is not None} == own


@pytest.mark.parametrize(("alias", "value", "own"), TEXT)
def test_translate_takes_it(alias: str, value: Any, own: dict[str, Any]) -> None:
    given = vars(parsed("translate", *flags(alias, value)))
    assert {name: given[name] for name in declared(TranslationOptions) if name in given} == own


@pytest.mark.parametrize(("alias", "value", "own"), ENGINE)
def test_every_command_takes_an_engines(alias: str, value: Any, own: dict[str, Any]) -> None:
    given = engine_options(parsed("summarize", *flags(alias, value)))
    assert EngineConfig("model", **given) == engine(**own)
    assert {*own} <= {*NAMES}


@pytest.mark.parametrize(("alias", "value", "own"), ENGINE)
def test_a_server_takes_an_engines(alias: str, value: Any, own: dict[str, Any], tmp_path: Path) -> None:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    (tmp_path / "server.toml").write_text(f"[engine]\n{alias} = {text}")
    in_file = {"TRANSEPT_CONFIG": str(tmp_path / "server.toml")}
    in_variable = {f"TRANSEPT_{alias.upper()}": str(value)}
    for environment, flag in ((in_file, {}), (in_variable, {}), ({}, {alias: value})):
        settings = read_settings({"models": ["m"], **flag}, environment)
        assert EngineConfig("model", **settings.engine) == engine(**own)


def test_a_flag_wins_over_a_variable_of_another_name() -> None:
    settings = read_settings({"models": ["m"], "threads": 2}, {"TRANSEPT_CPU_THREADS": "1"})
    assert settings.engine == {"threads": 2}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"TRANSEPT_THREADS": "1", "TRANSEPT_CPU_THREADS": "1"},
            "TRANSEPT_THREADS and TRANSEPT_CPU_THREADS are the same option: give one of them",
        ),
        ({"TRANSEPT_FP16": "maybe"}, "TRANSEPT_FP16 must be true or false, not 'maybe'"),
    ],
)
def test_variables_are_named_in_an_error(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}$"):
        read_settings({"models": ["m"]}, environment)


def test_a_file_is_named_in_an_error(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[engine]\nthreads = 1\ncpu_threads = 2")
    with pytest.raises(ParameterError, match=r"server.toml\": engine.threads and engine.cpu_threads are the same"):
        read_settings({"models": ["m"]}, {"TRANSEPT_CONFIG": str(file)})


def test_an_alias_of_two_options_leaves_alone_what_it_does_not_say() -> None:
    options = declared(EngineConfig).values()
    assert by_own_names({"compute_type": "int8", "dtype": "float32"}, options) == {
        "quantization": "int8",
        "dtype": "float32",
    }
    with pytest.raises(
        ParameterError, match=r'^compute_type must be "default", .*, not \'int4\'. Did you mean "int8"\?$'
    ):
        engine(compute_type="int4")
    with pytest.raises(ParameterError, match=r"^fp16 and compute_type are the same option"):
        engine(compute_type="float16", fp16=True)


def test_half_is_float16_on_a_gpu_and_float32_on_a_cpu() -> None:
    assert engine(fp16=True, device="cpu").on_this_machine().dtype == "float32"
