"""The text in images over HTTP: what VisionReader gives for the same image and options."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from multimodal.pdf_files import pdf_of
from rendered_text import LINES, encoded_line
from serve_process import PATIENCE, ServeProcess

from transept import VisionReader
from transept.multimodal.pdf import pdf_pages
from transept.serving.async_tasks import AsyncVisionReader
from transept.serving.http.image_texts import BODY


@pytest.fixture(scope="module")
def reader(trocr_dir: Path) -> Iterator[VisionReader]:
    reader = VisionReader(trocr_dir, kv_cache_bytes=1 << 24)
    yield reader
    reader.engine.close()


@pytest.fixture(scope="module")
def image_server(trocr_dir: Path, bart_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("server"), f"bart={bart_dir}", f"trocr={trocr_dir}")
    yield process.wait_until_ready()
    process.stop()


def post(server: ServeProcess, image: bytes, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/read", files={"file": ("page.png", image)}, data=fields, timeout=PATIENCE)


@pytest.mark.parametrize("options", [{}, {"num_beams": 1, "max_tokens": 5, "task": "read"}, {"length_penalty": 0.5}])
def test_the_text_is_the_librarys(image_server: ServeProcess, reader: VisionReader, options: dict[str, Any]) -> None:
    image = encoded_line(LINES[0])
    expected = reader.read(image, **options).to_dict()
    answer = post(image_server, image, **options).json()
    assert (answer.pop("object"), answer.pop("model"), expected.pop("error")) == ("image_text", "trocr", None)
    assert answer.pop("id").startswith("image-text-")
    assert answer.pop("created") > 0
    for name in ("score", "cumulative_logprob"):
        assert answer.pop(name) == pytest.approx(expected.pop(name), abs=1e-4)
    assert answer == expected


def test_empty_fields_are_not_given(image_server: ServeProcess, reader: VisionReader) -> None:
    image = encoded_line(LINES[0])
    empty = {name: "" for name in BODY.fields if name != "file"}
    assert post(image_server, image, **empty).json()["text"] == reader.read(image).text


def test_a_large_upload(image_server: ServeProcess, reader: VisionReader) -> None:
    image = encoded_line(LINES[1], "BMP", size=(1200, 600))
    assert len(image) > 1 << 20
    assert post(image_server, image, model="trocr").json()["text"] == reader.read(image).text


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"stream": "true"}, "stream", "/v1/read answers once, with JSON"),
        ({"max_token": 5}, "max_token", "there is no field 'max_token'. Did you mean 'max_tokens'?"),
        ({"num_beams": "many"}, "num_beams", "num_beams"),
        ({"num_beams": 0}, "num_beams", "num_beams"),
        ({"task": "title"}, "task", 'there is no task "title" with this model'),
        ({"model": "bart"}, "model", '"bart" is a text model, and this endpoint is for images. Use one of trocr'),
    ],
)
def test_bad_fields(image_server: ServeProcess, fields: dict[str, Any], param: str, message: str) -> None:
    answer = post(image_server, encoded_line(LINES[0]), **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert message in answer.json()["error"]["message"]


def test_what_is_no_image(image_server: ServeProcess) -> None:
    for data in (b"Dear Sir", encoded_line(LINES[0])[:90], b"x" * (2 << 20)):
        answer = post(image_server, data)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, "file", "invalid_media")
        assert "page.png" in error["message"]
        assert "/proc/" not in error["message"]
    missing = httpx.post(f"{image_server.url}/v1/read", files={"model": (None, "trocr")}, timeout=PATIENCE)
    assert "send the image in the field file" in missing.json()["error"]["message"]


def test_it_is_listed_and_takes_no_text(image_server: ServeProcess) -> None:
    models = {each["id"]: each for each in httpx.get(f"{image_server.url}/v1/models", timeout=PATIENCE).json()["data"]}
    assert (models["trocr"]["kind"], models["trocr"]["tasks"]) == ("vision", ["read"])
    body = {"model": "trocr", "input": "a"}
    answer = httpx.post(f"{image_server.url}/v1/summarize", json=body, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "wrong_model_kind")
    assert '"trocr" is a vision model, and this endpoint is for text' in answer.json()["error"]["message"]


def test_several_at_once_for_an_event_loop(trocr_dir: Path, reader: VisionReader) -> None:
    images = [encoded_line(text) for text in LINES]

    async def read() -> list[str]:
        tasks = await AsyncVisionReader.load(trocr_dir, kv_cache_bytes=1 << 24)
        try:
            await tasks.engine.warm_up()
            return [each.text for each in await asyncio.gather(*(tasks.read(image) for image in images))]
        finally:
            await tasks.close()

    assert asyncio.run(read()) == [each.text for each in reader.read(images)]


def test_the_pages_of_a_pdf(image_server: ServeProcess, reader: VisionReader) -> None:
    texts = ("12", "340", "5")
    for padding in (0, 2 << 20):  # in memory, and in a file
        pdf = pdf_of(texts) + b"\n" * padding
        expected = [each.text for each in reader.read(pdf_pages(pdf))]
        answers = [post(image_server, pdf, **fields).json() for fields in ({}, {"page": 2}, {"page": 3, "dpi": 150})]
        assert [each["text"] for each in answers] == expected
        assert [(each["page"], each["num_pages"]) for each in answers] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("data", "fields", "param", "code", "message"),
    [
        (pdf_of(["1"]), {"page": 2}, "page", "invalid_value", "page must be from 1 to 1, the pages of this PDF, not 2"),
        (pdf_of(["1"]), {"page": "one"}, "page", "invalid_value", 'page must be an integer of at least 1, not "one"'),
        (pdf_of(["1"]), {"dpi": 9}, "dpi", "invalid_value", "dpi must be a number from 18 to 2400"),
        (encoded_line(LINES[0]), {"page": 1}, "page", "unsupported", "page is for PDFs, and the upload is not one"),
        (b"%PDF-1.4 Dear Sir", {}, "file", "invalid_media", 'PDF file "page.png" cannot be read'),
        (b"%PDF-1.4 Dear Sir" + b" " * (2 << 20), {}, "file", "invalid_media", 'PDF file "page.png" cannot be read'),
    ],
)
def test_bad_pages(
    image_server: ServeProcess, data: bytes, fields: dict[str, Any], param: str, code: str, message: str
) -> None:
    answer = post(image_server, data, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
    assert message in error["message"]
    assert "/proc/" not in error["message"]


def test_limits_and_what_models_do_are_listed(image_server: ServeProcess) -> None:
    listed = httpx.get(f"{image_server.url}/v1/models", timeout=PATIENCE).json()
    assert listed["limits"] == {
        "max_upload_bytes": 512 << 20,
        "max_audio_seconds": 4 * 3600.0,
        "max_text_characters": 32 << 20,
        "max_image_bytes": 128 << 20,
        "max_image_pixels": 30_000_000,
        "max_running": 16,
        "max_queue": 64,
        "max_streams": 64,
    }
    models = {each["id"]: each for each in listed["data"]}
    assert models["trocr"]["reads_pdf"] is True
    assert (models["trocr"]["running"], models["trocr"]["waiting"]) == (0, 0)
