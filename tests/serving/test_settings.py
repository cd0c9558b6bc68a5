"""Settings of a server: flags go before variables, variables before the file, and what is wrong is told where it is."""

from pathlib import Path
from typing import Any

import pytest

from transept.cli import main
from transept.errors import ParameterError
from transept.serving.configuration import ENGINE, SETTINGS, has_many, read_settings, written
from transept.serving.settings import ModelSource, ServerSettings
from transept.speech.voices.store import Voices

MODELS = {"models": ["a"]}


def settings(
    toml: str = "", environment: dict[str, str] | None = None, folder: Path | None = None, **flags: Any
) -> Any:
    if folder is not None:
        (folder / "server.toml").write_text(toml)
        flags["config"] = str(folder / "server.toml")
    return read_settings({**MODELS, **flags}, environment or {})


def test_the_defaults_are_those_of_server_settings() -> None:
    assert settings() == ServerSettings((ModelSource("a", "a"),))


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "port"),
    [
        ("", {}, {}, 8000),
        ("port = 1", {}, {}, 1),
        ("port = 1", {"TRANSEPT_PORT": "2"}, {}, 2),
        ("port = 1", {"TRANSEPT_PORT": "2"}, {"port": 3}, 3),
        ("port = 1", {}, {"port": 3}, 3),
    ],
)
def test_flags_go_before_variables_and_those_before_the_file(
    toml: str, environment: dict[str, str], flags: dict[str, Any], port: int, tmp_path: Path
) -> None:
    assert settings(toml, environment, tmp_path, **flags).port == port


def test_every_setting_is_read_from_all_three(tmp_path: Path) -> None:
    """Each with a value that is not its default."""
    (tmp_path / "keys").write_text("# of the team\nkey-1\n\nkey-2\n")
    Voices().write(tmp_path / "voices.json")
    values: dict[str, Any] = {
        "voices": str(tmp_path / "voices.json"),
        "host": "::1",
        "port": 1,
        "api_key": ["key"],
        "api_key_file": str(tmp_path / "keys"),
        "wyoming": 2,
        "max_queue": 2,
        "max_running": 3,
        "max_uploads": 4,
        "audio_memory_mb": 3.5,
        "max_upload_mb": 4.5,
        "max_audio_seconds": 5.5,
        "max_streams": 8,
        "max_stream_seconds": 9.5,
        "stream_idle_seconds": 10.5,
        "max_text_characters": 6,
        "upload_timeout": 7.5,
        "cors": ["https://a.example", "http://b.example:80"],
        "root_path": "/speech",
        "shutdown_timeout": 8.5,
        "log_json": True,
        "log_probes": True,
        "load_adapters": True,
    }
    assert set(values) == {written(setting) for setting in SETTINGS}
    engine = {
        "plugin": "whisper",
        "device": "cpu",
        "dtype": "bfloat16",
        "quantization": "int8",
        "threads": 1,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 3,
        "model_dir": "/models",
        "offline": True,
    }
    as_flags = settings(**{setting.name: values[written(setting)] for setting in SETTINGS}, **engine)
    variables = {
        f"TRANSEPT_{written(setting).upper()}": ",".join(value) if has_many(setting) else str(value)
        for setting in SETTINGS
        for value in [values[written(setting)]]
    }
    variables |= {f"TRANSEPT_{written(ENGINE[name]).upper()}": str(value) for name, value in engine.items()}
    assert settings(environment=variables) == as_flags
    lines = [
        [f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in table.items()]
        for table in (values, engine)
    ]
    toml = "\n".join([*lines[0], "[engine]", *lines[1]])
    assert settings(toml, folder=tmp_path) == as_flags
    assert as_flags.api_keys == ("key", "key-1", "key-2")
    assert as_flags.engine_options() == {
        **engine,
        "limits": {"max_audio_seconds": 5.5, "max_text_characters": 6},
    }


def test_models_have_names(tmp_path: Path) -> None:
    expected = (ModelSource("openai/whisper-base", "openai/whisper-base"), ModelSource("cnn", "./bart"))
    texts = ["openai/whisper-base", "cnn=./bart"]
    assert read_settings({"models": texts}, {}).models == expected
    assert read_settings({}, {"TRANSEPT_MODELS": ", ".join(texts)}).models == expected
    for toml in (f"models = {texts}", '[models]\n"openai/whisper-base" = "openai/whisper-base"\ncnn = "./bart"'):
        (tmp_path / "server.toml").write_text(toml)
        assert read_settings({}, {"TRANSEPT_CONFIG": str(tmp_path / "server.toml")}).models == expected
    with pytest.raises(ParameterError, match=r'^TRANSEPT_MODELS: two models are called "a"; give each its own name'):
        read_settings({}, {"TRANSEPT_MODELS": "a,a"})


