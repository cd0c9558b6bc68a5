"""The Live tab in headless Chromium, whose microphone plays a recording, against the real server with tiny.en."""

import json
import re

import numpy
import pytest
import soundfile
from page_visit import CHROMIUM, PHONE, PageServer, Visit
from playwright.sync_api import WebSocketRoute, expect
from serve_process import ServeProcess
from speech.recordings import RATE
from speech.recordings import clip as samples_of

from transept.speech.word_errors import word_error_rate

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

KEY = "key-of-the-tests"
TEXT = "Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them."
MOST_ERRORS = 0.4  # tiny.en mistakes some words after the browser's filters; a busy browser drops samples
LEAST_PIXELS = 40  # of captions for a room
SECONDS = 7.1  # of TEXT
BEFORE, AFTER = 3.0, 1.5  # seconds of silence; a busy browser misses the first ones
STYLE = "element => { const style = getComputedStyle(element); return [style.backgroundColor, style.fontSize]; }"


@pytest.fixture(scope="module")
def microphone(clip, tmp_path_factory):
    """A sentence, with silence before and after it."""
    file = tmp_path_factory.mktemp("microphone") / "microphone.wav"
    before, after = (numpy.zeros(int(seconds * RATE), numpy.float32) for seconds in (BEFORE, AFTER))
    soundfile.write(file, numpy.concatenate([before, samples_of(clip), after]), RATE)
    return file


@pytest.fixture
def visit(visit_of, server: ServeProcess) -> Visit:
    return visit_of(server)


@pytest.fixture(scope="module")
def small_server(tiny_en_dir, tmp_path_factory):
    """It needs a key, and takes one stream at a time."""
    options = ("--api-key", KEY, "--max-streams", "1")
    server = PageServer(tmp_path_factory.mktemp("small"), f"tiny.en={tiny_en_dir}", *options).start()
    yield server
    server.stop()


def opened_sockets(visit: Visit) -> list[WebSocketRoute]:
    """Return a list that gets each connection of the page from now on."""
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    visit.page.route_web_socket(re.compile("/v1/realtime"), pass_on)
    return sockets


def start(visit: Visit) -> None:
    visit.page.get_by_role("tab", name="Live").click()
    visit.page.get_by_role("button", name="Start", exact=True).click()


