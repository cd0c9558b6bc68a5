"""A server and its page in headless Chromium, as the tests of the page use them."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from patience import wait_until
from playwright.sync_api import Error, Locator, Page, expect
from serve_process import ServeProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120_000  # milliseconds until a test gives up waiting for something on the page
expect.set_options(timeout=PATIENCE)
SHORT_PATIENCE = 60.0  # seconds for `wait_until`, which then says what was there instead
PHONE = {"width": 360, "height": 740}

SPOKEN = """() => {
  const [range] = CSS.highlights.get('spoken');
  return range ? range.startContainer.data.slice(range.startOffset, range.endOffset) : '';
}"""


class PageServer:
    """A ``transept serve`` process, which can be stopped and started again at the same address."""

    def __init__(self, folder: Path, *arguments: str | Path, environment: dict[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.folder, self.arguments = folder, (*arguments, "--port", str(port))
        self.url = f"http://127.0.0.1:{port}/"
        self.environment = environment
        self.process: ServeProcess | None = None

    def start(self, status: str = "ready") -> PageServer:
        """Start it, and return once `/ready` has this status."""
        self.process = ServeProcess(self.folder, *self.arguments, environment=self.environment)
        self.process.wait_for(status)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send(how)
            self.process.wait()
            self.process.stop()
            self.process = None


class Visit:
    """The page in a browser context, and the complaints of its console."""

    def __init__(self, page: Page, server: PageServer) -> None:
        self.page, self.server = page, server
        self.complaints: list[str] = []
        self.expected: list[str] = []  # patterns of what the console may say
        page.set_default_timeout(PATIENCE)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error(`CSP: ${event.violatedDirective}`))"
        )
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def open(self) -> Visit:
        self._navigate(lambda: self.page.goto(self.server.url))
        return self

    def reload(self) -> None:
        self._navigate(self.page.reload)

    def _navigate(self, go: Callable[[], object]) -> None:
        """Go somewhere; again where a busy Chromium finds its new socket closed, which is not the server's doing."""
        refusals: list[Error] = []

        def arrived() -> bool:
            try:
                go()
            except Error as error:
                if "ERR_SOCKET_NOT_CONNECTED" not in error.message:
                    raise
                refusals.append(error)
                return False
            return True

        wait_until(arrived, lambda: refusals[-1].message, seconds=SHORT_PATIENCE)
        self.page.wait_for_selector("html[data-started]", state="attached")

    def unexpected(self) -> list[str]:
        return [text for text in self.complaints if not any(re.search(each, text) for each in self.expected)]

    def add(self, *files: Path) -> None:
        self.page.set_input_files("#file-input", files)

    def row(self, name: str) -> Locator:
        return self.page.locator("#queue > li").filter(has_text=name)

    def expect_state(self, name: str, state: str) -> None:
        expect(self.row(name).locator(".row-state")).to_have_text(re.compile(state))

    def transcribe(self, file: Path) -> None:
        self.add(file)
        self.expect_state(file.name, "^Done")

    @property
    def said(self) -> Locator:
        """The texts of the segments."""
        return self.page.locator(".said")

    @property
    def turns(self) -> list[str]:
        """The speakers named above the segments, one for each turn."""
        return self.page.locator(".speaker").all_inner_texts()

    def download(self, format_: str) -> str:
        return self.downloaded("Download", format_).read_bytes().decode()

    def downloaded(self, menu: str, format_: str) -> Path:
        """The file that an entry of one of the two download menus saves."""
        self.page.get_by_role("button", name=menu, exact=True).click()
        with self.page.expect_download() as download:
            self.page.get_by_role("menuitem", name=re.compile(rf"\b{format_}$")).click()
        return Path(download.value.path())

    def edit(self) -> None:
        """Turn editing on."""
        self.page.get_by_role("button", name="Edit", exact=True).click()

    def position(self) -> float:
        return self.page.evaluate("document.getElementById('audio').currentTime")

    def word_box(self, segment: int, word: str) -> tuple[float, float]:
        """The middle of a word on the screen."""
        return tuple(
            self.page.evaluate(
                """([segment, word]) => {
                  const text = document.querySelectorAll('.said')[segment];
                  text.scrollIntoView({ block: 'center' });
                  const at = text.textContent.indexOf(word);
                  const range = new Range();
                  range.setStart(text.firstChild, at);
                  range.setEnd(text.firstChild, at + word.length);
                  const box = range.getBoundingClientRect();
                  return [box.x + box.width / 2, box.y + box.height / 2];
                }""",
                [segment, word],
            )
        )

    def spoken(self) -> str:
        """The highlighted word."""
        return self.page.evaluate(f"({SPOKEN})()")

    def focused(self) -> str:
        return self.page.evaluate("document.activeElement.id || document.activeElement.className")

    def check_accessibility(self) -> None:
        found = Axe().run(self.page).response["violations"]
        assert not found, "\n".join(f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}" for each in found)
