"""The description of the API as a page: with files of this server alone."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_visit import CHROMIUM
from playwright.sync_api import sync_playwright
from serve_process import Serve, ServeProcess

HAS_SWAGGER = find_spec("fastapi_offline") is not None


def test_all_that_the_page_loads_is_of_this_server(server: ServeProcess) -> None:
    page = server.client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'self'; ")
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(addresses) == (4 if HAS_SWAGGER else 2)
    assert (b"fastapi-offline" in page.content) is not HAS_SWAGGER
    for address in (*addresses, "openapi.json"):
        assert not address.startswith(("http:", "https:", "/"))
        assert server.client.get(f"/{address}").status_code == 200
    assert server.client.get("/docs/core.py").status_code == 404
    assert server.client.get("/redoc").status_code == 404


@pytest.mark.skipif(CHROMIUM is None or not HAS_SWAGGER, reason="needs chromium, and the package fastapi-offline")
@pytest.mark.parametrize("path", ["", "/speech"])
def test_it_shows_the_endpoints_in_a_browser(path: str, server: ServeProcess, serve: Serve, bart_dir: Path) -> None:
    shown = server if not path else serve(f"bart={bart_dir}", "--root-path", path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{shown.url}/docs")
        page.get_by_text("/v1/audio/transcriptions").first.wait_for()
        assert not [url for url in asked if not url.startswith((shown.url, "data:"))]
        assert not complaints
        browser.close()
