"""Metrics: what was asked of a server is what they count, in Prometheus's own format."""

import http.client
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import yaml
from patience import wait_until
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from serve_process import PATIENCE, ServeProcess

from transept import Transcriber, __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
Values = dict[tuple[str, ...], float]
HISTOGRAMS = ("request_queue_seconds", "request_first_event_seconds", "request_duration_seconds")


@pytest.fixture(scope="module")
def counted(tiny_en_dir: Path, bart_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server whose requests are those of this module."""
    models = (f"tiny.en={tiny_en_dir}", f"bart={bart_dir}")
    server = ServeProcess(tmp_path_factory.mktemp("counted"), *models, "--log-json")
    yield server.wait_until_ready()
    server.stop()


def grown(before: Values, after: Values) -> Values:
    """What has changed, of what counts."""
    changed = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    return {name: value for name, value in changed.items() if not name[0].endswith(("_created", "_seconds_sum"))}


def test_a_transcription_is_counted(counted: ServeProcess, speech_dir: Path, tiny_en_dir: Path) -> None:
    clip = speech_dir / "librivox" / "austen-0890.flac"  # no other test's, whose encoder output would be cached
    transcriber = Transcriber(tiny_en_dir)
    expected = transcriber.transcribe(clip)
    statistics = transcriber.engine.core.statistics
    before = counted.metrics()
    with clip.open("rb") as file:
        url = f"{counted.url}/v1/audio/transcriptions"
        assert httpx.post(url, files={"file": file}, data={"model": "tiny.en"}, timeout=PATIENCE).status_code == 200
    changed = grown(before, counted.metrics())
    assert changed["transept_audio_seconds_total", "tiny.en"] == pytest.approx(expected.duration)
    assert changed["transept_requests_admitted_total", "tiny.en"] == 1
    assert changed["transept_encoder_tokens_total", "tiny.en"] == statistics.num_encoder_tokens
    assert changed["transept_decoder_tokens_total", "tiny.en"] == statistics.num_decoder_tokens
    assert changed["transept_steps_total", "tiny.en"] == statistics.num_steps
    assert changed["transept_step_duration_seconds_count", "tiny.en"] == statistics.num_steps
    for name in HISTOGRAMS:
        assert changed[f"transept_{name}_count", "tiny.en"] == 1
    assert not any("bart" in name for name in changed)


def test_drafts_are_counted(counted: ServeProcess) -> None:
    asked = {"model": "bart", "prompt": "transept", "max_tokens": 12, "num_beams": 1, "temperature": 0}
    url = f"{counted.url}/v1/completions"
    plain = httpx.post(url, json=asked, timeout=PATIENCE).json()["choices"]
    before = counted.metrics()
    draft = {"draft_tokens": plain[0]["text"], "draft_length": 3}
    assert httpx.post(url, json=asked | draft, timeout=PATIENCE).json()["choices"] == plain
    changed = grown(before, counted.metrics())
    drafts, tokens, accepted = (
        changed.get((f"transept_{name}_total", "bart"), 0)
        for name in ("drafts", "draft_tokens", "draft_accepted_tokens")
    )
    assert accepted <= tokens <= 3 * drafts
    assert tokens > 0
    assert changed["transept_decoder_tokens_total", "bart"] == changed["transept_steps_total", "bart"] + accepted


def test_encoder_inputs_that_were_known_are_counted(counted: ServeProcess) -> None:
    asked = {"model": "bart", "prompt": ["The rain in Spain.", "The plain."], "max_tokens": 3}
    httpx.post(f"{counted.url}/v1/completions", json=asked, timeout=PATIENCE)
    before = counted.metrics()
    httpx.post(f"{counted.url}/v1/completions", json=asked, timeout=PATIENCE)
    changed = grown(before, counted.metrics())
    assert changed["transept_encoder_hits_total", "bart"] == 2
    assert ("transept_encoder_tokens_total", "bart") not in changed


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "invalid_value"),
        ("/v1/completions", {"prompt": "a", "model": "none"}, 404, "model_not_found"),
        ("/v1/completions", {"prompt": "a", "tempature": 1}, 400, "unknown_field"),
        ("/v1/summarize", {"input": ""}, 400, "invalid_prompt"),
    ],
)
def test_refusals_are_counted_by_their_reason(
    path: str, body: dict[str, object], status: int, reason: str, counted: ServeProcess
) -> None:
    before = counted.metrics()
    assert httpx.post(counted.url + path, json=body, timeout=PATIENCE).status_code == status
    assert grown(before, counted.metrics())["transept_requests_refused_total", reason] == 1


def families_of(server: ServeProcess) -> list[Metric]:
    answer = httpx.get(f"{server.url}/metrics", timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return list(text_string_to_metric_families(answer.text))


def test_every_name_has_our_prefix_and_says_what_it_is(counted: ServeProcess) -> None:
    families = families_of(counted)
    assert len(families) > 20
    for family in families:
        assert family.name.startswith(("transept_", "process_"))
        assert family.documentation
        assert not [sample.name for sample in family.samples if sample.name.endswith("_created")]


def test_requests_are_counted_by_endpoint_and_status_with_their_bytes(counted: ServeProcess) -> None:
    before = counted.metrics()
    body = json.dumps({"model": "bart", "input": "The rain.", "max_tokens": 3}).encode()
    headers = {"Content-Type": "application/json"}
    assert httpx.post(f"{counted.url}/v1/summarize", content=body, headers=headers, timeout=PATIENCE).is_success
    httpx.get(f"{counted.url}/v1/models/none", timeout=PATIENCE)
    httpx.get(f"{counted.url}/secret", timeout=PATIENCE)
    changed = grown(before, counted.metrics())
    assert changed["transept_http_requests_total", "/v1/summarize", "200"] == 1
    assert changed["transept_http_requests_total", "/v1/models/{name}", "404"] == 1
    assert changed["transept_http_requests_total", "(unknown)", "404"] == 1
    assert changed["transept_upload_bytes_total", "/v1/summarize"] == len(body)
    assert not any("secret" in label for name in changed for label in name)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "endpoint"),
    [
        ("POST", "/v1/audio/transcriptions", {"Content-Encoding": "gzip"}, 415, "/v1/audio/transcriptions"),
        ("POST", "/v1/audio/translations", {"Content-Length": str(1 << 40)}, 413, "/v1/audio/translations"),
        ("POST", "/v1/summarize", {"Content-Encoding": "br"}, 415, "/v1/summarize"),
        ("POST", "/v1/models/any/name", {"Content-Encoding": "br"}, 415, "/v1/models/{name}"),
        ("DELETE", "/v1/completions", {}, 405, "/v1/completions"),
        ("GET", "/", {}, 200, "/"),
        ("GET", "/web/main.js", {}, 200, "/web"),
        ("POST", "/nowhere", {"Content-Encoding": "gzip"}, 415, "(unknown)"),
    ],
)
def test_refusals_before_routing_name_their_endpoint(
    method: str, path: str, headers: dict[str, str], status: int, endpoint: str, counted: ServeProcess
) -> None:
    before = counted.metrics()
    request_id = f"early-{status}-{path.strip('/').replace('/', '-')}"
    host, port = counted.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    connection.putrequest(method, path)
    for name, value in {**headers, "X-Request-Id": request_id}.items():
        connection.putheader(name, value)
    connection.endheaders()  # without a body: the refusal does not wait for one
    answer = connection.getresponse()
    assert answer.status == status
    answer.read()
    connection.close()
    while request_id not in counted.log.read_text():  # the file of an answer is closed before its request is counted
        counted.client.get("/health")
    assert grown(before, counted.metrics())["transept_http_requests_total", endpoint, str(status)] == 1
    (line,) = [line for line in counted.log.read_text().splitlines() if request_id in line and '"path"' in line]
    assert f'"path": "{endpoint}"' in line or json.dumps(endpoint) in line


def test_the_process_is_measured(counted: ServeProcess) -> None:
    values = counted.metrics()
    assert values["process_resident_memory_bytes",] > 1 << 20
    assert values["process_cpu_seconds_total",] > 0
    assert 0 < values["process_open_fds",] <= values["process_max_fds",]
    (build,) = [sample for family in families_of(counted) for sample in family.samples if "build_info" in sample.name]
    assert build.value == 1
    assert build.labels["version"] == __version__
    assert build.labels["torch"] == version("torch")


def test_retries_at_higher_temperatures_are_counted(counted: ServeProcess, speech_dir: Path, tiny_en_dir: Path) -> None:
    clip = speech_dir / "librivox" / "austen-0870.flac"
    doubtful = {
        "temperature": (0.0, 0.5, 1.0),
        "compression_ratio_threshold": 0.01,
        "seed": 0,
    }  # no text is as plain as that
    transcriber = Transcriber(tiny_en_dir)
    transcriber.transcribe(clip, **doubtful)
    retries = transcriber.model.num_temperature_retries
    assert retries >= 2
    before = counted.metrics()
    fields = {"model": "tiny.en", "temperature": "0,0.5,1", "compression_ratio_threshold": "0.01", "seed": "0"}
    url = f"{counted.url}/v1/audio/transcriptions"
    assert httpx.post(url, files={"file": clip.read_bytes()}, data=fields, timeout=PATIENCE).is_success
    assert grown(before, counted.metrics())["transept_temperature_retries_total", "tiny.en"] == retries


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "prometheus-rules.yaml"])
def test_the_metrics_that_dashboards_and_alerts_name_are_there(name: str, counted: ServeProcess) -> None:
    text = (DEPLOY / name).read_text()
    content = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    named = set(re.findall(r"\b(?:transept|process)_[a-z_]+\b", text))
    assert len(named) > 7
    suffixes = ("", "_total", "_bucket", "_info")
    known = {f"{family.name}{suffix}" for family in families_of(counted) for suffix in suffixes}
    assert named <= known
    expressions = [
        *(target["expr"] for panel in content.get("panels", ()) for target in panel["targets"]),
        *(rule["expr"] for group in content.get("groups", ()) for rule in group["rules"]),
    ]
    assert expressions
    for expression in expressions:
        assert expression.count("(") == expression.count(")")
        assert re.search(r"\b(?:transept|process)_|^up\{", expression)


def test_at_rest_nothing_is_held(counted: ServeProcess) -> None:
    counted.wait_until_idle()
    assert counted.metrics()["transept_model_ready", "tiny.en"] == 1


def test_a_client_that_leaves_a_stream_is_counted_and_logged(counted: ServeProcess, speech_dir: Path) -> None:
    clip = speech_dir / "librivox" / "austen-0870.flac"
    gone = ("transept_requests_refused_total", "client_gone")
    before = counted.metrics().get(gone, 0)
    asked = {"stream": "true", "progress": "true", "beam_size": "60"}
    with clip.open("rb") as file, httpx.Client(timeout=PATIENCE) as client:
        url, headers = f"{counted.url}/v1/audio/transcriptions", {"X-Request-Id": "leaves"}
        with client.stream("POST", url, files={"file": file}, data=asked, headers=headers) as answer:
            next(answer.iter_lines())
    wait_until(lambda: counted.metrics().get(gone, 0) != before)
    lines = wait_until(lambda: [line for line in counted.log.read_text().splitlines() if "leaves" in line])
    (line,) = map(json.loads, lines)
    assert (line["status"], line["model"]) == (499, "tiny.en")
    assert counted.metrics()[gone] == before + 1
