"""The page's tab for images, against a real server with a small checkpoint that reads printed numbers."""

import re
import zipfile
from pathlib import Path

import pytest
from multimodal.pdf_files import pdf_of
from page_visit import CHROMIUM, PHONE, PageServer
from playwright.sync_api import expect

from transept import VisionReader
from transept.multimodal.pdf import pdf_pages

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

PRINTED = Path(__file__).parents[1] / "data" / "printed"
MODEL = PRINTED / "trocr-numbers"
IMAGES = [PRINTED / "heldout" / f"{number:02}.png" for number in range(3)]


@pytest.fixture(scope="module")
def page_server(tiny_en_dir, tmp_path_factory):
    server = PageServer(tmp_path_factory.mktemp("page"), f"tiny.en={tiny_en_dir}", f"numbers={MODEL}").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reader():
    reader = VisionReader(MODEL, kv_cache_bytes=1 << 24)
    yield reader
    reader.engine.close()


@pytest.fixture(scope="module")
def pdf(tmp_path_factory) -> Path:
    """Three pages."""
    file = tmp_path_factory.mktemp("pdf") / "pages.pdf"
    file.write_bytes(pdf_of(["12", "340", "77"], (100, 40)))
    return file


@pytest.fixture(scope="module")
def no_image(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("none") / "letter.png"
    file.write_bytes(b"Dear Sir")
    return file


def open_tab(visit) -> None:
    visit.page.get_by_role("tab", name="Images").click()


def row(visit, file: Path):
    return visit.page.locator("#images > li").filter(has_text=file.name)


def expect_state(visit, file: Path, state: str) -> None:
    expect(row(visit, file).locator(".row-state")).to_have_text(re.compile(state))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark", "viewport": PHONE}], ids=["light", "dark phone"])
def test_images_and_pdfs_are_read(visit_of, page_server, reader, pdf, no_image, options):
    visit = visit_of(page_server, **options)
    visit.expected.append("status of 400")
    page = visit.page
    open_tab(visit)
    expect(page.locator("#image-limits")).to_contain_text("or PDF, up to 128 MiB each")
    visit.check_accessibility()
    page.set_input_files("#image-file", [*IMAGES, pdf, no_image])
    for file, expected in zip(IMAGES, reader.read(IMAGES), strict=True):
        expect_state(visit, file, "^Done$")
        assert row(visit, file).locator(".image-text").inner_text() == expected.text
        assert row(visit, file).locator("img").evaluate("image => image.naturalWidth") > 0
    expect_state(visit, pdf, "^Done · 3 pages$")
    pages = [each.text for each in reader.read(pdf_pages(pdf))]
    assert row(visit, pdf).locator(".image-text p").all_inner_texts() == pages
    expect_state(visit, no_image, "^Failed$")
    expect(row(visit, no_image)).to_contain_text("This file is not an image that can be read.")
    row(visit, no_image).get_by_text("Details").click()
    expect(row(visit, no_image).locator(".technical")).to_contain_text("letter.png")
    visit.check_accessibility()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_texts_are_kept_downloaded_and_removed(visit, reader, pdf):
    page = visit.page
    open_tab(visit)
    page.set_input_files("#image-file", [IMAGES[0], pdf])
    expect_state(visit, IMAGES[0], "^Done$")
    expect_state(visit, pdf, "^Done")
    text, pages = reader.read(IMAGES[0]).text, [each.text for each in reader.read(pdf_pages(pdf))]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all").locator("visible=true").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    assert found == {"00.txt": f"{text}\n", "pages.txt": "\n\n".join(pages) + "\n"}
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the text of 00.png").click()
    assert (download.value.suggested_filename, Path(download.value.path()).read_text()) == ("00.txt", f"{text}\n")
    visit.reload()
    expect(page.locator("#panel-images")).to_be_visible()
    assert row(visit, IMAGES[0]).locator(".image-text").inner_text() == text
    for file in (IMAGES[0], pdf):
        page.get_by_role("button", name=f"Remove {file.name}").click()
    expect(page.locator("#image-results")).to_be_hidden()
    assert visit.focused() == "image-choose"


def test_how_far_it_is_and_cancel(visit, pdf):
    page, held = visit.page, []

    def hold_second_pages(route):
        if b'name="page"' in (route.request.post_data_buffer or b""):
            held.append(route)  # until it is cancelled
        else:
            route.continue_()

    page.route("**/v1/read", hold_second_pages)
    open_tab(visit)
    page.set_input_files("#image-file", [IMAGES[0], pdf])
    expect_state(visit, pdf, "^Reading page 2 of 3$")
    expect(page.locator("#images-about")).to_have_text(re.compile(r"^1 of 2 done · .* left$"))
    cancel = page.get_by_role("button", name=f"Cancel {pdf.name}")
    expect(cancel).to_have_text("Cancel")
    visit.check_accessibility()
    cancel.click()
    expect_state(visit, pdf, "^Cancelled; the pages so far are kept$")
    assert row(visit, pdf).locator(".image-text p").count() == 1
    page.unroute("**/v1/read")
    page.get_by_role("button", name=f"Try {pdf.name} again").click()
    expect_state(visit, pdf, "^Done · 3 pages$")
    expect(page.locator("#images-about")).to_have_text("")
    assert len(held) == 1


def test_images_that_are_dropped_on_another_tab_are_read(visit):
    transfer = visit.page.evaluate_handle(
        """([name, bytes]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], name, { type: 'image/png' }));
          return transfer;
        }""",
        [IMAGES[0].name, list(IMAGES[0].read_bytes())],
    )
    expect(visit.page.get_by_role("tab", name="Images")).to_be_visible()
    for event in ("dragenter", "dragover", "drop"):
        visit.page.dispatch_event("main", event, {"dataTransfer": transfer})
    expect_state(visit, IMAGES[0], "^Done$")
    expect(visit.page.locator("#panel-images")).to_be_visible()
    expect(visit.page.locator("#drop-veil")).to_be_hidden()
    visit.page.locator("#tab-images").focus()
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator("#panel-transcribe")).to_be_visible()
