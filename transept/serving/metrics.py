"""Prometheus metrics of the server, by the official client. Names begin with ``transept_`` and end in their unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from transept.serving.errors import ApiError
    from transept.serving.models import ServedModels


class Metrics:
    """All of a server's metrics, in a registry of their own."""

    def __init__(self, models: ServedModels) -> None:
        self.registry = CollectorRegistry()
        self._refused = Counter("transept_requests_refused", "Requests refused", ["reason"], registry=self.registry)

    def refused(self, error: ApiError) -> None:
        """A request was answered with an error."""
        self._refused.labels(error.code or str(error.status)).inc()

    def audio(self, model: str, seconds: float) -> None:
        """A recording could be read."""

    def render(self) -> tuple[bytes, str]:
        """Prometheus's text format, and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
