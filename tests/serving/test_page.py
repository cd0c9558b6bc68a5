"""The page of ``transept serve`` in headless Chromium, against the real server with tiny.en and a small BART.

Its texts are compared with those of ``transept.Transcriber`` for the same files. At the end of every test the
browser's console must be free of errors, such as violations of the content security policy.
"""

import io
import json
import re
import shutil
import signal
import urllib.request
from itertools import groupby
from pathlib import Path

import httpx
import numpy
import pytest
import soundfile
from page_visit import CHROMIUM, PATIENCE, PHONE, SHORT_PATIENCE, SPOKEN, PageServer, Visit
from patience import wait_until
from playwright.sync_api import expect
from plugin_folder import DIARIZER, environment, install, installed_module
from random_seamless import save_seamless
from speech.recordings import RATE, joined
from speech.recordings import clip as samples_of
from transformers import SeamlessM4TConfig, SeamlessM4TForSpeechToText

import transept
from transept.speech.output.writers import FORMATS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

KEY = "key-of-the-tests"
SEAMLESS = Path(__file__).parents[2] / "examples" / "transept-seamless"
OVERLAP = RATE  # samples: a second


@pytest.fixture(scope="module")
def diarizer_folder(tmp_path_factory):
    """The folder of a plugin that finds two speakers in every recording, or as many as the request asks for."""
    with installed_module("halves", DIARIZER, tmp_path_factory.mktemp("diarizer")) as site:
        yield site


@pytest.fixture(scope="module")
def page_server(tiny_en_dir, bart_dir, diarizer_folder, tmp_path_factory):
    models = f"tiny.en={tiny_en_dir}", f"bart={bart_dir}"
    server = PageServer(tmp_path_factory.mktemp("page"), *models, environment=environment(diarizer_folder)).start()
    yield server
    server.stop()


@pytest.fixture
def seamless_server(tmp_path):
    """With a model that writes four languages, by its plugin in examples."""
    source = shutil.copytree(SEAMLESS, tmp_path / "source")  # building writes beside the sources
    install(source, tmp_path / "site")
    (tmp_path / "seamless").mkdir()
    model = save_seamless(tmp_path / "seamless", SeamlessM4TConfig, SeamlessM4TForSpeechToText)
    found = environment(tmp_path / "site")
    server = PageServer(tmp_path / "served", f"seamless={model}", environment=found).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def own_server(tiny_en_dir, tmp_path_factory):
    """One that a test may stop if it starts it again. It has no diarizer."""
    without = {"TRANSEPT_DISABLE_PLUGINS": "speakers"}
    server = PageServer(tmp_path_factory.mktemp("own"), f"tiny.en={tiny_en_dir}", environment=without).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def locked_server(tiny_en_dir, tmp_path_factory):
    server = PageServer(tmp_path_factory.mktemp("locked"), f"tiny.en={tiny_en_dir}", "--api-key", KEY).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def long_recording(speech_dir, tmp_path_factory) -> Path:
    """The clips one after the other, twice: about 50 seconds, two windows of the model."""
    file = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(file, numpy.tile(joined(speech_dir / "librivox"), 2), RATE)
    return file


@pytest.fixture(scope="module")
def one_window(speech_dir, tmp_path_factory) -> Path:
    """The clips one after the other: about 25 seconds."""
    file = tmp_path_factory.mktemp("window") / "window.wav"
    soundfile.write(file, joined(speech_dir / "librivox"), RATE)
    return file


@pytest.fixture(scope="module")
def hours(speech_dir, tmp_path_factory) -> Path:
    """A recording that is not done soon."""
    file = tmp_path_factory.mktemp("hours") / "hours.flac"
    soundfile.write(file, numpy.tile(joined(speech_dir / "librivox"), 60), RATE)
    return file


@pytest.fixture(scope="module")
def call(speech_dir, tmp_path_factory) -> Path:
    """A reader on the left and a voice of telephone prompts on the right, who begin before the other has ended."""
    turns = ("librivox/austen-0880", "prompts-en/demo-abouttotry", "librivox/austen-0930")
    sounds = [samples_of(speech_dir / f"{name}.flac") for name in turns]
    both = numpy.zeros((sum(map(len, sounds)), 2), numpy.float32)
    begin = 0
    for index, sound in enumerate(sounds):
        both[begin : begin + len(sound), index % 2] += sound
        begin += len(sound) - OVERLAP
    file = tmp_path_factory.mktemp("call") / "call.flac"
    soundfile.write(file, both[: begin + OVERLAP], RATE)
    return file


@pytest.fixture(scope="module")
def reference(tiny_en_dir, diarizer_folder):
    """What the same files give without a server, with the times of words."""
    transcriber = transept.Transcriber(tiny_en_dir)
    made: dict[tuple[Path, str], transept.Transcript] = {}

    def transcript(file: Path, **options) -> transept.Transcript:
        key = file, repr(options)
        if key not in made:
            made[key] = transcriber.transcribe(file, word_timestamps=True, **options)
        return made[key]

    return transcript


