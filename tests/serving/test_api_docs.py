"""The description of the API as a page: with files of this server alone."""

import re
from pathlib import Path

import pytest
from page_visit import CHROMIUM, PATIENCE
from playwright.sync_api import Browser
from serve_process import Serve, ServeProcess


def test_all_that_the_page_loads_is_of_this_server(server: ServeProcess) -> None:
    page = server.client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'self'; ")
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(addresses) == 4
    for address in (*addresses, "openapi.json"):
        assert not address.startswith(("http:", "https:", "/"))
        assert server.client.get(f"/{address}").status_code == 200
    assert server.client.get("/docs/core.py").status_code == 404
    assert server.client.get("/redoc").status_code == 404


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("path", ["", "/speech"])
def test_it_shows_the_endpoints_in_a_browser(
    path: str, server: ServeProcess, serve: Serve, bart_dir: Path, browser: Browser
) -> None:
    shown = server if not path else serve(f"bart={bart_dir}", "--root-path", path)
    page = browser.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"{shown.url}/docs")
    page.get_by_text("/v1/audio/transcriptions").first.wait_for()
    assert not [url for url in asked if not url.startswith((shown.url, "data:"))]
    assert not complaints
    page.close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_it_sends_a_file(server: ServeProcess, clip: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{server.url}/docs")
    endpoint = page.locator("#operations-speech-transcriptions_v1_audio_transcriptions_post")
    endpoint.click()
    endpoint.get_by_role("button", name="Try it out").click()
    endpoint.locator("input[type=file]").set_input_files(clip)
    with page.expect_response("**/v1/audio/transcriptions") as answered:
        endpoint.get_by_role("button", name="Execute").click()
    assert answered.value.json()["text"].startswith("And Mr. John Dashwood")
    endpoint.locator(".live-responses-table").get_by_text("And Mr. John Dashwood").first.wait_for()
    page.close()