def stop(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Stop", exact=True).click()
    expect(visit.page.locator("#live-kept")).to_be_visible()


def expect_words(visit: Visit, least: int) -> None:
    """Wait until so many final words are shown."""
    visit.page.wait_for_function(
        """least => [...document.querySelectorAll('#captions p > :first-child')]
            .map((final) => final.textContent).join(' ').split(/\\s+/).length >= least""",
        arg=least,
    )


def let_finish(visit: Visit) -> None:
    """Wait until the microphone has played the sentence."""
    visit.page.wait_for_function(
        "seconds => document.getElementById('live-time').textContent.split(':').at(-1) >= seconds",
        arg=BEFORE + SECONDS + AFTER,
    )


def check_text(text: str) -> None:
    assert word_error_rate([(TEXT, text)]) <= MOST_ERRORS, text


def kept_text(visit: Visit) -> str:
    visit.page.get_by_role("button", name="Open the transcript").click()
    return " ".join(visit.said.all_inner_texts())


def test_speech_becomes_captions_and_a_transcript(visit):
    page = visit.page
    start(visit)
    expect_words(visit, 3)
    expect(page).to_have_title("Live · Transept")
    page.get_by_role("button", name="Stage").click()
    expect(page.get_by_role("button", name="Leave the stage")).to_be_visible()
    page.wait_for_function("() => document.fullscreenElement?.id === 'panel-live'")
    assert page.locator("#panel-live").evaluate(STYLE)[0] == "rgb(0, 0, 0)"
    assert float(page.locator("#captions").evaluate(STYLE)[1].removesuffix("px")) >= LEAST_PIXELS
    visit.check_accessibility()
    let_finish(visit)
    page.get_by_role("button", name="Leave the stage").click()
    page.wait_for_function("() => document.fullscreenElement === null")
    stop(visit)
    expect(page).to_have_title("Transept")
    assert visit.focused() == "live-start"

    said = kept_text(visit)
    check_text(said)
    assert page.locator("#captions").inner_text().split() == said.split()
    visit.reload()
    segments = json.loads(visit.download("json"))["segments"]
    words = [word for segment in segments for word in segment["words"]]
    assert "".join(word["word"] for word in words).split() == said.split()
    starts = [word["start"] for word in words]
    assert starts == sorted(starts)
    assert SECONDS / 2 < words[-1]["end"] - words[0]["start"] < SECONDS + 1
    page.locator("#play").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_pause_completes_the_sentence_and_keeps_the_connection(visit):
    """Neither captions nor the recording grow in a pause."""
    sockets = opened_sockets(visit)
    start(visit)
    expect_words(visit, 3)
    visit.page.get_by_role("button", name="Pause", exact=True).click()
    expect(visit.page.locator("#live-state")).to_have_text("Paused")
    expect(visit.page.locator("#captions .tentative")).to_have_count(0)
    time = visit.page.locator("#live-time").inner_text()
    visit.check_accessibility()
    assert visit.page.locator("#live-time").inner_text() == time
    visit.page.get_by_role("button", name="Go on", exact=True).click()
    expect(visit.page.locator("#live-state")).to_have_text(re.compile("^Listening"))
    expect(visit.page.locator("#live-time")).not_to_have_text(time)
    stop(visit)
    assert len(sockets) == 1
    assert len(kept_text(visit).split()) >= 3


def test_a_lost_connection_loses_no_words(visit):
    """The connection breaks in a sentence. The page connects again, and sends the audio that has no text yet."""
    sockets = opened_sockets(visit)
    start(visit)
    expect_words(visit, 3)
    sockets[0].close()
    expect(visit.page.locator("#live-message")).to_contain_text("The connection is lost")
    let_finish(visit)
    expect(visit.page.locator("#live-message")).to_be_hidden()
    assert len(sockets) == 2
    stop(visit)
    check_text(kept_text(visit))


@pytest.mark.slow
def test_a_reload_keeps_what_was_said(visit):
    start(visit)
    expect_words(visit, 4)
    visit.reload()
    visit.page.get_by_role("tab", name="Transcribe").click()
    visit.expect_state("Live", "^Done")
    said = " ".join(visit.said.all_inner_texts()).split()
    assert len(said) >= 4


@pytest.mark.slow
def test_a_key_is_asked_for_and_a_full_server_waited_for(visit_of, small_server):
    first, second = (visit_of(small_server) for _ in range(2))
    for visit in (first, second):
        visit.expected.append("status of 401")
        visit.page.locator("#key-input").fill(KEY)
        visit.page.locator("#key-submit").click()
        expect(visit.page.get_by_role("dialog")).to_be_hidden()
    start(first)
    expect_words(first, 3)
    start(second)
    expect(second.page.locator("#live-message")).to_contain_text("The server is busy; trying again")
    stop(first)
    expect(second.page.locator("#live-state")).to_have_text(re.compile("^Listening"))
    expect(second.page.locator("#live-message")).to_be_hidden()
    second.page.get_by_role("button", name="Stop", exact=True).click()
    expect(second.page.get_by_role("button", name="Start", exact=True)).to_be_visible()  # too short to be kept, perhaps


@pytest.mark.slow
def test_a_server_without_streams_has_no_live_tab(visit_of, tiny_en_dir, tmp_path):
    server = PageServer(tmp_path / "server", f"tiny.en={tiny_en_dir}", "--max-streams", "0").start()
    try:
        visit = visit_of(server)
        expect(visit.page.get_by_role("tab", name="Live")).to_be_hidden()
    finally:
        server.stop()


def test_a_refused_microphone_is_explained(visit):
    visit.page.evaluate(
        "void (navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('no', 'NotAllowedError')))"
    )
    start(visit)
    expect(visit.page.locator("#live-message")).to_contain_text("The browser may not use the microphone. Allow it")
    assert visit.page.locator("#queue > li").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"viewport": PHONE}], ids=["dark", "phone"])
def test_axe_finds_nothing(visit_of, server, options):
    visit = visit_of(server, **options)
    visit.page.get_by_role("tab", name="Live").click()
    visit.check_accessibility()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= visit.page.viewport_size["width"]
    start(visit)
    expect_words(visit, 3)
    visit.check_accessibility()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= visit.page.viewport_size["width"]
    stop(visit)
    visit.check_accessibility()