# --- transcribing


def test_a_recording_is_transcribed(visit, clip, reference):
    expect(visit.page.get_by_role("button", name="Choose files")).to_be_visible()
    visit.transcribe(clip)
    assert visit.said.all_inner_texts() == [segment.text.strip() for segment in reference(clip).segments]
    expect(visit.page.locator("#reader-title")).to_have_text(clip.name)
    expect(visit.row(clip.name).locator("progress")).to_be_hidden()


def test_dropped_recordings_are_transcribed(visit, clip, speech_dir):
    other = speech_dir / "librivox" / "austen-0880.flac"
    transfer = visit.page.evaluate_handle(
        """(files) => {
          const transfer = new DataTransfer();
          for (const [name, bytes] of files) transfer.items.add(new File([new Uint8Array(bytes)], name));
          return transfer;
        }""",
        [[file.name, list(file.read_bytes())] for file in (clip, other)],
    )
    for event in ("dragenter", "dragover", "drop"):
        visit.page.dispatch_event("main", event, {"dataTransfer": transfer})
    for file in (clip, other):
        visit.expect_state(file.name, "^Done")
    expect(visit.page.locator("#drop-veil")).to_be_hidden()


# Requests whose answers arrive one event at a time, each in a task of its own, as from a server that is slower than
# the browser. A busy machine would else show several at once.
EVENT_BY_EVENT = """() => {
  window.XMLHttpRequest = class extends XMLHttpRequest {
    #listeners = { progress: [], load: [] };
    #shown = 0;
    #loaded = null;
    get responseText() {
      return super.responseText.slice(0, this.#shown);
    }
    addEventListener(type, listener) {
      if (this.#listeners[type]) this.#listeners[type].push(listener);
      else super.addEventListener(type, listener);
    }
    send(body) {
      super.addEventListener('load', (event) => (this.#loaded = event));
      const step = () => {
        const text = super.responseText, end = text.indexOf('\\n\\n', this.#shown);
        if (this.status === 200 && end >= 0) {
          this.#shown = end + 2;
          this.#listeners.progress.forEach((listener) => listener());
        } else if (this.#loaded) {
          this.#shown = text.length;
          this.#listeners.load.forEach((listener) => listener(this.#loaded));
          return;
        }
        setTimeout(step, 5);
      };
      super.send(body);
      step();
    }
  };
}"""


def test_progress_is_shown_and_the_transcript_grows(visit, long_recording, reference):
    visit.page.evaluate(EVENT_BY_EVENT)
    visit.page.evaluate(
        """() => {
          window.seen = { states: [], lengths: [], bars: [] };
          new MutationObserver(() => {
            const note = (list, value) => list.at(-1) === value || list.push(value);
            note(seen.states, document.querySelector('.row-state')?.textContent);
            note(seen.bars, document.querySelector('.row-bar')?.value);
            note(seen.lengths, document.querySelectorAll('.said').length);
          }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
        }"""
    )
    visit.transcribe(long_recording)
    seen = visit.page.evaluate("seen")
    percents = [
        int(found[1]) for state in seen["states"] if (found := re.search(r"Transcribing · (\d+) %", state or ""))
    ]
    assert len(set(percents)) > 1
    assert percents == sorted(percents)
    assert seen["lengths"] == sorted(seen["lengths"])
    assert len({length for length in seen["lengths"] if length}) > 1
    assert visit.said.all_inner_texts() == [segment.text.strip() for segment in reference(long_recording).segments]
    expect(visit.page.locator("#announcer")).to_contain_text(f"{long_recording.name} is done")


def test_a_broken_file_says_so_and_the_others_go_on(visit, broken, clip):
    visit.expected.append("status of 400")
    visit.add(broken, clip)
    visit.expect_state(clip.name, "^Done")
    visit.expect_state(broken.name, "^Failed: .{10,}")
    expect(visit.page.get_by_role("button", name=f"Try {broken.name} again")).to_be_visible()
    visit.page.get_by_role("button", name=f"Remove {broken.name}").click()
    expect(visit.row(broken.name)).to_have_count(0)
    assert visit.page.evaluate("document.activeElement.textContent").startswith(clip.name)


@pytest.mark.slow
def test_what_runs_can_be_cancelled_and_begun_again(visit, hours, clip):
    visit.add(hours)
    visit.expect_state(hours.name, "^Transcribing · [1-9]")
    visit.page.get_by_role("button", name=f"Cancel {hours.name}").click()
    visit.expect_state(hours.name, "^Cancelled")
    visit.page.get_by_role("button", name=f"Try {hours.name} again").click()
    visit.expect_state(hours.name, "^Transcribing")
    visit.transcribe(clip)  # beside it
    visit.page.get_by_role("button", name=f"Cancel {hours.name}").click()
    visit.expect_state(hours.name, "^Cancelled")


