"""A device that fails ends its engine: requests are told why, probes see it, and a replica of Ray Serve ends itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from torch import Tensor

from transept.errors import EngineDeadError
from transept.plugins.bart.model import BartForConditionalGeneration
from transept.serving.async_tasks import AsyncTextGenerator
from transept.serving.http.app import build_app
from transept.serving.settings import ModelSource, ServerSettings

REASON = "AcceleratorError: CUDA error: an illegal memory access was encountered"
BODY = {"model": "bart", "input": "a"}
REPLICA = """
import asyncio, sys, torch
from transept.cluster.model_server import ModelServer
from transept.serving.settings import ModelSource, ServerSettings

class Failing:
    def __call__(self, *inputs, **features):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

async def main():
    source = ModelSource("bart", sys.argv[1])
    server = ModelServer(ServerSettings((source,), engine={"num_threads": 1, "device": "cpu"}))
    server.models.start_loading()
    await server.check_health()
    print("healthy", flush=True)
    server.models.models["bart"].engine.engine.executor.worker.runner.model.decode = Failing()
    await server.check_health()

asyncio.run(main())
"""


class Failing(BartForConditionalGeneration):
    def decode(self, *inputs: Any) -> Tensor:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


@pytest.fixture
def client(bart_dir: Path, t5_dir: Path) -> Iterator[TestClient]:
    sources = (ModelSource("bart", str(bart_dir)), ModelSource("t5", str(t5_dir)))
    app = build_app(ServerSettings(sources, engine={"device": "cpu"}))
    with TestClient(app) as client:
        client.portal.call(app.state.models.wait_until_loaded)
        yield client


def test_probes_fail_and_other_models_are_served(client: TestClient) -> None:
    assert client.get("/ready").status_code == client.get("/health").status_code == 200
    assert client.post("/v1/summarize", json=BODY).status_code == 200
    worker = client.app.state.models.models["bart"].engine.engine.executor.worker
    worker.runner.model.__class__ = Failing
    answer = client.post("/v1/summarize", json=BODY)
    assert answer.status_code == 503
    assert REASON in answer.json()["error"]["message"]
    ready = client.get("/ready")
    assert ready.status_code == 503
    assert ready.json()["models"] == {"bart": "failed", "t5": "ready"}
    assert client.get("/health").status_code == 503
    assert client.post("/v1/summarize", json=BODY).status_code == 503
    assert client.post("/v1/summarize", json={**BODY, "model": "t5"}).status_code == 200


def test_all_tasks_end_with_the_reason_and_none_is_admitted(bart_dir: Path) -> None:
    async def whole() -> None:
        text = await AsyncTextGenerator.load(bart_dir, device="cpu", max_running=2)
        text.engine.engine.executor.worker.runner.model.__class__ = Failing
        tasks = [asyncio.create_task(text.run("summarize", document)) for document in ("a", "b", "c", "d")]
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, EngineDeadError)
            assert REASON in str(error)
        assert not text.engine.is_alive
        with pytest.raises(EngineDeadError, match=REASON):
            text.engine.admit()
        with pytest.raises(EngineDeadError, match=REASON):
            await text.engine.check_health()
        await text.engine.close()

    asyncio.run(whole())


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_replica_of_ray_serve_ends(bart_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLICA, str(bart_dir)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout == "healthy\n", done.stderr
    assert done.returncode == 1
    assert 'the engine of "bart" has ended, so this replica ends: the device cpu has failed' in done.stderr
    assert REASON in done.stderr
