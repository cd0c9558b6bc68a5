"""More requests than replicas and the queue take: a 429 that says when to come again, and in the end every answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from serving.serve_process import PATIENCE, ServeProcess

from transept import Transcriber

CLIENTS = 8


@pytest.fixture(scope="module")
def recording(speech_dir: Path) -> Path:
    return sorted((speech_dir / "librivox").glob("*.flac"))[0]


@pytest.fixture(scope="module", params=["one model", "two models"])
def server(
    request: pytest.FixtureRequest, tiny_en_dir: Path, t5_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeProcess]:
    models = [f"tiny.en={tiny_en_dir}", f"t5={t5_dir}"][: 1 if request.param == "one model" else 2]
    limits = ["--max-running", "1", "--max-queue", "1"]
    process = ServeProcess(tmp_path_factory.mktemp("full"), *models, "--ray", *limits)
    assert process.url, process.log.read_text()
    yield process
    process.stop()


@pytest.mark.slow
@pytest.mark.parametrize("max_retries", [0, 100])
def test_a_full_queue(server: ServeProcess, recording: Path, tiny_en_dir: Path, max_retries: int) -> None:
    expected = Transcriber(tiny_en_dir).transcribe(recording).text
    answers: list[str] = []
    refusals: list[openai.RateLimitError] = []
    ready = threading.Barrier(CLIENTS)

    def ask() -> None:
        with openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="-", timeout=PATIENCE, max_retries=max_retries
        ) as client:
            ready.wait()
            try:
                answers.append(client.audio.transcriptions.create(model="tiny.en", file=recording).text)
            except openai.RateLimitError as error:
                refusals.append(error)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) + len(refusals) == CLIENTS
    assert set(answers) == {expected}
    if max_retries:
        assert not refusals
        return
    assert refusals
    for refusal in refusals:
        assert int(refusal.response.headers["retry-after"]) >= 1
        if any(
            str(each).startswith("t5=") for each in server.process.args
        ):  # then the ingress is ours, and so is the shape
            assert refusal.response.json()["error"]["code"] == "queue_full"