def test_a_busy_server_is_asked_again_when_it_says_so(visit, clip):
    visit.expected.append("status of 429")
    answers = []

    def busy_once(route):
        answers.append(route.request.url)
        if len(answers) > 1:
            route.continue_()
            return
        error = {"message": "too many wait", "type": "rate_limit_error", "param": None, "code": None}
        route.fulfill(status=429, json={"error": error}, headers={"Retry-After": "1"})

    visit.page.route("**/v1/audio/transcriptions", busy_once)
    visit.add(clip)
    visit.expect_state(clip.name, "^The server is busy; trying again in 1 s$")
    visit.expect_state(clip.name, "^Done")
    assert len(answers) == 2


def test_at_most_two_are_sent_at_once(visit, clip, tmp_path):
    files = [shutil.copy(clip, tmp_path / f"{number}.flac") for number in range(5)]
    open_now, most = set(), []

    def begin(request):
        if request.method == "POST":
            open_now.add(request)
            most.append(len(open_now))

    visit.page.on("request", begin)
    for event in ("requestfinished", "requestfailed"):
        visit.page.on(event, lambda request: open_now.discard(request))
    visit.add(*files)
    for file in files:
        visit.expect_state(Path(file).name, "^Done")
    assert max(most) == 2


@pytest.mark.slow
def test_the_microphone_is_recorded(visit):
    page = visit.page
    page.get_by_role("button", name="Record", exact=True).click()
    expect(page.locator("#recorder-time")).not_to_have_text("0:00")
    assert page.locator("#recorder-level").evaluate("meter => meter.value") >= 0
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#recorder-state")).to_have_text("Paused")
    page.evaluate(
        """() => {
          const time = document.getElementById('recorder-time'), level = document.getElementById('recorder-level');
          let shown = '';
          window.still = 0;  // messages from the microphone, eight a second, since the time changed
          new MutationObserver((messages) => {
            still = time.textContent === shown ? still + messages.length : 0;
            shown = time.textContent;
          }).observe(level, { attributes: true });
        }"""
    )
    wait_until(lambda: page.evaluate("still") > 12, page.locator("#recorder").inner_text, seconds=SHORT_PATIENCE)
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Stop and transcribe").click()
    visit.expect_state("Recording ", "^(Done|Failed)")
    recorded = page.evaluate(
        """() => new Promise((resolve) => {
          indexedDB.open('transept').onsuccess = ({ target }) => {
            const all = target.result.transaction('files').objectStore('files').getAll();
            all.onsuccess = async () => resolve([...new Uint8Array(await all.result[0].arrayBuffer())]);
          };
        })"""
    )
    samples, rate = soundfile.read(io.BytesIO(bytes(recorded)), dtype="int16")
    assert samples.ndim == 1
    assert rate == 16000
    assert len(samples) > rate // 2
    assert numpy.abs(samples).max() > 1000  # Chromium's stand-in for a microphone beeps


# --- listening


def test_words_can_be_clicked_and_are_highlighted(visit, clip, reference):
    visit.transcribe(clip)
    words = reference(clip).segments[0].words
    for word in (words[3], words[-1], words[1]):
        visit.page.mouse.click(*visit.word_box(0, word.word.strip()))
        assert visit.position() == pytest.approx(word.start, abs=0.02)
        visit.page.wait_for_function("() => CSS.highlights.get('spoken').size === 1")
        assert visit.spoken() == word.word.strip()
    assert visit.page.locator(".segment[aria-current]").count() == 1


def test_playback_follows_the_words(visit, clip, reference):
    visit.transcribe(clip)
    visit.page.select_option("#speed", "2")
    words = [word.word.strip() for segment in reference(clip).segments for word in segment.words]
    visit.page.evaluate(
        """() => {
          window.heard = [[]];  // of each time that the recording is played
          const look = () => {
            const word = SPOKEN();
            if (word && heard.at(-1).at(-1) !== word) heard.at(-1).push(word);
            requestAnimationFrame(look);
          };
          look();
          const audio = document.getElementById('audio');
          audio.addEventListener('ended', () => setTimeout(() => {  // a busy machine shows few frames: once more
            heard.push([]);
            audio.play();
          }));
        }""".replace("SPOKEN", f"({SPOKEN})")
    )
    visit.page.get_by_role("button", name="Play", exact=True).click()

    def heard() -> list[list[str]]:
        return visit.page.evaluate("heard")

    most = len(set(words)) // 2
    wait_until(lambda: len({word for each in heard() for word in each}) > most, heard, seconds=SHORT_PATIENCE)
    wait_until(lambda: len(heard()) > 1, visit.position, seconds=SHORT_PATIENCE)  # it plays to its end
    rest = iter(words)
    assert all(word in rest for word in heard()[0])  # in their order
    assert visit.page.evaluate("document.getElementById('audio').playbackRate") == 2


