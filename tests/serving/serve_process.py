"""``transept serve`` in a process of its own, as tests start it, and what they see of it from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from patience import PATIENCE, wait_until
from prometheus_client.parser import text_string_to_metric_families


class ServeProcess:
    """A server on a free port. url: without a slash at its end; set once it listens.

    folder: its temporary files are there, and its log.
    """

    def __init__(self, folder: Path, *arguments: str | Path, environment: dict[str, str] | None = None) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "transept", "serve", *map(str, arguments)]
        command += [] if "--port" in arguments else ["--port", "0"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "TMPDIR": str(folder / "tmp"), **(environment or {})},
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"(http://\S+)", self.line)
        self.url = "" if found is None else found[1]
        # without authorities to load, and without connections that stay
        self.client = httpx.Client(
            base_url=self.url, verify=False, timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def wait_until_ready(self) -> ServeProcess:
        """Returns once all models are loaded."""
        self.wait_for("ready")
        return self

    def wait_for(self, status: str) -> None:
        """Returns once `/ready` says so."""

        def says_so() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.ready_status() == status

        wait_until(says_so, self.log.read_text)

    def ready_status(self) -> str:
        """What `/ready` says."""
        return str(self.client.get("/ready").json()["status"])

    def send(self, signal_number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(signal_number)

    def wait(self) -> int:
        """The exit code, once the process has ended."""
        return self.process.wait(timeout=PATIENCE)

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def metrics(self, **options: Any) -> dict[tuple[str, ...], float]:
        """All metrics: (name, values of its labels in their order) -> value."""
        answer = self.client.get("/metrics", **options)
        assert answer.status_code == 200
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def wait_until_idle(self, **options: Any) -> None:
        """Returns once no request is admitted, none of the cache is held and no file of a client is left.

        options: of the requests for metrics, such as headers with a key.
        """
        wait_until(lambda: not self.held(**options), lambda: self.held(**options))

    def held(self, **options: Any) -> list[str]:
        """What requests hold: places, blocks of the cache, files."""
        names = (
            "transept_live_streams",
            "transept_uploads",
            "transept_requests_running",
            "transept_requests_waiting",
            "transept_kv_cache_usage_ratio",
        )
        found = [" ".join(name) for name, value in self.metrics(**options).items() if name[0] in names and value > 0]
        return found + self.temporary_files()

    def temporary_files(self) -> list[str]:
        """Names of files that uploads are kept in."""
        return [path.name for path in (self.folder / "tmp").iterdir() if path.name.startswith("transept-")]

    def num_open_files(self) -> int:
        """File descriptors of the process."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_mib(self) -> float:
        """Memory of the process."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return int(status["VmRSS"].split()[0]) / 1024


Serve = Callable[..., ServeProcess]  # the fixture `serve`
