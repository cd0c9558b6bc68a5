"""A server for many tests, started once: tiny.en, and a small BART and T5 with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest
from serve_process import PATIENCE, Serve, ServeProcess

if TYPE_CHECKING:
    from page_visit import PageServer, Visit
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def server(
    tiny_en_dir: Path, bart_dir: Path, t5_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeProcess]:
    """Tests do not change it. A test that stops a server, or fills its queue, starts one by `serve`."""
    models = [f"{name}={path}" for name, path in (("tiny.en", tiny_en_dir), ("bart", bart_dir), ("t5", t5_dir))]
    without = {"TRANSEPT_DISABLE_PLUGINS": "speakers"}  # tests refuse requests for speakers
    process = ServeProcess(tmp_path_factory.mktemp("server"), *models, "--log-json", environment=without)
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


@pytest.fixture(scope="module")
def microphone() -> Path | None:
    """The recording that the browser's microphone plays once; None: it beeps. A module may override it."""
    return None


@pytest.fixture(scope="module")
def browser(microphone: Path | None) -> Iterator[Browser]:
    """Headless Chromium. Of a module, for its event loop runs in this thread while it is open."""
    from page_visit import CHROMIUM
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
        flags += ["--autoplay-policy=no-user-gesture-required", "--disable-gpu"]  # no GPU is emulated
        flags += [] if microphone is None else [f"--use-file-for-fake-audio-capture={microphone}%noloop"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def visit_of(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens the page of a server, in a new browser context; the options are Playwright's."""
    from page_visit import Visit

    visits: list[Visit] = []

    def visit(server: PageServer, **options: Any) -> Visit:
        options = {"viewport": {"width": 1280, "height": 900}, "permissions": ["microphone"], **options}
        visits.append(Visit(browser.new_context(**options).new_page(), server))
        return visits[-1].open()

    yield visit
    unexpected = [text for each in visits for text in each.unexpected()]
    for each in visits:
        each.page.context.close()
    assert not unexpected, "\n".join(unexpected)


@pytest.fixture
def visit(visit_of: Callable[..., Visit], page_server: PageServer) -> Visit:
    """The page of the module's own `page_server`."""
    return visit_of(page_server)


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    """A short recording."""
    return speech_dir / "librivox" / "austen-0870.flac"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that has a recording's suffix and no sound."""
    file = tmp_path_factory.mktemp("broken") / "broken.mp3"
    file.write_bytes(b"this is no recording" * 100)
    return file