@pytest.mark.slow
def test_keys_play_skip_and_rewind(visit, one_window):
    visit.transcribe(one_window)
    page = visit.page
    page.locator("#reader-title").focus()
    page.wait_for_function("() => document.getElementById('audio').readyState > 0")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert visit.position() == pytest.approx(10, abs=0.1)
    page.keyboard.press("Space")
    page.wait_for_function("() => document.getElementById('audio').currentTime > 10.3")  # though Chromium may stall
    page.keyboard.press("Space")
    stopped_at = visit.position()
    page.evaluate("document.getElementById('audio').addEventListener('play', () => (window.began = audio.currentTime))")
    page.keyboard.press("Space")
    page.wait_for_function("() => window.began !== undefined")
    assert page.evaluate("window.began") == pytest.approx(stopped_at - 2, abs=0.2)
    page.keyboard.press("Space")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Help")).to_be_hidden()


def test_the_waveform_is_drawn_and_seeks(visit, one_window):
    visit.transcribe(one_window)
    wave = visit.page.locator("#wave")
    expect(wave).not_to_have_class(re.compile("plain"))
    box = wave.bounding_box()
    visit.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    duration = soundfile.info(one_window).duration
    assert visit.position() == pytest.approx(duration / 2, rel=0.02)
    expect(wave).to_have_attribute("aria-valuenow", re.compile(rf"^{round(duration / 2)}|{int(duration / 2)}$"))
    drawn = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
    assert visit.page.locator("#wave-canvas").evaluate(drawn) > 3


# --- editing


def test_edits_keep_times_can_be_undone_and_survive_a_reload(visit, clip, reference):
    visit.transcribe(clip)
    page, [first, *_] = visit.page, reference(clip).segments
    before = first.text.strip()
    visit.edit()
    visit.said.first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Control+End")
    page.keyboard.type(" And more")
    assert visit.said.first.inner_text() == f"{before} And more"
    page.keyboard.press("Control+z")
    expect(visit.said.first).to_have_text(before)
    page.keyboard.press("Control+Shift+z")
    expect(visit.said.first).to_have_text(f"{before} And more")
    page.keyboard.press("Enter")  # segments stay
    assert visit.said.count() == len(reference(clip).segments)

    exported = json.loads(visit.download("json"))["segments"][0]
    assert (exported["start"], exported["end"]) == (first.start, first.end)
    kept = [(word.word, word.start, word.end) for word in first.words]
    assert [(word["word"], word["start"], word["end"]) for word in exported["words"]][: len(kept)] == kept
    assert visit.download("txt").startswith(f"{before} And more\n")

    page.wait_for_function(f"() => ({KEPT_ITEMS})().then((items) => items.some((item) => item.edits[0]))")
    visit.reload()
    expect(visit.said.first).to_have_text(f"{before} And more")
    assert visit.download("txt").startswith(f"{before} And more\n")


KEPT_ITEMS = """() => new Promise((resolve) => {
  indexedDB.open('transept').onsuccess = ({ target }) => {
    const all = target.result.transaction('items').objectStore('items').getAll();
    all.onsuccess = () => resolve(all.result);
  };
})"""


def test_pasted_text_stays_on_one_line_without_markup(visit, clip):
    visit.transcribe(clip)
    visit.edit()
    visit.said.first.focus()
    visit.page.evaluate(
        """() => {
          const text = document.querySelector('.said');
          getSelection().collapse(text.firstChild, 0);
          const data = new DataTransfer();
          data.setData('text/plain', 'two\\nlines <b>bold</b> ');
          const init = { inputType: 'insertFromPaste', dataTransfer: data, bubbles: true, cancelable: true };
          text.dispatchEvent(new InputEvent('beforeinput', init));
        }"""
    )
    expect(visit.said.first).to_have_text(re.compile("^two lines <b>bold</b> "))
    assert visit.said.first.evaluate("text => text.childNodes.length") == 1


def test_find_and_replace(visit, clip, reference):
    visit.transcribe(clip)
    texts = [segment.text.strip() for segment in reference(clip).segments]
    number = sum(text.lower().count("a") for text in texts)
    page = visit.page
    page.locator("#reader-title").focus()
    page.keyboard.press("f")
    page.keyboard.type("a")
    expect(page.locator("#find-count")).to_have_text(f"1 of {number}")
    page.keyboard.press("Enter")
    expect(page.locator("#find-count")).to_have_text(f"2 of {number}")
    page.fill("#find-with", "@")
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(page.locator("#find-count")).to_have_text(f"2 of {number - 1}")
    page.get_by_role("button", name="Replace all").click()
    expect(page.locator("#find-count")).to_have_text(f"{number - 1} replaced")
    assert visit.said.all_inner_texts() == [re.sub("a", "@", text, flags=re.IGNORECASE) for text in texts]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").click()
    assert visit.said.all_inner_texts() == texts


