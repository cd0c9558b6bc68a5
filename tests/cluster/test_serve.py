"""``transept serve --ray`` with real replicas, by OpenAI's unmodified client: answers, streams, errors, the page."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving.serve_process import PATIENCE, ServeProcess

from transept import TextGenerator, Transcriber
from transept.cluster.serve_app import from_config, parse_autoscale
from transept.errors import ParameterError

KEY = "correct-horse"
# A server of one model, too, takes half a minute more; test_faults has one by default.
SERVERS = [pytest.param("one_model", marks=pytest.mark.slow), "three_models"]


class Servers:
    """Servers by name, started when a test first asks, and again once a test has ended them."""

    def __init__(self, folder: Path, arguments: dict[str, list[Any]]) -> None:
        self.folder, self.arguments = folder, arguments
        self.running: dict[str, ServeProcess] = {}

    def __getitem__(self, name: str) -> ServeProcess:
        if name not in self.running or self.running[name].process.poll() is not None:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            self.running[name] = ServeProcess(folder, *self.arguments[name], "--ray")
            assert self.running[name].url, self.running[name].log.read_text()
        return self.running[name]


@pytest.fixture(scope="module")
def servers(
    tiny_en_dir: Path, bart_dir: Path, t5_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    (folder / "keys").write_text(KEY)
    models = [f"{name}={path}" for name, path in (("tiny.en", tiny_en_dir), ("bart", bart_dir), ("t5", t5_dir))]
    options = ["--api-key-file", folder / "keys", "--max-upload-mb", "1"]
    started = Servers(folder, {"one_model": [models[0], "--replicas", "2"], "three_models": [*models, *options]})
    yield started
    for server in started.running.values():
        server.stop()


@pytest.fixture
def three_models(servers: Servers) -> ServeProcess:
    return servers["three_models"]


def client_of(server: ServeProcess, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", **{"api_key": KEY, "timeout": PATIENCE, **options})


@pytest.fixture(scope="module")
def recordings(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


@pytest.fixture(scope="module")
def texts(tiny_en_dir: Path, recordings: list[Path]) -> list[str]:
    return [each.text for each in Transcriber(tiny_en_dir).transcribe_many(recordings)]  # type: ignore[union-attr]


@pytest.mark.parametrize("served", SERVERS)
def test_transcriptions_of_many_clients(
    served: str, servers: Servers, recordings: list[Path], texts: list[str]
) -> None:
    server = servers[served]
    found: dict[int, str] = {}

    def ask(index: int) -> None:
        with client_of(server) as client:
            found[index] = client.audio.transcriptions.create(model="tiny.en", file=recordings[index % 5]).text

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.get(index) for index in range(10)] == texts * 2


@pytest.mark.parametrize("served", SERVERS)
def test_streams(served: str, servers: Servers, recordings: list[Path], texts: list[str]) -> None:
    with client_of(servers[served]) as client:
        events = list(client.audio.transcriptions.create(model="whisper-1", file=recordings[0], stream=True))
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == texts[0]
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert "".join(deltas) == texts[0]


@pytest.mark.parametrize("served", SERVERS)
def test_the_page_and_what_is_about_all_models(served: str, servers: Servers) -> None:
    server = servers[served]
    names = ["tiny.en"] if served == "one_model" else ["tiny.en", "bart", "t5"]
    with httpx.Client(base_url=server.url, timeout=PATIENCE, headers={"Authorization": f"Bearer {KEY}"}) as client:
        assert "<title>" in client.get("/").text
        for path in ("/web/index.html", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200, path
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready", "models": dict.fromkeys(names, "ready")}
        listed = client.get("/v1/models").json()
        assert [model["id"] for model in listed["data"]] == names
        assert listed["limits"]["max_running"] == 16
        assert client.get("/v1/models/tiny.en").json()["kind"] == "speech"
        assert client.get("/v1/models/nope").status_code == 404
        metrics = client.get("/metrics").text.splitlines()
        assert {f'transept_model_ready{{model="{name}"}} 1.0' for name in names} <= set(metrics)
        assert len([line for line in metrics if line.startswith("# TYPE transept_model_ready ")]) == 1


@pytest.mark.parametrize("served", SERVERS)
def test_rules_of_http_hold_there(served: str, servers: Servers) -> None:
    server = servers[served]
    with httpx.Client(base_url=server.url, timeout=PATIENCE, headers={"Authorization": f"Bearer {KEY}"}) as client:
        for path in ("/health", "/v1/models", "/v1/models/tiny.en", "/"):
            head = client.head(path)
            assert (head.status_code, head.content) == (200, b"")
            refused = client.delete(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        assert client.get("/v1/summarize").headers["allow"] == "POST"
        for path in ("/health", "/v1/models", "/v1/models/tiny.en"):
            assert client.get(f"{path}?x=1").json()["error"]["code"] == "unknown_parameter"
        for path in ("/v1/models", "/v1/models/tiny.en", "/v1/models/nope"):
            redirect = client.get(f"{path}/")
            assert (redirect.status_code, redirect.headers["location"]) == (307, path)
        compressed = client.post("/v1/summarize", content=b"x", headers={"Content-Encoding": "gzip"})
        assert (compressed.status_code, compressed.headers["accept-encoding"]) == (415, "identity")
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = [(each.name, *sorted(each.labels.items())) for family in families for each in family.samples]
    assert len(samples) == len(set(samples))
    assert any(name == "process_resident_memory_bytes" for name, *_ in samples)


def test_the_router_logs_and_counts_what_it_refuses(three_models: ServeProcess) -> None:
    def count(endpoint: str, status: str) -> float:
        answer = httpx.get(f"{three_models.url}/metrics", headers=key, timeout=PATIENCE)
        return sum(
            sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
            if sample.name == "transept_http_requests_total"
            and sample.labels == {"model": "(router)", "endpoint": endpoint, "status": status}
        )

    key = {"Authorization": f"Bearer {KEY}"}
    asked = [
        ("/v1/summarize", {"Content-Encoding": "gzip", **key}, b"x", 415),
        ("/v1/completions", {}, b"{}", 401),
        ("/v1/completions", {"Content-Type": "application/json", **key}, b'{"model": "none", "prompt": "a"}', 404),
    ]
    before = {(path, status): count(path, str(status)) for path, _, _, status in asked}
    for path, headers, content, status in asked:
        answer = httpx.post(three_models.url + path, headers=headers, content=content, timeout=PATIENCE)
        assert answer.status_code == status
    body = {"model": "bart", "input": "", "max_tokens": 2}  # a replica refuses this, and counts it itself
    assert httpx.post(f"{three_models.url}/v1/summarize", json=body, headers=key, timeout=PATIENCE).status_code == 400
    for path, _, _, status in asked:
        assert count(path, str(status)) == before[path, status] + 1
    assert count("/v1/summarize", "400") == 0


def test_an_empty_form_field_names_no_model(
    three_models: ServeProcess, recordings: list[Path], texts: list[str]
) -> None:
    answer = httpx.post(
        f"{three_models.url}/v1/audio/transcriptions",
        files={"file": recordings[0].read_bytes()},
        data={"model": "", "language": "", "temperature": ""},
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=PATIENCE,
    )
    assert answer.json()["text"] == texts[0]


@pytest.mark.slow
def test_a_translation_goes_to_a_model_that_translates(
    tiny_en_dir: Path, base_dir: Path, speech_dir: Path, tmp_path: Path
) -> None:
    clip = speech_dir / "languages" / "es.flac"
    expected = Transcriber(base_dir).transcribe(clip, task="translate", temperature=0).text
    process = ServeProcess(tmp_path, f"tiny.en={tiny_en_dir}", f"base={base_dir}", "--ray")
    try:
        assert process.url, process.log.read_text()
        for path, fields in (("translations", {}), ("transcriptions", {"task": "translate"})):
            answer = httpx.post(
                f"{process.url}/v1/audio/{path}",
                files={"file": clip.read_bytes()},
                data={"temperature": "0", **fields},
                timeout=PATIENCE,
            )
            assert answer.json().get("text") == expected, answer.text
    finally:
        process.stop()


def test_texts_of_two_models(three_models: ServeProcess, bart_dir: Path, t5_dir: Path) -> None:
    document = "The cat sat on the mat."
    with client_of(three_models) as client:
        completion = client.completions.create(model="bart", prompt=document, max_tokens=10, temperature=0)
    expected = TextGenerator(bart_dir).generate(document, max_tokens=10, temperature=0.0, num_beams=1)
    assert completion.choices[0].text.strip() == expected.text
    headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "mine"}
    body = {"model": "t5", "input": document, "source": "en", "target": "de", "max_tokens": 10}
    answer = httpx.post(f"{three_models.url}/v1/translate", json=body, headers=headers, timeout=PATIENCE)
    expected = TextGenerator(t5_dir).translate(document, source="en", target="de", max_tokens=10)
    assert answer.status_code == 200, answer.text
    assert expected.text in json.dumps(answer.json(), ensure_ascii=False)
    assert answer.headers["x-request-id"] == "mine"


def test_errors_have_openais_shape(three_models: ServeProcess, recordings: list[Path]) -> None:
    with client_of(three_models, max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match=r'no model "nope"\. Models of this server: tiny\.en, bart, t5'):
            client.audio.transcriptions.create(model="nope", file=recordings[0])
        with pytest.raises(openai.BadRequestError, match="text model"):
            client.audio.transcriptions.create(model="bart", file=recordings[0])
        with pytest.raises(openai.APIStatusError) as refused:
            client.audio.transcriptions.create(model="tiny.en", file=("a.wav", bytes(2 << 20)))
        assert refused.value.status_code == 413
    client = client_of(three_models, api_key="wrong", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError):
        client.audio.transcriptions.create(model="tiny.en", file=recordings[0])


@pytest.mark.parametrize("served", SERVERS)
def test_the_first_signal_lets_requests_finish(
    served: str, servers: Servers, recordings: list[Path], texts: list[str]
) -> None:
    """Ends a server, which the next test starts again."""
    server = servers[served]
    with client_of(server, max_retries=0) as client:
        stream = client.audio.transcriptions.create(model="tiny.en", file=recordings[0], stream=True)
        server.send(signal.SIGTERM)
        events = list(stream)
    assert events[-1].type == "transcript.text.done"
    assert server.wait() == 0


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, "/nowhere", "--ray")
    assert process.wait() == 1
    assert process.line == ""
    assert 'model "/nowhere" cannot be served: CheckpointError' in process.log.read_text()


def test_settings_of_a_config() -> None:
    assert parse_autoscale("1:4") == (1, 4)
    for text in ("4", "a:b", "1:", ":2"):
        with pytest.raises(ParameterError, match="MIN:MAX"):
            parse_autoscale(text)
    with pytest.raises(ParameterError, match="a minimum and a maximum"):
        from_config({"models": ["m"], "autoscale": "4:1"})
    with pytest.raises(ParameterError, match="Did you mean 'replicas'"):
        from_config({"models": ["m"], "replica": 2})
    with pytest.raises(ParameterError, match="replicas must be"):
        from_config({"models": ["m"], "replicas": 0})
    with pytest.raises(ParameterError, match="max_queue must be at least 1"):
        from_config({"models": ["m"], "max_queue": 0})
    with pytest.raises(ParameterError, match="at least one model"):
        from_config({})
    assert type(from_config({"models": ["a=m"], "replicas": 2, "max_queue": 3})).__name__ == "Application"
