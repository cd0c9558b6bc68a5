"""Prometheus metrics of the server. Names begin with ``transept_`` and end in their unit.

The official client adds metrics of the process, which begin with ``process_``.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from transept import __version__
from transept.serving.async_engine import AsyncEngine, Ticket
from transept.serving.errors import ApiError
from transept.serving.models import ServedModel, ServedModels

# Upper bounds of buckets, in seconds.
STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
LAG_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
REQUEST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

REQUEST_COUNTS = ("transept_http_requests_total", "transept_upload_bytes_total", "transept_requests_refused_total")


class Metrics:
    """All metrics of a server, in one registry. Observes each model from the time it is ready."""

    def __init__(self, models: ServedModels) -> None:
        # Without a _created series for each counter and histogram.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("transept_build", "Versions that the server runs", registry=self.registry)
        build.info({"version": __version__, "python": platform.python_version(), "torch": version("torch")})
        self._http = Counter(
            "transept_http_requests",
            "Answered requests, by the pattern of their path",
            ["endpoint", "status"],
            registry=self.registry,
        )
        self._uploaded = Counter(
            "transept_upload_bytes", "Bytes of request bodies", ["endpoint"], registry=self.registry
        )
        self._refused = Counter(
            "transept_requests_refused",
            "Requests answered with an error, by its code",
            ["reason"],
            registry=self.registry,
        )
        self._audio = Counter(
            "transept_audio_seconds", "Seconds of decoded recordings", ["model"], registry=self.registry
        )
        self._in_queue = self._histogram("request_queue_seconds", "Seconds from admission to the start of a request")
        self._to_first = self._histogram("request_first_event_seconds", "Seconds from admission to the first result")
        self._to_end = self._histogram("request_duration_seconds", "Seconds from admission to the end of a request")
        self._lag = self._histogram(
            "live_lag_seconds", "Seconds from the arrival of a live stream's words to their text", LAG_SECONDS
        )
        self._passes = Counter(
            "transept_live_passes", "Passes of models over live audio", ["model"], registry=self.registry
        )
        self._lagging = Counter(
            "transept_live_lagging",
            "Times that a live stream had more unread audio than a pass takes, so that passes were skipped",
            ["model"],
            registry=self.registry,
        )
        self._step = self._histogram("step_duration_seconds", "Duration of an engine step", STEP_SECONDS)
        self.registry.register(_Engines(models))
        models.on_ready = self._watch

    def answered(self, endpoint: str, status: int, num_bytes: int) -> None:
        """Count an answered request. num_bytes: bytes received of its body."""
        self._http.labels(endpoint, str(status)).inc()
        if num_bytes:
            self._uploaded.labels(endpoint).inc(num_bytes)

    def refused(self, error: ApiError) -> None:
        """Count a request that was answered with an error."""
        self._refused.labels(error.code or str(error.status)).inc()

    def audio(self, model: str, seconds: float) -> None:
        """Count the seconds of a decoded recording."""
        self._audio.labels(model).inc(seconds)

    def live_words(self, model: str, lag: float) -> None:
        """Count new final words of a live stream. lag: seconds since the last one was spoken."""
        self._lag.labels(model).observe(lag)

    def live_passes(self, model: str, num_passes: int) -> None:
        """Count the passes of a live job that has ended."""
        self._passes.labels(model).inc(num_passes)

    def live_lagging(self, model: str) -> None:
        """Count a live stream that has much unread audio."""
        self._lagging.labels(model).inc()

    def render(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus's text format, and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def render_requests(self) -> bytes:
        """Return only the counts of requests, in the same format, for a cluster's router, which has no engine."""
        return generate_latest(self.registry.restricted_registry(REQUEST_COUNTS))

    def _watch(self, model: ServedModel) -> None:
        """Observe each step and each request of a model from now on."""
        assert model.engine is not None
        in_queue, to_first, to_end = (
            metric.labels(model.name) for metric in (self._in_queue, self._to_first, self._to_end)
        )

        def left(ticket: Ticket) -> None:
            if ticket.started is not None:
                in_queue.observe(ticket.started - ticket.admitted)
            if ticket.first_event is not None:
                to_first.observe(ticket.first_event - ticket.admitted)
            to_end.observe(time.monotonic() - ticket.admitted)

        model.engine.observer = left
        model.engine.engine.core.statistics.observer = self._step.labels(model.name).observe

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...] = REQUEST_SECONDS) -> Histogram:
        return Histogram(f"transept_{name}", about, ["model"], buckets=buckets, registry=self.registry)