# --- speakers


def test_channels_are_speakers(visit, call, reference, tmp_path):
    visit.expected.append("status of 400")
    page = visit.page
    page.locator("summary", has_text="More options").click()
    expect(page.get_by_label("Tell speakers apart")).to_be_visible()
    page.get_by_label("Channels").select_option("Each is a speaker")
    expect(page.get_by_label("Tell speakers apart")).to_be_hidden()
    soundfile.write(tmp_path / "alike.flac", numpy.zeros((RATE, 2)) + 0.1, RATE)
    visit.add(tmp_path / "alike.flac")
    visit.expect_state("alike.flac", "^Failed: The channels are not what you chose")

    visit.transcribe(call)
    expected = reference(call, channel="each")
    turns = [speaker for speaker, _ in groupby(each.speaker for each in expected.segments)]
    assert turns == ["left", "right", "left"]
    assert visit.turns == turns
    assert visit.said.all_inner_texts() == [each.text.strip() for each in expected.segments]
    visit.check_accessibility()
    for name in FORMATS.keys() - {"json"}:  # which has probabilities: they depend on what shares the batch
        assert visit.download(name) == written(expected, tmp_path / f"expected.{name}"), name
    downloaded = json.loads(visit.download("json"))["segments"]
    assert [each["speaker"] for each in downloaded] == [each.speaker for each in expected.segments]

    word = expected.segments[1].words[0]
    beside = next(each for each in reversed(expected.segments[0].words) if each.start <= word.start)
    page.mouse.click(*visit.word_box(1, word.word.strip()))
    page.wait_for_function("() => CSS.highlights.get('spoken').size === 2")  # both talk at that time
    marked = "[...CSS.highlights.get('spoken')].map((r) => r.startContainer.data.slice(r.startOffset, r.endOffset))"
    assert page.evaluate(marked) == [beside.word.strip(), word.word.strip()]
    loud_in_the_middle = "item.peaks?.slice(500, 700).some((peak) => peak > 100)"  # where the right one speaks alone
    page.wait_for_function(f"() => ({KEPT_ITEMS})().then((items) => items.some((item) => {loud_in_the_middle}))")
    visit.edit()
    page.get_by_role("textbox", name="left, text at 0:00").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("Edited: ")
    page.wait_for_function(f"() => ({KEPT_ITEMS})().then((items) => items.some((item) => item.edits[0]))")
    visit.reload()
    assert visit.turns == turns
    assert visit.download("txt").startswith("left: Edited: ")
    page.locator("summary", has_text="More options").click()
    expect(page.get_by_label("Channels")).to_have_value("each")


def test_all_segments_of_a_time_are_found_where_speakers_talk_at_once(visit):
    spoken = visit.page.evaluate(
        """async () => {
          const { Transcript } = await import(new URL('web/transcript.js', document.baseURI));
          const times = [[0, 9], [1, 2], [3, 5], [12, 13]];
          const segments = times.map(([start, end]) => ({ start, end, text: ' a' }));
          const transcript = new Transcript({ segments, edits: {} });
          return [-1, 0.5, 1.5, 2.5, 4, 9, 12.5, 99].map((seconds) => transcript.segmentsAt(seconds));
        }"""
    )
    assert spoken == [[], [0], [0, 1], [0], [0, 2], [], [3], []]


@pytest.mark.slow
def test_the_text_is_written_in_the_language_that_is_chosen(visit_of, seamless_server, clip):
    said = {}
    for code, name in (("fra", "French"), ("deu", "German")):
        visit = visit_of(seamless_server)
        target = visit.page.get_by_label("Write in")
        expect(target.locator("option")).to_have_text(
            ["What is spoken", "English", "French", "German", "Traditional Chinese"]
        )
        expect(visit.page.locator("#language option").first).to_have_text("Not said")
        expect(visit.page.get_by_label("Translate to English")).to_be_hidden()
        target.select_option(name)
        visit.reload()
        expect(target).to_have_value(code)
        visit.transcribe(clip)
        expect(visit.page.locator("#reader-about")).to_contain_text(f"translated to {name}")
        fields = {"model": "seamless", "target_language": code}
        with clip.open("rb") as file:
            url = f"{seamless_server.url}v1/audio/transcriptions"
            answer = httpx.post(url, data=fields, files={"file": file}, timeout=PATIENCE)
        said[code] = " ".join(visit.said.all_inner_texts())
        assert said[code] == answer.json()["text"] != ""
    assert said["fra"] != said["deu"]


