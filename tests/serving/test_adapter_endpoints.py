"""Adapters over HTTP: models' names, and the endpoints that load and unload them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from random_adapters import save_adapter
from transformers import BartForConditionalGeneration

from transept import SamplingParams, TextGenerator
from transept.serving.async_tasks import AsyncTextGenerator, last
from transept.serving.http.app import build_app
from transept.serving.settings import ModelSource, ServerSettings

TEXT = "In a church the transept is where the nave is crossed."
GIVEN = {"input": TEXT, "max_tokens": 12, "num_beams": 1, "temperature": 0}


@pytest.fixture(scope="module")
def folders(bart_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    model, made = BartForConditionalGeneration.from_pretrained(bart_dir), tmp_path_factory.mktemp("adapters")
    return {name: str(save_adapter(model, made / name, rank=8, seed=seed)) for seed, name in enumerate(("a", "b"))}


@pytest.fixture(scope="module")
def client(bart_dir: Path, folders: dict[str, str]) -> Iterator[TestClient]:
    engine = {"adapters": {"a": folders["a"]}, "threads": 1}
    settings = ServerSettings((ModelSource("bart", str(bart_dir)),), engine=engine, load_adapters=True)
    app = build_app(settings)
    with TestClient(app) as client:
        client.portal.call(app.state.models.wait_until_loaded)  # type: ignore[union-attr]
        yield client


def written(client: TestClient, model: str, **more: Any) -> str:
    answer = client.post("/v1/summarize", json={**GIVEN, "model": model, **more})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    text: str = answer.json()["data"][0]["text"]
    return text


def test_an_adapter_is_a_model(client: TestClient, bart_dir: Path, folders: dict[str, str]) -> None:
    loaded = client.post("/v1/load_lora_adapter", json={"lora_name": "b", "lora_path": folders["b"]})
    assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'b' added successfully.")
    listed = {each["id"]: each.get("parent") for each in client.get("/v1/models").json()["data"]}
    assert listed == {"bart": None, "a": "bart", "b": "bart"}
    assert client.get("/v1/models/b").json()["parent"] == "bart"
    texts = [written(client, "bart"), written(client, "a"), written(client, "b")]
    assert len({*texts}) == 3
    assert written(client, "bart", lora="a") == written(client, "a", lora=None) == texts[1]
    completed = client.post(
        "/v1/completions", json={"prompt": TEXT, "model": "b", "max_tokens": 12, "num_beams": 1, "temperature": 0}
    )
    with TextGenerator(bart_dir, adapters=folders, threads=1) as generator:
        options: dict[str, Any] = {"max_tokens": 12, "num_beams": 1, "temperature": 0.0}
        assert [generator.summarize(TEXT, lora=name, **options).text for name in (None, "a", "b")] == texts
        plain = generator.generate(TEXT, lora="b", **options).text
    assert completed.json()["choices"][0]["text"].strip() == plain
    unloaded = client.post("/v1/unload_lora_adapter", json={"lora_name": "b"})
    assert (unloaded.status_code, unloaded.text) == (200, "Success: LoRA adapter 'b' removed successfully.")
    refused = client.post("/v1/summarize", json={**GIVEN, "model": "b"})
    assert refused.status_code == 404
    assert "Models of this server: bart, a" in refused.json()["error"]["message"]


async def _kept(directory: Path, folders: dict[str, str]) -> None:
    tasks = await AsyncTextGenerator.load(directory, adapters={"a": folders["a"]}, threads=1)
    options: dict[str, Any] = {"max_tokens": 12, "num_beams": 1, "temperature": 0.0}
    adapted, engine = tasks.with_adapter("a"), tasks.engine.engine
    jobs = [tasks.job("summarize", TEXT, lora="a", **options) for _ in range(2)]
    (before,) = [each async for each in tasks.engine.generate(TEXT, SamplingParams(**options), lora="a")]
    expected = await last(tasks.engine.run(jobs[0]))
    score = await adapted.score(TEXT, "a church")
    engine.unload_adapter("a")
    engine.load_adapter("a", folders["b"])
    assert (await last(tasks.engine.run(jobs[1]))).text == expected.text
    assert await adapted.run("summarize", TEXT, **options) == expected
    assert (await adapted.score(TEXT, "a church")).logprobs == score.logprobs
    assert (await tasks.score(TEXT, "a church", lora="a")).logprobs != score.logprobs
    (after,) = [each async for each in tasks.engine.generate(TEXT, SamplingParams(**options), lora="a")]
    assert after.outputs[0].token_ids != before.outputs[0].token_ids
    await tasks.close()


def test_jobs_keep_the_adapter_that_they_were_made_with(bart_dir: Path, folders: dict[str, str]) -> None:
    asyncio.run(_kept(bart_dir, folders))


def test_refusals(client: TestClient, folders: dict[str, str], bart_dir: Path) -> None:
    def error(path: str, **fields: Any) -> tuple[int, str, str]:
        answer = client.post(path, json=fields)
        told = answer.json()["error"]
        return answer.status_code, told["param"], told["message"]

    status, param, message = error("/v1/load_lora_adapter", lora_name="a", lora_path=folders["b"])
    assert (status, param) == (400, "lora_name")
    assert "is the name of a model already" in message
    status, param, message = error("/v1/load_lora_adapter", lora_name="c", lora_path=str(bart_dir))
    assert (status, param) == (400, "lora_path")
    assert "is not an adapter" in message
    assert error("/v1/load_lora_adapter", lora_name="c")[:2] == (400, "lora_path")
    assert error("/v1/load_lora_adapter", lora_name="c", lora_path="")[:2] == (400, "lora_path")
    assert error("/v1/load_lora_adapter", lora_name=" ", lora_path=folders["b"])[:2] == (400, "lora_name")
    assert error("/v1/unload_lora_adapter", lora_name="c")[:2] == (404, "model")
    assert error("/v1/unload_lora_adapter", lora_name="bart")[0] == 404
    assert error("/v1/summarize", **GIVEN, model="bart", lora="c")[:2] == (400, "lora")


def test_the_endpoints_are_off_by_default(bart_dir: Path) -> None:
    app = build_app(ServerSettings((ModelSource("bart", str(bart_dir)),)))
    assert not [route for route in app.state.routes if "lora" in route.path]
