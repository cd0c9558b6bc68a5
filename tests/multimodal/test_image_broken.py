"""Broken images of every kind: a MediaError or the right image, soon, and in bounded memory.

All are read in a process of its own, whose memory is limited, too. It tells of each what came of it, the processor time
and the memory by which its peak grew.
"""

import io
import json
import resource
import struct
import sys
import tempfile
import time
import wave
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import HEIGHT, WIDTH, encoded, picture, png
from mutations import mutated
from patience import PATIENCE
from peak_memory import forget_peak, peak, run_python
from PIL import Image

from transept.errors import MediaError
from transept.multimodal.image import load_image

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are told by Linux")

MOST_SECONDS = 2.0  # of processor time
MOST_KILOBYTES = 500_000
MOST_ADDRESSES = 4 << 30  # bytes of address space that the process may have
NUM_MUTATIONS = 150

SIDE = 5400  # pixels, of a square that is just within the limits

LARGE = np.broadcast_to(np.uint8(0), (SIDE, SIDE, 3))

READ = "is read"

FORMATS: dict[str, Callable[[], bytes]] = {
    "png": lambda: encoded(picture(), "PNG"),
    "jpeg": lambda: encoded(picture(), "JPEG"),
    "progressive jpeg": lambda: encoded(picture(), "JPEG", progressive=True),
    "gif": lambda: encoded(picture(), "GIF"),
    "webp": lambda: encoded(picture(), "WEBP"),
    "lossless webp": lambda: encoded(picture(), "WEBP", lossless=True),
    "tiff": lambda: encoded(picture(), "TIFF"),
    "lzw tiff": lambda: encoded(picture(), "TIFF", compression="tiff_lzw"),
    "jpeg tiff": lambda: encoded(picture(), "TIFF", compression="jpeg"),
    "bmp": lambda: encoded(picture(), "BMP"),
    "ppm": lambda: encoded(picture(), "PPM"),
}
PLACES = {"an eighth": 0.125, "a half": 0.5, "nine tenths": 0.9}


