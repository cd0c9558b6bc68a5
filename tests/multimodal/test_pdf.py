"""Pages of PDFs as images: what is drawn, in what size, and what is refused before it is."""

import gc
import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE
from pdf_files import pdf_of

from transept.errors import MediaError, ParameterError
from transept.multimodal.image import ImageLimits, load_image
from transept.multimodal.pdf import pdf_pages

pytest.importorskip("pypdfium2", reason="needs transept[pdf]")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(pdf_of(["nave", "choir", ""]))
    return path


def test_pages_are_drawn_in_the_resolution_asked_for(file: Path) -> None:
    for dpi, shape in ((72, (40, 160, 3)), (150, (84, 334, 3)), (36.5, (21, 82, 3))):
        pages = pdf_pages(file, dpi=dpi)
        assert [page.number for page in pages] == [1, 2, 3]
        images = [load_image(page) for page in pages]
        assert [image.shape for image in images] == [shape] * 3
        assert [image.dtype for image in images] == [np.uint8] * 3
        dark = [int((image < 128).sum()) for image in images]
        assert dark[0] > 0 < dark[1]
        assert dark[2] == 0  # an empty page is white
    assert not np.array_equal(images[0], images[1])


def test_a_page_stays_when_its_document_is_gone(file: Path) -> None:
    page = pdf_pages(file, dpi=72)[1]
    gc.collect()
    expected = load_image(pdf_pages(file, dpi=72)[1])
    file.unlink()
    assert np.array_equal(load_image(page), expected)


def test_pages_in_several_threads_are_those_of_one(file: Path) -> None:
    expected = [load_image(page) for page in pdf_pages(file)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(load_image, [page for _ in range(30) for page in pdf_pages(file)]))
    assert all(np.array_equal(one, expected[index % 3]) for index, one in enumerate(found))


def test_a_page_beyond_the_limit_is_not_drawn(tmp_path: Path) -> None:
    """14,400 points, the most that PDF 1.4 allows, are 900 million pixels at 150 per inch: 2.7 GB."""
    path = tmp_path / "wall.pdf"
    path.write_bytes(pdf_of(["a wall"], (14400, 14400)))
    (page,) = pdf_pages(path)
    with pytest.raises(
        MediaError, match=r'page 1 of PDF file ".*wall.pdf" has 30001 x 30001 pixels at 150 per inch, .*: lower dpi'
    ):
        load_image(page)
    (page,) = pdf_pages(path, dpi=72, limits=ImageLimits(max_image_pixels=14400**2 - 1))
    with pytest.raises(MediaError, match="more than the 207359999 of max_image_pixels"):
        page.pixels()
    with pytest.raises(MediaError, match="more than the 100 bytes of max_image_bytes"):
        pdf_pages(path, limits=ImageLimits(max_image_bytes=100))


def test_what_is_no_pdf_is_refused(file: Path, tmp_path: Path) -> None:
    for data in (b"", b"Dear Sir", file.read_bytes()[:200]):
        (tmp_path / "broken.pdf").write_bytes(data)
        with pytest.raises(MediaError, match=r'PDF file ".*broken.pdf" cannot be read: .*; pass a whole PDF'):
            pdf_pages(tmp_path / "broken.pdf")
    with pytest.raises(MediaError, match="cannot be opened: No such file"):
        pdf_pages(tmp_path / "nothing.pdf")
    for dpi in (0, -1, 0.001, 17.9, float("nan"), "150", True, 1e9):
        with pytest.raises(ParameterError, match="dpi must be a number from 18 to 2400"):
            pdf_pages(file, dpi=dpi)


def test_bytes_and_open_files_are_read_as_paths_are(file: Path) -> None:
    expected = load_image(pdf_pages(file)[1])
    data = file.read_bytes()
    with file.open("rb") as opened:
        for given in (data, bytearray(data), memoryview(data), io.BytesIO(data), opened):
            pages = pdf_pages(given)
            assert [page.number for page in pages] == [1, 2, 3]
            assert np.array_equal(load_image(pages[1]), expected)
    for given in (data, io.BytesIO(data)):
        with pytest.raises(MediaError, match="more than the 100 bytes of max_image_bytes"):
            pdf_pages(given, limits=ImageLimits(max_image_bytes=100))


def test_what_else_is_given_is_told_what_would_work(file: Path) -> None:
    for given in (3, None, [file]):
        with pytest.raises(MediaError, match="cannot be read: pass a path, the bytes of a PDF or a file opened"):
            pdf_pages(given)  # type: ignore[arg-type]
    with file.open() as text, pytest.raises(MediaError, match='open it with "rb"'):
        pdf_pages(text)  # type: ignore[arg-type]
    with pytest.raises(MediaError, match=r"cannot be opened: embedded null byte$"):
        pdf_pages("a\0b.pdf")


def test_a_pdf_without_pages_is_told_so_whatever_failed_before() -> None:
    for _ in range(2):
        with pytest.raises(MediaError, match=r"cannot be read: it has no pages; pass one that has$"):
            pdf_pages(pdf_of([]))
        with pytest.raises(MediaError, match=r"\(PDFium: Data format error\); pass a whole PDF"):
            pdf_pages(b"Dear Sir")


def test_a_program_that_ends_with_pages_left_says_nothing(file: Path) -> None:
    program = f"from transept.multimodal.pdf import pdf_pages; pages = pdf_pages({str(file)!r}); pages[0].pixels()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
