"""The page while recordings are transcribed, and afterwards: editing, cancelling, errors, downloads."""

import io
import re
import signal
import zipfile
from pathlib import Path

import numpy
import pytest
import soundfile
from page_visit import CHROMIUM, PHONE, PageServer
from playwright.sync_api import expect
from speech.recordings import RATE, joined
from timed_media import timed_file

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

LAPTOP = {"width": 1280, "height": 800}
UPLOAD_MB = 4
WORDS = (
    "Text",
    "Subtitles",
    "Web subtitles",
    "Data",
    "Table",
    "Spreadsheet",
    "Lyrics",
    "Karaoke",
    "Broadcast subtitles",
    "Page",
)
ABOUT = ("1 min", "3 min", "1 h 0 min", "2 h 2 min")
SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) {
      const moved = sources.map(({ node, previousRect: from, currentRect: to }) =>
        `${node?.id || node?.className || node?.nodeName} ${from.x},${from.y} -> ${to.x},${to.y}`);
      shifts.push(`${value}: ${moved}`);
    }
  }).observe({ type: 'layout-shift' });
}"""


@pytest.fixture(scope="module")
def page_server(tiny_en_dir, bart_dir, tmp_path_factory):
    """With small limits, so that small files pass them."""
    limits = ("--max-upload-mb", str(UPLOAD_MB), "--max-audio-seconds", "600")
    server = PageServer(tmp_path_factory.mktemp("page"), f"tiny.en={tiny_en_dir}", f"bart={bart_dir}", *limits).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def minutes(speech_dir, tmp_path_factory) -> Path:
    """About two minutes: several windows of the model."""
    file = tmp_path_factory.mktemp("minutes") / "minutes.flac"
    soundfile.write(file, numpy.tile(joined(speech_dir / "librivox"), 5), RATE)
    return file


# --- reading and editing


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True, "is_mobile": True}], ids=["", "phone"])
def test_reading_is_the_start_and_one_button_edits(visit_of, page_server, clip, options):
    visit = visit_of(page_server, **options)
    visit.transcribe(clip)
    button, text = visit.page.get_by_role("button", name="Edit", exact=True), visit.said.first
    before = text.inner_text()
    for pressed in ("false", "true", "false"):
        expect(button).to_have_attribute("aria-pressed", pressed)
        assert text.evaluate("text => text.isContentEditable") == (pressed == "true")
        assert text.get_attribute("aria-readonly") == (None if pressed == "true" else "true")
        text.focus()
        visit.page.keyboard.press("Control+Home")
        visit.page.keyboard.type("So ")
        expect(text).to_have_text(before if pressed == "false" else f"So {before}")
        before = text.inner_text()
        button.click()


# --- while the server works


def test_cancel_has_a_mark_and_a_word(visit, page_server, minutes):
    visit.add(minutes)
    button = visit.page.get_by_role("button", name=f"Cancel {minutes.name}")
    expect(button).to_have_text("Cancel")
    assert button.locator("use").get_attribute("href") == "#icon-close"
    visit.expect_state(minutes.name, "^Transcribing")
    page_server.process.send(signal.SIGSTOP)  # the recording must not end while the page is checked
    try:
        visit.check_accessibility()
        button.click()
        visit.expect_state(minutes.name, "^Cancelled")
        expect(button).to_be_hidden()
    finally:
        page_server.process.send(signal.SIGCONT)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"viewport": LAPTOP}, {"viewport": PHONE}], ids=["laptop", "phone"])
def test_nothing_moves_while_a_recording_is_transcribed(visit_of, page_server, minutes, clip, options):
    visit = visit_of(page_server, **options)
    page = visit.page
    visit.add(minutes, clip)
    visit.expect_state(minutes.name, "^Transcribing")
    page.evaluate(SHIFTS)
    page.wait_for_selector(".said")
    tools = page.locator("#tools").bounding_box()
    visit.expect_state(minutes.name, "^Done")
    visit.expect_state(clip.name, "^Done")
    expect(page.locator("#to-text")).to_be_enabled()
    page.wait_for_function("() => !document.getElementById('wave').classList.contains('plain')")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("shifts") == []
    assert page.locator("#tools").bounding_box() == tools


def test_the_toolbar_has_one_line_on_a_laptop(visit_of, page_server, clip):
    visit = visit_of(page_server, viewport=LAPTOP)
    visit.transcribe(clip)
    boxes = [each.bounding_box() for each in visit.page.locator("#tools button:visible").all()]
    middles = {round(box["y"] + box["height"] / 2) for box in boxes}
    assert max(middles) - min(middles) <= 1
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= LAPTOP["width"]


def test_the_time_left_is_told(visit, minutes):
    page = visit.page
    told = page.evaluate(
        """async () => {
          const { secondsLeft } = await import(new URL('web/recording.js', document.baseURI));
          const { stateText, timeLeft } = await import(new URL('web/words.js', document.baseURI));
          const paces = [[60, 600, 10000], [0, 600, 10000], [60, 600, 100], [60, null, 10000], [600, 600, 10000]];
          const item = { state: 'running', duration: 600, seconds: 60, left: 90 };
          return [
            paces.map(([seconds, duration, milliseconds]) => secondsLeft(seconds, duration, milliseconds)),
            [null, 0, 9, 59, 61, 150, 3599, 7300].map(timeLeft),
            stateText(item, 'ready', undefined),
          ];
        }"""
    )
    assert told == [
        [90, None, None, None, 0],
        [
            "",
            "a few seconds left",
            "a few seconds left",
            "under a minute left",
            *(f"about {n} left" for n in ABOUT),
        ],
        "Transcribing · 10 % · about 2 min left",
    ]


def test_limits_are_told_before_anything_is_sent(visit, tmp_path):
    page, sent = visit.page, []
    visit.expected.append("status of 413")
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    limits = "Up to 4 MiB and 10 minutes each. The server works on 16 at a time, and 64 more may wait."
    expect(page.locator("#limits")).to_have_text(limits)
    (tmp_path / "large.wav").write_bytes(b"large" * (1 << 20))
    (tmp_path / "empty.mp3").touch()
    visit.add(tmp_path / "large.wav", tmp_path / "empty.mp3")
    visit.expect_state("large.wav", "^Failed: This file has 5 MiB, over the limit of 4 MiB\\.$")
    visit.expect_state("empty.mp3", "^Failed: This file is empty\\.$")
    assert not sent
    soundfile.write(tmp_path / "long.flac", numpy.zeros(601 * RATE, numpy.int16), RATE)
    visit.add(tmp_path / "long.flac")
    visit.expect_state("long.flac", "^Failed: This recording is too long for this server\\.$")
    expect(page.locator("#reader-state")).to_contain_text("Split it into parts, and add those.")
    expect(page.get_by_role("tab", name="Images")).to_be_hidden()  # no model reads them here


# --- errors


def test_errors_are_in_the_users_words_with_details_on_demand(visit, broken, clip):
    visit.expected.append("status of 400")
    page = visit.page
    visit.add(broken)
    visit.expect_state(broken.name, "^Failed: This file is not audio that can be read\\.$")
    row = visit.row(broken.name).locator(".row-state")
    assert row.evaluate("state => state.scrollHeight <= state.clientHeight && state.scrollWidth <= state.clientWidth")
    state = page.locator("#reader-state")
    expect(state).to_contain_text("such as mp3, m4a, wav or mp4")
    technical = state.locator(".technical")
    expect(technical).to_be_hidden()
    state.get_by_text("Details").click()
    expect(technical).to_be_visible()
    expect(technical).to_contain_text("libsndfile")
    expect(technical).to_contain_text(re.compile(r"status 400, invalid_media, request \S+"))
    visit.check_accessibility()
    visit.reload()  # and it is kept
    visit.expect_state(broken.name, "^Failed: This file is not audio")
    state.get_by_text("Details").click()
    expect(technical).to_contain_text("libsndfile")


def test_the_channels_are_to_blame_where_they_are(visit, clip):
    visit.expected.append("status of 400")
    visit.page.locator("summary", has_text="More options").click()
    visit.page.get_by_label("Channels").select_option("Right only")
    visit.add(clip)
    visit.expect_state(clip.name, "^Failed: The channels are not what you chose")
    expect(visit.page.locator("#reader-state")).to_contain_text("Choose “Mixed” under Channels")


def test_an_audio_track_is_chosen(visit, clip, tmp_path):
    samples = soundfile.read(clip, dtype="float32")[0]
    data = timed_file("matroska", "pcm_s16le", [[(0, numpy.zeros_like(samples))], [(0, samples)]])
    visit.expected.append("status of 400")
    visit.page.locator("summary", has_text="More options").click()
    track, texts = visit.page.get_by_label("Audio track"), {}
    for name in ("7", "0", "spa"):
        video = tmp_path / f"track-{name}.mkv"
        video.write_bytes(data)
        track.fill(name)
        track.blur()
        if name == "7":
            visit.add(video)
            visit.expect_state(video.name, "^Failed: This file has no such audio track")
            expect(visit.page.locator("#reader-state")).to_contain_text("Clear “Audio track”")
        else:
            visit.transcribe(video)
            expect(visit.page.locator("#reader-about")).to_contain_text(f"audio track {name}")
            texts[name] = visit.said.all_inner_texts()
    assert texts["0"] == []
    assert texts["spa"]


def test_every_error_of_the_server_has_words(visit):
    shapes = [
        *(
            ("recording", 400, code, None)
            for code in ("invalid_media", "invalid_value", "unknown_field", "unsupported")
        ),
        ("recording", 400, "invalid_value", "hotwords"),
        *(("recording", status, code, None) for status, code in ((401, "invalid_api_key"), (404, "model_not_found"))),
        *(("recording", status, code, None) for status, code in ((408, "timeout"), (413, "too_large"), (413, None))),
        *(("recording", status, code, None) for status, code in ((429, "queue_full"), (500, "failed"), (502, None))),
        *((subject, 507, "disk_full", None) for subject in ("recording", "image")),
        *(("transcript", *shape) for shape in ((400, "invalid_value", "segments[3].text"), (413, "too_large", None))),
        *(("recording", 503, code, None) for code in ("loading", "draining", "failed", "unavailable")),
        *((subject, 400, "invalid_media", "file") for subject in ("recording", "image", "text")),
        *((subject, 413, "too_large", "file") for subject in ("recording", "image", "text")),
        ("text", 400, "invalid_prompt", "input"),
    ]
    found = visit.page.evaluate(
        """async (shapes) => {
          const { ApiError, UnreachableError, errorInStream } = await import(new URL('web/api.js', document.baseURI));
          const { inPlainWords } = await import(new URL('web/errors.js', document.baseURI));
          const api = ([subject, status, code, param]) =>
            inPlainWords(new ApiError('libfoo: max_bar must be 3', { status, code, param, requestId: 'r1' }), subject);
          const others = [new UnreachableError(), new TypeError('x is undefined')];
          const inStream = errorInStream({ message: 'libfoo', type: 'server_error', param: null, code: 'failed' });
          const rest = [...others, inStream].map((error) => inPlainWords(error, 'recording'));
          return [...shapes.map(api), ...rest];
        }""",
        shapes,
    )
    for each in found:
        assert re.fullmatch(r"[A-Z“][^_.]+\.", each["message"]), each
        assert re.fullmatch(r"[A-Z][^_]+\.", each["advice"]), each
        assert "libfoo" not in each["message"] + each["advice"]
    assert [each["details"] for each in found[-3:]] == ["", "TypeError: x is undefined", "libfoo (status 500, failed)"]
    assert all("max_bar" in each["details"] for each in found[:-3])
    assert found[-1]["message"] == "The server failed on this recording."


def test_damage_and_the_reason_of_an_empty_text_are_told(visit, clip, tmp_path):
    cut, silent = tmp_path / "cut.wav", tmp_path / "silent.wav"
    soundfile.write(cut, soundfile.read(clip)[0], RATE)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    soundfile.write(silent, numpy.zeros(RATE), RATE)
    visit.transcribe(cut)
    warnings = visit.page.get_by_role("list", name="Warnings")
    expect(warnings.get_by_role("listitem")).to_have_text(re.compile(r"^The recording is damaged: truncated at \d"))
    visit.check_accessibility()
    visit.transcribe(silent)
    expect(warnings).to_be_hidden()
    expect(visit.page.locator("#reader-state")).to_contain_text(
        "No speech was found in this recording. The recording is silent"
    )
    visit.reload()
    visit.row(cut.name).locator(".row-open").click()
    expect(warnings).to_contain_text("truncated at")


def test_a_model_that_cannot_be_loaded_is_told_with_details_on_demand(visit_of, tiny_en_dir, tmp_path):
    server = PageServer(tmp_path, f"tiny.en={tiny_en_dir}", f"gone={tmp_path / 'gone'}")
    server.start("failed")
    try:
        visit = visit_of(server)
        banner = visit.page.locator("#banner")
        expect(banner.locator("p").first).to_have_text("The model gone could not be loaded.")
        expect(banner.locator(".technical")).to_be_hidden()
        banner.get_by_text("Details").click()
        expect(banner.locator(".technical")).to_contain_text(str(tmp_path / "gone"))
        visit.check_accessibility()
    finally:
        server.stop()


def test_a_full_list_says_so(visit, clip):
    visit.expected.append("RANGE_NOT_SATISFIABLE")  # Chromium may load the empty file that is shown into the player
    visit.page.evaluate("""() => {
      const transfer = new DataTransfer();
      for (let number = 0; number < 301; number += 1) transfer.items.add(new File([], `${number}.wav`));
      const input = document.getElementById('file-input');
      input.files = transfer.files;
      input.dispatchEvent(new Event('change'));
    }""")
    expect(visit.page.locator("#queue > li")).to_have_count(300)
    expect(visit.page.locator("#intake-message")).to_have_text(
        "The list holds 300 recordings. Remove some to add more."
    )


# --- downloads


def test_formats_are_one_menu_with_a_word_each(visit, clip):
    page = visit.page
    visit.transcribe(clip)
    button = page.get_by_role("button", name="Download", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    menu = page.get_by_role("menu", name="Download", exact=True)
    suffixes = ("txt", "srt", "vtt", "json", "tsv", "csv", "lrc", "ass", "ttml", "html")
    expected = [f"{word} {suffix}" for word, suffix in zip(WORDS, suffixes, strict=True)]
    expect(menu.get_by_role("menuitem")).to_have_text([*expected, "All of these zip"])
    visit.check_accessibility()
    pressed = []
    for key in ("ArrowDown", "End", "ArrowDown", "ArrowUp", "Home", "k", "s", "s"):
        page.keyboard.press(key)
        pressed.append(page.evaluate("document.activeElement.lastElementChild.textContent"))
    assert pressed == ["srt", "zip", "txt", "zip", "txt", "ass", "srt", "csv"]
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    assert visit.focused() == "download"
    button.click()
    page.locator("#reader-title").click()
    expect(menu).to_be_hidden()


def test_all_transcripts_come_in_one_archive(visit, clip, broken, tmp_path):
    visit.expected.append("status of 400")
    names = ["Grüße, 日本.flac", "grüße, 日本.wav", "Vol. 2"]
    files = [tmp_path / name for name in names]
    for file in files:
        file.write_bytes(clip.read_bytes())
    button = visit.page.get_by_role("button", name="Download all", exact=True)
    visit.add(broken)
    visit.expect_state(broken.name, "^Failed")
    expect(button).to_be_disabled()
    visit.add(*files)
    for name in names:
        visit.expect_state(name, "^Done")
    said = visit.said.first.inner_text()
    with zipfile.ZipFile(visit.downloaded("Download all", "txt")) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["Grüße, 日本.txt", "grüße, 日本 (2).txt", "Vol. 2.txt"]
        assert [archive.read(name).decode() for name in archive.namelist()] == [f"{said}\n"] * 3
    with zipfile.ZipFile(visit.downloaded("Download all", "zip")) as archive:
        assert len(archive.namelist()) == len(WORDS) * 3
    with zipfile.ZipFile(visit.downloaded("Download", "zip")) as archive:
        assert archive.namelist()[1:3] == ["Grüße, 日本.srt", "Grüße, 日本.vtt"]
        assert archive.read("Grüße, 日本.srt").decode() == visit.download("srt")


def test_subtitles_have_the_style_that_is_chosen(visit, clip, tmp_path):
    page, timed = visit.page, tmp_path / "timed.flac"
    timed.write_bytes(clip.read_bytes())
    page.get_by_text("More options").click()
    page.get_by_label("Times of words").uncheck()
    visit.transcribe(clip)
    page.get_by_label("Style of subtitles").select_option("bbc")
    page.get_by_role("button", name="Download", exact=True).click()
    page.get_by_role("menuitem", name=re.compile(r"\bsrt$")).click()
    expect(page.locator("#download-message")).to_contain_text("needs the times of words")
    assert visit.download("txt")
    page.get_by_label("Times of words").check()
    visit.transcribe(timed)
    styled = visit.download("srt")
    assert max(map(len, styled.split("\n"))) <= 37
    assert "begin=" in visit.download("ttml")
    visit.check_accessibility()
    page.get_by_label("Style of subtitles").select_option("plain")
    assert visit.download("srt").split() != styled.split()  # other times


def test_a_busy_server_writes_files_when_it_says_so(visit, clip):
    visit.expected.append("status of 429")
    visit.transcribe(clip)
    asked = []

    def busy_once(route):
        asked.append(route.request.post_data_json["format"])
        if len(asked) > 1:
            route.continue_()
            return
        error = {"message": "too many", "type": "rate_limit_error", "param": None, "code": "too_many_uploads"}
        route.fulfill(status=429, json={"error": error}, headers={"Retry-After": "1"})

    visit.page.route("**/v1/format", busy_once)
    button = visit.page.get_by_role("button", name="Download", exact=True)
    button.click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("menuitem", name=re.compile(r"\bsrt$")).click()
        expect(visit.page.locator("#download-message")).to_have_text("The server is busy; trying again in 1 s")
    assert download.value.suggested_filename == f"{clip.stem}.srt"
    expect(visit.page.locator("#download-message")).to_be_hidden()
    assert asked == ["srt", "srt"]


def test_an_archive_is_one_that_python_reads(visit):
    names = ["a.txt", "A.TXT", "a.txt", "../up/é.srt", "e\u0301.srt", "é.srt", ".hidden", "", "x" * 300, "CON?.txt"]
    texts = [f"{name} 😀\r\n" * 3 for name in names]
    unique, data = visit.page.evaluate(
        """async ([names, texts]) => {
          const { uniqueNames, zipOf } = await import(new URL('web/zip.js', document.baseURI));
          const [unique, date] = [uniqueNames(names), new Date(2024, 1, 29, 13, 5, 8)];
          const files = unique.map((name, index) => ({ name, data: new TextEncoder().encode(texts[index]) }));
          const blob = zipOf(files, date);
          return [unique, [...new Uint8Array(await blob.arrayBuffer())]];
        }""",
        [names, texts],
    )
    assert unique[:5] == ["a.txt", "A (2).TXT", "a (3).txt", "__up_é.srt", "e\u0301.srt"]
    assert unique[5:8] == ["é (2).srt", "_hidden", "_"]
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == unique
        assert [archive.read(name).decode() for name in unique] == texts
        assert {each.date_time for each in archive.infolist()} == {(2024, 2, 29, 13, 5, 8)}