@pytest.mark.slow
def test_speakers_are_told_apart_where_a_diarizer_is_installed(
    visit_of, page_server, own_server, clip, reference, tmp_path
):
    visit = visit_of(page_server)
    visit.page.locator("summary", has_text="More options").click()
    visit.page.get_by_label("Tell speakers apart").check()
    visit.transcribe(clip)
    expected = reference(clip, diarize=True)
    assert visit.turns == ["speaker 1", "speaker 2"]
    assert visit.said.all_inner_texts() == [each.text.strip() for each in expected.segments]
    visit.page.get_by_label("Number of speakers").fill("1")
    visit.transcribe(Path(shutil.copy(clip, tmp_path / "again.flac")))
    assert visit.turns == ["speaker 1"]

    without = visit_of(own_server)
    without.page.locator("summary", has_text="More options").click()
    expect(without.page.get_by_label("Channels")).to_be_visible()
    expect(without.page.get_by_label("Tell speakers apart")).to_be_hidden()


# --- files


def test_downloads_are_what_the_command_line_writes(visit, long_recording, reference, tmp_path):
    visit.transcribe(long_recording)
    for name in FORMATS:
        expected = written(reference(long_recording), tmp_path / f"expected.{name}")
        downloaded = visit.download(name)
        if name == "json":  # of what the stream says of a segment
            fields = json.loads(downloaded)["segments"][0].keys()
            assert fields >= {"id", "start", "end", "text", "temperature", "avg_logprob", "no_speech_prob", "words"}
            whole = json.loads(expected)
            whole["segments"] = [
                {field: each[field] for field in each if field in fields} for each in whole["segments"]
            ]
            expected = json.dumps(whole)
        assert downloaded == expected, name


def written(transcript: transept.Transcript, file: Path) -> str:
    """What the command line writes."""
    transcript.write(file)
    return file.read_bytes().decode()


def test_a_recording_is_transcribed_again_with_other_options(visit, clip, reference):
    visit.transcribe(clip)
    visit.edit()
    visit.said.first.focus()
    visit.page.keyboard.type("Edited ")
    visit.page.locator("summary", has_text="More options").click()
    visit.page.get_by_label("Times of words").uncheck()
    visit.page.get_by_role("button", name="Transcribe again").click()
    visit.page.get_by_role("button", name="Drop them").click()
    visit.expect_state(clip.name, "^Done")
    expect(visit.said.first).to_have_text(reference(clip).segments[0].text.strip())
    assert "words" not in json.loads(visit.download("json"))["segments"][0]


# --- the visit after


def test_all_is_there_after_a_reload_and_can_be_deleted(visit, clip, speech_dir, reference):
    other = speech_dir / "librivox" / "austen-0880.flac"
    visit.transcribe(clip)
    visit.transcribe(other)
    visit.page.locator("summary", has_text="More options").click()
    visit.page.get_by_label("Times of words").uncheck()
    visit.reload()
    visit.expect_state(clip.name, "^Done")
    visit.row(clip.name).locator(".row-open").click()
    assert visit.said.all_inner_texts() == [segment.text.strip() for segment in reference(clip).segments]
    visit.page.wait_for_function("() => document.getElementById('audio').readyState > 0")  # the sound, too
    visit.page.locator("summary", has_text="More options").click()
    expect(visit.page.get_by_label("Times of words")).not_to_be_checked()

    visit.page.get_by_role("button", name=f"Remove {clip.name}").click()
    visit.page.get_by_role("button", name="Delete", exact=True).click()
    expect(visit.row(clip.name)).to_have_count(0)
    visit.page.get_by_role("button", name="Delete all").click()
    visit.page.get_by_role("button", name="Delete", exact=True).click()
    expect(visit.page.locator("#list")).to_be_hidden()
    visit.reload()
    expect(visit.page.locator("#list")).to_be_hidden()
    expect(visit.page.locator("#reader")).to_be_hidden()


@pytest.mark.slow
def test_what_was_under_way_is_offered_again_after_a_reload(visit, long_recording, clip, hours, tmp_path):
    more_hours = shutil.copy(hours, tmp_path / "more.flac")
    visit.add(hours, more_hours, long_recording, clip)  # two are under way at once, so the last two wait
    visit.expect_state(hours.name, "^Transcribing")
    visit.reload()
    for file in (hours, more_hours, long_recording, clip):
        visit.expect_state(file.name, "^Stopped when the page was reloaded")
    for file in (hours, more_hours):
        visit.page.get_by_role("button", name=f"Remove {file.name}").click()
        if visit.page.get_by_role("button", name="Delete", exact=True).is_visible():
            visit.page.get_by_role("button", name="Delete", exact=True).click()
    visit.page.get_by_role("button", name="Continue").click()
    for file in (long_recording, clip):
        visit.expect_state(file.name, "^Done")