class _Engines(Collector):
    """Metrics that are read from the engines on each scrape."""

    def __init__(self, models: ServedModels) -> None:
        self.models = models

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering the collector reads no engine."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the state and the counters of all engines."""
        ready = GaugeMetricFamily("transept_model_ready", "1 if the model is ready", labels=["model"])
        for model in self.models.models.values():
            ready.add_metric([model.name], float(model.state == "ready"))
        yield ready
        yield GaugeMetricFamily(
            "transept_uploads", "Requests whose bodies are being received", value=self.models.uploads.num
        )
        yield GaugeMetricFamily("transept_live_streams", "Open live streams", value=self.models.streams.num)
        retries = CounterMetricFamily(
            "transept_temperature_retries",
            "Windows of recordings that were decoded again at a higher temperature",
            labels=["model"],
        )
        for model in self.models.models.values():
            if model.speech is not None:
                retries.add_metric([model.name], model.speech.transcriber.model.num_temperature_retries)
        yield retries
        loaded = [(model.name, model.engine) for model in self.models.models.values() if model.engine is not None]
        for kind, name, about, value in OF_ENGINES:
            metric = kind(f"transept_{name}", about, labels=["model"])
            for model_name, engine in loaded:
                metric.add_metric([model_name], value(engine))
            yield metric


def _cache_usage(engine: AsyncEngine) -> float:
    blocks = engine.engine.block_manager
    return 1 - blocks.num_free_device_blocks / blocks.num_device_blocks


OF_ENGINES: tuple[tuple[Any, str, str, Callable[[AsyncEngine], float]], ...] = (
    (GaugeMetricFamily, "requests_running", "Running requests", lambda engine: engine.num_running),
    (
        GaugeMetricFamily,
        "requests_waiting",
        "Admitted requests that wait for a turn",
        lambda engine: engine.num_waiting,
    ),
    (GaugeMetricFamily, "kv_cache_usage_ratio", "Share of the KV cache's blocks in use", _cache_usage),
    (CounterMetricFamily, "requests_admitted", "Admitted requests", lambda engine: engine.num_admitted),
    (CounterMetricFamily, "steps", "Steps of the engine", lambda engine: engine.engine.core.statistics.num_steps),
    (
        CounterMetricFamily,
        "encoder_tokens",
        "Computed positions of the encoder's output",
        lambda engine: engine.engine.core.statistics.num_encoder_tokens,
    ),
    (
        CounterMetricFamily,
        "decoder_tokens",
        "Generated tokens, including every beam of a beam search",
        lambda engine: engine.engine.core.statistics.num_decoder_tokens,
    ),
    (CounterMetricFamily, "drafts", "Drafts computed", lambda engine: engine.engine.core.statistics.num_drafts),
    (
        CounterMetricFamily,
        "draft_tokens",
        "Tokens of drafts computed",
        lambda engine: engine.engine.core.statistics.num_draft_tokens,
    ),
    (
        CounterMetricFamily,
        "draft_accepted_tokens",
        "Tokens of drafts that became tokens of the output",
        lambda engine: engine.engine.core.statistics.num_accepted_tokens,
    ),
    (
        CounterMetricFamily,
        "embeddings",
        "Encoder outputs returned as embeddings",
        lambda engine: engine.engine.core.statistics.num_embeddings,
    ),
    (CounterMetricFamily, "encoder_runs", "Encoder inputs computed", lambda engine: engine.engine.num_encoder_runs),
    (
        CounterMetricFamily,
        "encoder_hits",
        "Encoder inputs found in the cache",
        lambda engine: engine.engine.num_encoder_hits,
    ),
)