def cut(data: bytes, share: float) -> bytes:
    return data[: round(len(data) * share)]


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def blocks() -> np.ndarray:
    return picture(SIDE // 100, SIDE // 100).repeat(100, axis=0).repeat(100, axis=1)


def png_of_zeros(side: int) -> bytes:
    return png((side, side), bytes(side * (3 * side + 1)))


def jpeg_of(height: int, width: int) -> bytes:
    """A JPEG whose header announces another size."""
    data = encoded(picture(), "JPEG")
    return patched(data, data.index(b"\xff\xc0") + 5, struct.pack(">HH", height, width))


def jpeg_of_scans(num_scans: int, side: int) -> bytes:
    """The last scan of a progressive JPEG over and over, each of which visits all of the image."""
    data = encoded(np.zeros((side, side, 3), np.uint8), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * num_scans + data[-2:]


def tiff(entries: dict[int, tuple[int, int, int]], rest: bytes = b"") -> bytes:
    """entries: tag -> type, count, value or offset. Little-endian, one directory."""
    directory = struct.pack("<H", len(entries))
    for tag, (kind, count, value) in sorted(entries.items()):
        directory += struct.pack("<HHII", tag, kind, count, value)
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + rest


def tiff_of(height: int, width: int, strip_bytes: int = 100) -> bytes:
    return tiff({
        256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1), 273: (4, 1, 8),
        277: (3, 1, 1), 278: (4, 1, height), 279: (4, 1, strip_bytes),
    }, bytes(200))  # fmt: skip


def tiff_of_a_tile() -> bytes:
    """An image of 100 x 100 pixels in the corner of a tile that is far larger, deflated."""
    tile = zlib.compress(bytes(8000 * 6000), 1)
    return tiff({
        256: (4, 1, 100), 257: (4, 1, 100), 258: (3, 1, 8), 259: (3, 1, 8), 262: (3, 1, 1), 277: (3, 1, 1),
        322: (4, 1, 8000), 323: (4, 1, 6000), 324: (4, 1, 8 + 2 + 10 * 12 + 4), 325: (4, 1, len(tile)),
    }, tile)  # fmt: skip


def bmp_of(height: int, width: int) -> bytes:
    return patched(encoded(picture(), "BMP"), 18, struct.pack("<ii", width, height))


def gif_of(height: int, width: int) -> bytes:
    """A GIF whose frame is that large, though its canvas is small."""
    data = encoded(picture(), "GIF")
    return patched(data, data.index(b",\0\0\0\0") + 5, struct.pack("<HH", width, height))


def webp_of(height: int, width: int) -> bytes:
    """The extended format, with a canvas of that size and a small frame."""
    simple = encoded(picture(), "WEBP", lossless=True)
    canvas = struct.pack("<I", 0) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBP" + b"VP8X" + struct.pack("<I", 10) + canvas + simple[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setparams((1, 2, 16_000, 0, "NONE", ""))
        opened.writeframes(bytes(3200))
    return file.getvalue()


BYTES: dict[str, tuple[Callable[[], bytes], str]] = {
    # too large, as their headers say
    "a png of 10 billion pixels": (lambda: png((100_000, 100_000), bytes(1000)), "max_image_pixels"),
    "a png of 144 million pixels": (lambda: png((12_000, 12_000), bytes(1000)), "max_image_pixels"),
    "a png of 36 million pixels, which it has": (lambda: png_of_zeros(6000), "max_image_pixels"),
    "a png of 2^31 columns": (lambda: png((2**31 - 1, 1), bytes(1000)), "max_image_pixels"),
    "a jpeg of 4 billion pixels": (lambda: jpeg_of(65_500, 65_500), "max_image_pixels"),
    "a jpeg of 31 million pixels": (lambda: jpeg_of(5600, 5600), "max_image_pixels"),
    "a gif frame of 4 billion pixels": (lambda: gif_of(65_535, 65_535), "max_image_pixels"),
    "a webp canvas of 268 million pixels": (lambda: webp_of(16_383, 16_383), "image data of"),
    "a tiff of 2^62 pixels": (lambda: tiff_of(2**31 - 1, 2**31 - 1), "max_image_pixels"),
    "a bmp of 2^62 pixels": (lambda: bmp_of(2**31 - 1, 2**31 - 1), "max_image_pixels"),
    "a ppm of 10 billion pixels": (lambda: b"P6 100000 100000 255\n" + bytes(999), "max_image_pixels"),
    # as large as the limits allow, without what they announce
    "a png of 29 million pixels, cut off": (lambda: cut(png_of_zeros(SIDE), 0.9), "truncated"),
    "a jpeg of 29 million pixels, cut off": (lambda: cut(encoded(LARGE, "JPEG"), 0.9), "truncated"),
    "a progressive jpeg of 29 million pixels, cut off": (
        lambda: cut(encoded(LARGE, "JPEG", progressive=True), 0.9),
        "truncated",
    ),
    "a webp of 29 million pixels, wounded": (
        lambda: patched(encoded(blocks(), "WEBP", lossless=True, quality=20, method=2), 1000, bytes(range(200))),
        "be decoded",
    ),
    "a jpeg header of 29 million pixels": (lambda: jpeg_of(SIDE, SIDE), READ),  # the rest grey, as all of libjpeg's do
    "a tiff header of 29 million pixels": (lambda: tiff_of(SIDE, SIDE), "truncated"),
    "a tiff whose strip is 4 GB long": (lambda: tiff_of(100, 100, 0xFFFF_FFF0), "truncated"),
    "a ppm header of 29 million pixels": (lambda: b"P6 %d %d 255\n" % (SIDE, SIDE) + bytes(999), "truncated"),
    # bombs of other kinds
    "a jpeg of a thousand scans": (lambda: jpeg_of_scans(1000, 2000), "more than 32 scans"),
    "a jpeg of small segments": (lambda: b"\xff\xd8" + b"\xff\xfe\0\2" * 5_000_000, "more than 10000 segments"),
    "a png of small chunks": (
        lambda: png((9, 9), b"")[:33] + (b"\0\0\0\0prVt" + struct.pack(">I", zlib.crc32(b"prVt"))) * 2_000_000,
        "more than 200000 reads",
    ),
    "a gif of small comments": (lambda: FORMATS["gif"]()[:13] + b"!\xfe\1a\0" * 5_000_000, "more than 200000 reads"),
    "a ppm of a long comment": (lambda: b"P6\n#" + bytes(5_000_000), "more than 200000 reads"),
    "a tiff of 30 million strips": (
        lambda: tiff({256: (4, 1, 9), 257: (4, 1, 9), 273: (3, 30_000_000, 200)}, bytes(61 << 20)),
        "bytes of tags",
    ),
    "an orientation of 10 million numbers": (
        lambda: png((9, 9), bytes(9 * 28), chunks={b"eXIf": tiff({0x112: (3, 10_000_000, 26)}, bytes(20 << 20))}),
        READ,
    ),
    "a png comment of 50 MB": (
        lambda: png((9, 9), bytes(9 * 28), chunks={b"zTXt": b"a\0\0" + zlib.compress(bytes(50 << 20), 1)}),
        "be decoded",
    ),
    "a png profile of 50 MB": (
        lambda: png((9, 9), bytes(9 * 28), chunks={b"iCCP": b"a\0\0" + zlib.compress(bytes(50 << 20), 1)}),
        "be decoded",
    ),
    "a png whose rows go on for 50 MB": (lambda: png((9, 9), bytes(50 << 20)), READ),
    "a tiff tile of 48 million pixels": (tiff_of_a_tile, "a tile of image data"),
    "a tiff tag of 4 billion values": (lambda: tiff({256: (4, 0xFFFF_FFFF, 8), 257: (4, 1, 5)}), "image"),
    "more bytes than are read": (lambda: bytes((128 << 20) + 1), "max_image_bytes"),
    # of no size
    "a png without columns": (lambda: png((0, 5), bytes(5)), "image"),
    "a png without rows": (lambda: png((5, 0), b""), "image"),
    "a jpeg without rows": (lambda: jpeg_of(0, 97), "image"),
    "a tiff without columns": (lambda: tiff_of(5, 0), "image"),
    "a bmp without columns": (lambda: bmp_of(5, 0), "image"),
    "a ppm without columns": (lambda: b"P6 0 5 255\n", "image"),
    "a gif without a frame": (lambda: b"GIF89a" + struct.pack("<HH", 9, 9) + b"\0\0\0;", "image"),
    # of another kind
    "no bytes": (lambda: b"", "is empty"),
    "one byte": (lambda: b"\x89", "1 bytes"),
    "zeros": (lambda: bytes(10_000), "not a readable image: pass a whole PNG"),
    "random bytes": (lambda: np.random.default_rng(5).bytes(10_000), "not a readable image"),
    "random bytes behind a png's magic": (lambda: b"\x89PNG\r\n\x1a\n" + np.random.default_rng(6).bytes(999), "image"),
    "random bytes behind a jpeg's magic": (lambda: b"\xff\xd8\xff" + np.random.default_rng(7).bytes(999), "image"),
    "a web page": (lambda: b"<!DOCTYPE html><html>404</html>", "not a readable image"),
    "an svg": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', "not a readable image"),
    "a PDF": (lambda: b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n", "is a PDF: name a file that ends in .pdf"),
    "PostScript, which is a program": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a readable"),
    "a zip archive": (lambda: b"PK\3\4" + bytes(200), "not a readable image"),
    "sound": (sound, "not a readable image"),
    "an icon": (lambda: encoded(picture(), "ICO"), "not a readable image"),
    "a png with a byte of its pixels changed": (
        lambda: patched(FORMATS["png"](), 1000, b"\x55\xaa\x55\xaa"),
        "be decoded",
    ),
}  # fmt: skip


class Stream:
    """What a program may pass for an open file."""

    name = "a stream"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read(self, size: int = -1) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def closed(file: Any) -> Any:
    file.close()
    return file


def sparse(path: Path) -> Path:
    """A file of a terabyte that takes no place on the disk."""
    with path.open("wb") as file:
        file.write(FORMATS["png"]())
        file.truncate(1 << 40)
    return path


def released() -> memoryview:
    view = memoryview(b"released")
    view.release()
    return view


OBJECTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a path to nothing": (lambda path: path / "missing.png", 'missing.png" cannot be opened: No such file'),
    "a folder": (lambda path: path, "directory"),
    "an empty path": (lambda path: "", "cannot be opened"),
    "a path with a zero byte": (lambda path: f"{path}/page\0.png", "null byte"),
    "a URL": (lambda path: "https://example.com/page.png", "none is fetched: download it"),
    "a data URL": (lambda path: "data:image/png;base64,iVBORw0KGgo=", "cannot be opened"),
    "the zero device": (lambda path: "/dev/zero", '"/dev/zero" has more than'),
    "the null device": (lambda path: "/dev/null", '"/dev/null" is empty'),
    "this process's memory": (lambda path: "/proc/self/mem", "/proc/self/mem"),
    "a sparse file of a terabyte": (lambda path: sparse(path / "sparse.png"), "max_image_bytes"),
    "an empty file": (lambda path: written(path / "empty.png", b""), 'empty.png" is empty'),
    "a text called png": (
        lambda path: written(path / "letter.png", b"Dear Sir"),
        'letter.png" is not a readable image',
    ),
    "a png called jpg": (lambda path: written(path / "page.jpg", FORMATS["png"]()), READ),
    "None": (lambda path: None, "of type NoneType cannot be read: pass a path"),
    "a number": (lambda path: 5, "of type int"),
    "a list": (lambda path: [[0, 1], [1, 0]], "of type list"),
    "a file of text": (lambda path: io.StringIO("words"), '"rb"'),
    "a file that is closed": (lambda path: closed(io.BytesIO(FORMATS["png"]())), "closed file"),
    "a stream that gives nothing": (lambda path: Stream(b""), "is empty"),
    "a stream that gives text": (lambda path: Stream("words"), '"rb"'),
    "a stream that gives numbers": (lambda path: Stream([1, 2]), "list"),
    "a stream whose connection broke": (lambda path: Stream(ConnectionResetError("the peer is gone")), "the peer is"),
    "a stream without end": (lambda path: Stream(bytes(1 << 20)), "max_image_bytes"),
    "a memory view that is released": (lambda path: released(), "memoryview cannot be read"),
    "a PIL image without columns": (lambda path: Image.new("RGB", (0, 5)), "holds no pixels: it is 0 x 5"),
    "a PIL image that is closed": (lambda path: closed(Image.new("RGB", (5, 5))), "closed"),
    "a PIL image whose file is closed": (
        lambda path: closed(Image.open(written(path / "page.png", FORMATS["png"]()))),
        "PIL image",
    ),
    "a PIL image of 36 million pixels": (lambda path: Image.new("L", (6000, 6000)), "max_image_pixels"),
}


def images(folder: Path) -> dict[str, Any]:
    """Everything that is read, by name."""
    truncated = {
        f"{name}, cut at {place}": cut(data(), share)
        for name, data in FORMATS.items()
        for place, share in PLACES.items()
    }
    last_bytes = {f"{name}, without its last byte": data()[:-1] for name, data in FORMATS.items()}
    made = {name: make() for name, (make, _) in BYTES.items()}
    return {**truncated, **last_bytes, **made, **{name: make(folder) for name, (make, _) in OBJECTS.items()}}


def read_all() -> dict[str, dict[str, Any]]:
    """What has become of each; run in a process of its own."""
    for data in FORMATS.values():
        load_image(data())  # decoders load
    with tempfile.TemporaryDirectory() as folder:
        everything = images(Path(folder))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        told = {}
        for name, image in everything.items():
            before, since = forget_peak(), time.process_time()
            try:
                loaded = load_image(image)
                message, digest = READ, [list(loaded.shape), zlib.crc32(loaded.tobytes())]
            except MediaError as error:
                message, digest = str(error), []
            seconds, kilobytes = time.process_time() - since, peak() - before
            told[name] = {"message": message, "digest": digest, "seconds": seconds, "kilobytes": kilobytes}
    return told


def read_mutations() -> dict[str, dict[str, Any]]:
    """What has become of them, format by format; run in a process of its own."""
    told = {}
    for name, make in FORMATS.items():
        data, num_read, longest = make(), 0, 0.0
        load_image(data)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        before = forget_peak()
        for seed in range(NUM_MUTATIONS):
            since = time.process_time()
            try:
                loaded = load_image(mutated(data, seed, head=100))
                assert (loaded.ndim, loaded.shape[2], loaded.dtype) == (3, 3, np.uint8)
                num_read += 1
            except MediaError:
                pass
            longest = max(longest, time.process_time() - since)
        told[name] = {"num_read": num_read, "seconds": longest, "kilobytes": peak() - before}
    return told


def told_by(function: str) -> dict[str, dict[str, Any]]:
    program = (
        "import json, test_image_broken, warnings\n"
        "warnings.simplefilter('ignore')\n"
        f"print(json.dumps(test_image_broken.{function}()))"
    )
    done = run_python(program, timeout=PATIENCE, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, Any]]:
    return told_by("read_all")