@pytest.mark.slow
def test_two_windows_share_what_is_kept(visit, hours, clip):
    visit.transcribe(clip)
    visit.add(hours)
    visit.expect_state(hours.name, "^Transcribing")
    other = Visit(visit.page.context.new_page(), visit.server).open()
    other.expect_state(hours.name, "^Running in another window")
    visit.page.get_by_role("button", name=f"Cancel {hours.name}").click()
    other.expect_state(hours.name, "^Cancelled")
    for each in (visit, other):
        each.row(clip.name).locator(".row-open").click()
    visit.edit()
    visit.said.first.focus()
    visit.page.keyboard.type("Edited ")
    expect(other.said.first).to_have_text(re.compile("^Edited "))
    other.page.get_by_role("button", name=f"Remove {clip.name}").click()
    other.page.get_by_role("button", name="Delete", exact=True).click()
    expect(visit.row(clip.name)).to_have_count(0)
    assert not other.unexpected()


# --- the key


def test_the_key_is_asked_for(visit_of, locked_server, clip):
    visit = visit_of(locked_server)
    visit.expected.append("status of 401")
    page = visit.page
    dialog = page.get_by_role("dialog", name="This server needs a key")
    expect(dialog).to_be_visible()
    assert visit.focused() == "key-input"
    page.keyboard.type("not the key")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("This key is not valid. Check it and try again.")
    page.get_by_label("Key", exact=True).fill(KEY)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    visit.transcribe(clip)
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    visit.reload()
    expect(dialog).to_be_hidden()
    visit.expect_state(clip.name, "^Done")


def test_a_key_can_be_remembered_put_off_and_forgotten(visit_of, locked_server):
    visit = visit_of(locked_server)
    visit.expected.append("status of 401")
    page = visit.page
    dialog = page.get_by_role("dialog", name="This server needs a key")
    dialog.get_by_role("button", name="Not now").click()
    page.get_by_role("button", name="Enter the key").click()
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_label("Remember it").check()
    page.get_by_role("button", name="Use this key").click()
    expect(dialog).to_be_hidden()
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 1]
    page.locator("summary", has_text="More options").click()
    page.get_by_role("button", name="Forget the key").click()
    expect(dialog).to_be_visible()
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]


# --- a server that goes away


def test_a_dead_server_is_waited_for(own_server, visit_of, clip):
    visit = visit_of(own_server)
    visit.expected.append("ERR_")
    own_server.stop()
    visit.add(clip)
    expect(visit.page.get_by_role("status").filter(has_text="The server does not answer")).to_be_visible()
    visit.expect_state(clip.name, "^Waiting for the server to come back")
    visit.page.get_by_role("button", name="Try now").click()
    own_server.start()
    visit.expect_state(clip.name, "^Done")
    expect(visit.page.locator("#banner")).to_be_hidden()


@pytest.mark.slow
def test_downloads_wait_for_a_server_that_is_gone(own_server, visit_of, clip):
    visit = visit_of(own_server)
    visit.expected.append("ERR_")
    visit.transcribe(clip)
    visit.edit()
    visit.said.first.focus()
    visit.page.keyboard.type("Edited ")
    own_server.stop()
    gone = "The server, which writes the files, does not answer. Nothing is lost: download again when it is back."
    for menu in ("Download", "Download all"):
        message = visit.page.locator(f"#{menu.lower().replace(' ', '-')}-message")
        expect(message).to_be_hidden()
        visit.page.get_by_role("button", name=menu, exact=True).click()
        visit.page.get_by_role("menuitem", name=re.compile(r"\bsrt$")).click()
        expect(message).to_have_text(gone)
    visit.check_accessibility()
    expect(visit.said.first).to_have_text(re.compile("^Edited "))  # and reading goes on
    own_server.start()
    expect(visit.page.locator("#banner")).to_be_hidden()
    assert "Edited " in visit.download("srt")
    expect(visit.page.locator("#download-message")).to_be_hidden()
    visit.downloaded("Download all", "srt")
    expect(visit.page.locator("#download-all-message")).to_be_hidden()


@pytest.mark.slow
def test_what_had_come_is_kept_when_the_server_dies(own_server, visit_of, hours):
    visit = visit_of(own_server)
    visit.expected.append("ERR_")
    visit.add(hours)
    visit.page.wait_for_function("() => document.querySelectorAll('.said').length > 2")
    own_server.stop(signal.SIGKILL)
    visit.expect_state(hours.name, "^Failed: The connection to the server broke off")
    expect(visit.page.locator("#reader-state")).to_contain_text("The text so far is kept.")
    assert visit.said.count() > 2
    expect(visit.page.locator("#banner")).to_be_visible()
    own_server.start()
    expect(visit.page.locator("#banner")).to_be_hidden()
    visit.page.get_by_role("button", name="Try again").click()
    visit.expect_state(hours.name, "^Transcribing")


# --- text