def test_a_key_file_lies_beside_the_settings_that_name_it(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret")
    assert settings("api_key_file = 'keys'", folder=tmp_path).api_keys == ("secret",)


def test_the_file_takes_any_option_of_the_engine(tmp_path: Path) -> None:
    toml = "[engine]\nkv_cache_bytes = 1000000\nmax_num_seqs = 8\n[engine.limits]\nmax_audio_bytes = 5"
    options = settings(toml, folder=tmp_path, max_audio_seconds=9.0).engine_options()
    limits = {"max_audio_bytes": 5, "max_audio_seconds": 9.0}
    own = {"kv_cache_bytes": 1000000, "max_num_seqs": 8}
    assert options == {**own, "limits": limits}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("hots = 'a'", "unknown setting 'hots'. Did you mean 'host'"),
        ("max-queue = 5", "Did you mean 'max_queue'"),
        ("port = 'a'", "port must be an integer of at least 0 and at most 65535, not 'a'"),
        ("port = true", "port must be an integer of at least 0 and at most 65535, not true"),
        ("port = 1.5", "port must be an integer of at least 0 and at most 65535, not 1.5"),
        ("log_json = 1", "log_json must be true or false, not 1"),
        ("cors = [1]", "cors must be a text, not 1"),
        ("models = 5", "models must be a text, not 5"),
        ("[models]\na = 5", '.toml": models.a must be a text, not 5'),
        ("engine = 5", "engine must be a table"),
        ("[engine]\ndevise = 'cpu'", "server.toml\": engine has no option 'devise'. Did you mean 'device'"),
        ("[engine]\ncpu_threads = -1", 'server.toml": engine.cpu_threads must be an integer of at least 0, not -1'),
        ("[engine]\ncompute_type = 'int9'", 'engine.compute_type must be "default", "auto"'),
        ("cpu_threads = 1", "cpu_threads is an option of the engine; write it under [engine]"),
        ("[engine]\nfp16 = 'x'", ".toml\": engine.fp16 must be true or false, not 'x'"),
        ("[engine]\nthreads = -1", '.toml": engine.threads must be an integer of at least 0, not -1'),
        ("[engine]\nthreads = 1\ncpu_threads = 1", '.toml": engine.threads and engine.cpu_threads are the same'),
        ("[engine.limits]\nmax_audio_seconds = 0", '.toml": engine.limits.max_audio_seconds must be a number above 0'),
        (
            "[engine]\nmax_num_seqs = 5\nmax_decoder_tokens = 3",
            '.toml": engine.max_decoder_tokens=3 is under engine.max_num_seqs=5',
        ),
        ("[engine]\nmodel = 'a'", "leave it out of engine"),
        ("[engine]\nmax_num_seqs = 0", "max_num_seqs must be an integer of at least 1"),
        ("[engine.limits]\nmax_audio = 0", "engine.limits has no 'max_audio'"),
        ("[engine]\nlimits = 5", "limits"),
        ("port = ", "are not TOML"),
        ("api_key_file = 'none'", "cannot be read: No such file"),
    ],
)
def test_a_mistake_in_the_file_is_told(
    toml: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ParameterError) as raised:
        settings(toml, folder=tmp_path)
    assert message in str(raised.value)
    with pytest.raises(SystemExit):  # the command does not speak of flags that were not given
        main(["serve", "a", "--config", str(tmp_path / "server.toml")])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TRANSEPT_PORT", "x", "TRANSEPT_PORT must be an integer of at least 0 and at most 65535, not 'x'"),
        ("TRANSEPT_MAX_UPLOAD_MB", "x", "TRANSEPT_MAX_UPLOAD_MB must be a number"),
        ("TRANSEPT_LOG_JSON", "maybe", "TRANSEPT_LOG_JSON must be true or false"),
        ("TRANSEPT_API_KEY", "", "TRANSEPT_API_KEY must be of visible ASCII"),
        ("TRANSEPT_CONFIG", "/none", 'the settings "/none" cannot be read'),
    ],
)
def test_a_mistake_in_a_variable_is_told(variable: str, value: str, message: str) -> None:
    with pytest.raises(ParameterError) as raised:
        settings(environment={variable: value})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"models": []}, "at least one model"),
        ({"models": ["a=b", "a=c"]}, 'two models are called "a"'),
        ({"models": ["a=b"], "adapters": {"a": "folder"}}, 'an adapter and a model are called "a"'),
        ({"models": ["=b"]}, "NAME=MODEL"),
        ({"models": ["a="]}, "NAME=MODEL"),
        ({"port": 65536}, "at most 65535"),
        ({"port": -1}, "at least 0"),
        ({"max_running": 0}, "max_running must be an integer of at least 1"),
        ({"max_upload_mb": 0}, "max_upload_mb must be a number above 0"),
        ({"max_upload_mb": float("nan")}, "max_upload_mb must be a number"),
        ({"shutdown_timeout": float("inf")}, "shutdown_timeout must be a number"),
        ({"max_audio_seconds": 0.0}, "max_audio_seconds"),
        ({"api_keys": ["with blank"]}, "visible ASCII"),
        ({"api_keys": ["schlüssel"]}, "visible ASCII"),
        ({"cors": ["example.org"]}, "https://example.org"),
        ({"cors": ["https://example.org/path"]}, "cors takes origins"),
        ({"root_path": "speech"}, "a path such as /speech"),
        ({"host": " "}, "host is empty"),
        ({"device": 5}, "device"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as raised:
        settings(**flags)
    assert message in str(raised.value)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(settings(api_keys=["secret"]))


def test_the_example_for_a_deployment_is_right() -> None:
    file = Path(__file__).parents[2] / "deploy" / "transept.toml"
    found = read_settings({"config": str(file)}, {})
    assert [model.name for model in found.models] == ["whisper", "bart"]