def soon_and_small(outcome: dict[str, Any]) -> None:
    assert outcome["seconds"] < MOST_SECONDS
    assert outcome["kilobytes"] < MOST_KILOBYTES


@pytest.mark.parametrize("place", [*PLACES, "its last byte"])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_cut_off_is_refused_or_whole(name: str, place: str, told: dict[str, dict[str, Any]]) -> None:
    outcome = told[f"{name}, without its last byte" if place == "its last byte" else f"{name}, cut at {place}"]
    soon_and_small(outcome)
    if outcome["message"] == READ:
        assert place == "its last byte"
        whole = load_image(FORMATS[name]())
        assert outcome["digest"] == [list(whole.shape), zlib.crc32(whole.tobytes())]
    else:
        assert "image data of" in outcome["message"]
        assert "pass a whole PNG, JPEG" in outcome["message"]


@pytest.mark.parametrize("name", [*BYTES, *OBJECTS])
def test_what_is_no_image_is_refused(name: str, told: dict[str, dict[str, Any]]) -> None:
    outcome, (_, message) = told[name], {**BYTES, **OBJECTS}[name]
    soon_and_small(outcome)
    assert message in outcome["message"]


def test_wrong_in_one_way_and_right_all_the_same(told: dict[str, dict[str, Any]]) -> None:
    assert told["a png called jpg"]["digest"] == [[HEIGHT, WIDTH, 3], zlib.crc32(picture().tobytes())]
    assert told["a png whose rows go on for 50 MB"]["digest"] == [[9, 9, 3], zlib.crc32(bytes(9 * 9 * 3))]


def test_mutations_are_read_or_refused() -> None:
    for name, outcome in told_by("read_mutations").items():
        soon_and_small(outcome)
        assert outcome["num_read"] < NUM_MUTATIONS
        assert outcome["num_read"] > 0 or name == "png", name  # whose checksums tell of everything