def test_a_transcript_is_summarized(visit, clip, reference, bart_dir):
    visit.transcribe(clip)
    visit.page.get_by_role("button", name="Summarize or translate").click()
    text = visit.page.get_by_label("Your text")
    expect(text).to_have_value(" ".join(segment.text.strip() for segment in reference(clip).segments))
    visit.page.get_by_role("button", name="Summarize", exact=True).click()
    expect(visit.page.locator("#text-about")).to_have_text(re.compile(r"\d words?$"))
    expected = transept.summarize(text.input_value(), model=bart_dir, chunk=True).text
    assert visit.page.locator("#text-output").inner_text().split() == expected.split()
    kept = """() => new Promise((resolve) => {
      indexedDB.open('transept').onsuccess = ({ target }) => {
        const setting = target.result.transaction('settings').objectStore('settings').get('text');
        setting.onsuccess = () => resolve(setting.result?.result?.text ?? '');
      };
    })"""
    wait_until(
        lambda: visit.page.evaluate(kept).split() == expected.split(), lambda: visit.page.evaluate(kept), SHORT_PATIENCE
    )
    visit.reload()
    assert visit.page.locator("#text-output").inner_text().split() == expected.split()


def test_a_server_without_text_models_says_so(own_server, visit_of):
    visit = visit_of(own_server)
    visit.page.get_by_role("tab", name="Text").click()
    expect(visit.page.locator("#text-none")).to_contain_text("no model that summarizes or translates")


# --- everybody


def test_all_works_by_keyboard(visit, clip, reference):
    page, choosers = visit.page, []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert visit.focused() == "choose-files"
    page.keyboard.press("Enter")
    for _ in range(PATIENCE // 50):
        if choosers:
            break
        page.wait_for_timeout(50)
    choosers[0].set_files(clip)
    visit.expect_state(clip.name, "^Done")
    reached = []
    while visit.focused() != "said" and len(reached) < 60:
        page.keyboard.press("Tab")
        reached.append(visit.focused())
        if reached[-1] == "editing":
            page.keyboard.press("Enter")
    assert {"row-open", "wave", "play", "speed", "download", "copy", "find-open", "editing", "said"} <= set(reached)
    page.keyboard.press("Control+Home")
    page.keyboard.type("So: ")
    expect(visit.said.first).to_have_text(f"So: {reference(clip).segments[0].text.strip()}")
    page.keyboard.press("Control+Enter")  # plays from the word at the cursor
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    assert visit.focused() == "play"
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.locator("#tab-transcribe").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-live")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-text")).to_be_visible()


def test_a_phone_is_wide_enough(visit_of, page_server, clip, broken):
    visit = visit_of(page_server, viewport=PHONE, has_touch=True, is_mobile=True)
    visit.expected.append("status of 400")
    page = visit.page

    def check_width() -> None:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    check_width()
    visit.add(broken)
    visit.expect_state(broken.name, "^Failed")
    visit.transcribe(clip)
    check_width()
    visit.row(clip.name).locator(".row-open").click()
    expect(page.locator("#reader-title")).to_be_in_viewport()
    expect(page.locator("#play")).to_be_in_viewport()
    page.locator("#find-open").click()
    check_width()
    page.get_by_role("tab", name="Text").click()
    check_width()
    page.get_by_role("button", name="Help").click()
    check_width()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"color_scheme": "dark", "viewport": PHONE},
        pytest.param({"color_scheme": "dark"}, marks=pytest.mark.slow),
        pytest.param({"viewport": PHONE}, marks=pytest.mark.slow),
    ],
    ids=["light", "dark phone", "dark", "phone"],
)
def test_axe_finds_nothing(visit_of, page_server, clip, broken, options):
    visit = visit_of(page_server, **options)
    visit.expected.append("status of 400")
    visit.check_accessibility()
    visit.page.locator("summary", has_text="More options").click()
    visit.check_accessibility()
    visit.add(broken)
    visit.expect_state(broken.name, "^Failed")
    visit.check_accessibility()
    visit.transcribe(clip)
    visit.page.locator("#find-open").click()
    visit.page.keyboard.type("a")
    visit.page.mouse.click(*visit.word_box(0, visit.said.first.inner_text().split()[1]))
    visit.check_accessibility()
    visit.page.get_by_role("tab", name="Text").click()
    visit.check_accessibility()
    visit.page.get_by_role("button", name="Help").click()
    visit.check_accessibility()


@pytest.mark.slow
def test_axe_finds_nothing_in_the_key_dialog(visit_of, locked_server):
    visit = visit_of(locked_server)
    visit.expected.append("status of 401")
    expect(visit.page.get_by_role("dialog")).to_be_visible()
    visit.check_accessibility()


def test_the_page_is_served_with_a_strict_policy(page_server):
    with urllib.request.urlopen(page_server.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
        page = answer.read().decode()
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"(href|src)=\"(?!web/|#)", page)  # nothing from elsewhere, and nothing absolute
    assert not re.search(r"<[^>]* (style|on\w+)=", page)
