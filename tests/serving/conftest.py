"""A server for many tests, started once: tiny.en, and a small BART and T5 with random weights."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from serve_process import PATIENCE, Serve, ServeProcess


@pytest.fixture(scope="session")
def server(
    tiny_en_dir: Path, bart_dir: Path, t5_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeProcess]:
    """It is not changed by tests: whoever stops a server, or fills its queue, starts one by `serve`."""
    models = [f"{name}={path}" for name, path in (("tiny.en", tiny_en_dir), ("bart", bart_dir), ("t5", t5_dir))]
    process = ServeProcess(tmp_path_factory.mktemp("server"), *models, "--log-json")
    yield process.wait_until_ready()
    process.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers of a test's own, which end with it."""
    started: list[ServeProcess] = []

    def start(*arguments: str | Path, environment: dict[str, str] | None = None) -> ServeProcess:
        started.append(ServeProcess(tmp_path / f"server-{len(started)}", *arguments, environment=environment))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture(scope="session")
def openai_client(server: ServeProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of the shared server, which tries nothing again."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client
