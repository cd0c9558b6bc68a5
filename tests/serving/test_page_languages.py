"""Recordings in other languages, given to a model of one language on the page, with and without another beside it."""

import pytest
from page_visit import CHROMIUM, PageServer
from playwright.sync_api import expect

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

PLAIN = "tiny.en knows English only."
HEARD = """(number) => new Promise((resolve) => {
  indexedDB.open('transept').onsuccess = ({ target }) => {
    const all = target.result.transaction('items').objectStore('items').getAll();
    all.onsuccess = () => resolve(all.result.filter(({ heard }) => heard).length === number);
  };
})"""


@pytest.fixture(scope="module")
def page_server(tiny_en_dir, base_dir, tmp_path_factory):
    server = PageServer(tmp_path_factory.mktemp("page"), f"tiny.en={tiny_en_dir}", f"base={base_dir}").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def lone_server(tiny_en_dir, tmp_path_factory):
    """No model detects languages there."""
    server = PageServer(tmp_path_factory.mktemp("lone"), f"tiny.en={tiny_en_dir}").start()
    yield server
    server.stop()


def test_a_recording_in_another_language_gets_a_warning(visit, speech_dir):
    page = visit.page
    expect(page.locator("#model option")).to_have_text(["tiny.en (English only)", "base"])
    expect(page.locator("#model-note")).to_be_hidden()
    notice = page.locator("#language-notice")
    for number, (code, text) in enumerate({"en": PLAIN, "fr": "This sounds like French, and " + PLAIN}.items(), 1):
        file = speech_dir / "languages" / f"{code}.flac"
        visit.transcribe(file)
        expect(page.locator("#reader-title")).to_have_text(file.name)
        page.wait_for_function(HEARD, arg=number)
        expect(page.locator("#language-notice-text")).to_have_text(text)
        assert ("warning" in (notice.get_attribute("class") or "").split()) == (code == "fr")
        assert "English" not in visit.row(file.name).inner_text()
    visit.check_accessibility()
    page.get_by_role("button", name="Transcribe with base").click()
    visit.expect_state("fr.flac", "^Done .* French$")
    expect(visit.said.first).to_contain_text("Je suis désolé")
    expect(notice).to_be_hidden()


@pytest.mark.slow
def test_where_no_model_detects_languages_an_unsure_text_gets_a_warning(visit_of, lone_server, speech_dir):
    visit = visit_of(lone_server)
    page = visit.page
    expect(page.locator("#model-note")).to_have_text(PLAIN)
    visit.transcribe(speech_dir / "languages" / "en.flac")
    expect(page.locator("#language-notice-text")).to_have_text(PLAIN)
    visit.transcribe(speech_dir / "languages" / "es.flac")
    expect(page.locator("#language-notice-text")).to_have_text(
        "tiny.en knows English only, and was unsure of this text. Is another language spoken here?"
    )
    expect(page.get_by_role("button", name="Transcribe with")).to_be_hidden()


def test_what_is_said_of_languages(visit):
    segment = {"start": 0, "end": 9, "avg_logprob": -0.3}
    unsure, sure = [{**segment, "avg_logprob": -1.2}], [segment, {**segment, "start": 9, "end": 10, "avg_logprob": -2}]
    model = {"id": "one", "only_language": "en"}
    cases = [
        ({"state": "done", "segments": unsure}, {"id": "many", "only_language": None}),
        ({"state": "done", "segments": sure}, model),
        ({"state": "running", "segments": unsure}, model),
        ({"state": "done", "segments": unsure}, model),
        ({"state": "done", "segments": unsure, "heard": {"language": "en", "probability": 0.9}}, model),
        ({"state": "done", "segments": sure, "heard": {"language": "de", "probability": 0.9}}, model),
        ({"state": "done", "segments": sure, "heard": {"language": "de", "probability": 0.4}}, model),
        ({"state": "done", "segments": []}, model),
    ]
    found = visit.page.evaluate(
        """async (cases) => {
          const { languageNotice } = await import(new URL('web/words.js', document.baseURI));
          return cases.map(([item, model]) => languageNotice(item, model)?.isWarning ?? null);
        }""",
        cases,
    )
    assert found == [None, False, False, True, False, True, False, False]
