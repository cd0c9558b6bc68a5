"""Images in every form, mode and orientation, beside Pillow, transformers and values written by hand."""

import io
import os
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import HEIGHT, WIDTH, encoded, picture, png, png_16
from patience import PATIENCE
from PIL import Image, ImageOps
from transformers.image_transforms import convert_to_rgb

from transept.errors import MediaError, ParameterError
from transept.multimodal.image import ImageLimits, load_image

TALL = 1100, 1001  # more pixels than are converted at a time


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values.reshape(*values.shape[:2], 1), 3, axis=2)


# ------------------------------------------------------------------------------------------------------------- forms


def test_every_form_of_one_file(tmp_path: Path) -> None:
    expected = picture()
    data = encoded(expected, "PNG")
    path = tmp_path / "page.png"
    path.write_bytes(data)
    behind = io.BytesIO(b"skipped" + data)
    behind.seek(7)
    forms = [path, str(path), data, bytearray(data), memoryview(data), io.BytesIO(data), behind, Image.open(path)]
    for form in forms:
        loaded = load_image(form)
        assert loaded.dtype == np.uint8
        assert loaded.flags.writeable
        np.testing.assert_array_equal(loaded, expected)
    with path.open("rb") as opened:
        np.testing.assert_array_equal(load_image(opened), expected)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    data = encoded(picture(), "PNG")
    writer = threading.Thread(target=(tmp_path / "pipe.png").write_bytes, args=(data,))
    writer.start()
    np.testing.assert_array_equal(load_image(tmp_path / "pipe.png"), picture())
    writer.join(PATIENCE)


def test_an_extension_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "page.jpg").write_bytes(encoded(picture(), "PNG"))
    np.testing.assert_array_equal(load_image(tmp_path / "page.jpg"), picture())


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("first", [False, True], ids=["HWC", "CHW"])
@pytest.mark.parametrize("kind", ["uint8", "uint16", "float16", "float32", "float64"])
def test_arrays_and_tensors(channels: int, first: bool, kind: str) -> None:
    values = picture(channels=channels)
    expected = load_image(values)
    if channels == 4:
        alpha = values[..., 3:] / 255
        on_white = values[..., :3] * alpha + 255 * (1 - alpha)
        assert np.abs(expected - on_white).max() <= 0.5 + 1e-9
    else:
        np.testing.assert_array_equal(expected, grey(values) if channels == 1 else values)
    array = values.astype(kind)
    array = array * 257 if kind == "uint16" else array / array.dtype.type(255) if kind != "uint8" else array
    array = array.transpose(2, 0, 1) if first else array
    np.testing.assert_array_equal(load_image(array), expected)
    if kind != "uint16":
        np.testing.assert_array_equal(load_image(torch.from_numpy(array.copy())), expected)
    if channels == 1:
        np.testing.assert_array_equal(load_image(array.squeeze()), expected)


def test_a_tensor_in_bfloat16_that_needs_gradients() -> None:
    tensor = torch.tensor([[0.0, 0.5], [0.25, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(load_image(tensor)[..., 0], [[0, 128], [64, 255]])


def test_where_both_ends_could_be_channels_the_last_are() -> None:
    values = picture(3, 50, 4)[:, :, :3]
    np.testing.assert_array_equal(load_image(values), values)


# ------------------------------------------------------------------------------------------------------------- modes


def palette_with_transparency(height: int, width: int) -> Image.Image:
    image = Image.fromarray(picture(height, width)).convert("P")
    image.info["transparency"] = bytes(range(256))
    return image


MODES = {
    "1": lambda size: Image.fromarray(picture(*size)).convert("1"),
    "L": lambda size: Image.fromarray(picture(*size)).convert("L"),
    "LA": lambda size: Image.fromarray(picture(*size, 4)).convert("LA"),
    "P": lambda size: Image.fromarray(picture(*size)).convert("P"),
    "P with transparency": lambda size: palette_with_transparency(*size),
    "RGB": lambda size: Image.fromarray(picture(*size)),
    "RGBA": lambda size: Image.fromarray(picture(*size, 4)),
    "CMYK": lambda size: Image.fromarray(picture(*size)).convert("CMYK"),
    "YCbCr": lambda size: Image.fromarray(picture(*size)).convert("YCbCr"),
    "HSV": lambda size: Image.fromarray(picture(*size)).convert("HSV"),
}


@pytest.mark.parametrize("size", [(HEIGHT, WIDTH), (1, 1), TALL], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_pil_images(mode: str, size: tuple[int, int]) -> None:
    image = MODES[mode](size)
    before = image.copy()
    np.testing.assert_array_equal(load_image(image), convert_to_rgb(image, return_numpy=True))
    assert (image.mode, image.tobytes()) == (before.mode, before.tobytes())


FILES = [
    *[("PNG", mode) for mode in ("1", "L", "LA", "P", "P with transparency", "RGB", "RGBA")],
    *[("JPEG", mode) for mode in ("L", "RGB", "CMYK", "YCbCr")],
    *[("WEBP", mode) for mode in ("RGB", "RGBA")],
    *[("GIF", mode) for mode in ("1", "L", "P")],
    *[("TIFF", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")],
    *[("BMP", mode) for mode in ("1", "L", "P", "RGB")],
    *[("PPM", mode) for mode in ("1", "L", "RGB")],
]


@pytest.mark.parametrize(("file_format", "mode"), FILES)
def test_modes_in_files(file_format: str, mode: str) -> None:
    data = encoded(MODES[mode]((HEIGHT, WIDTH)), file_format)
    expected = convert_to_rgb(Image.open(io.BytesIO(data)), return_numpy=True)
    np.testing.assert_array_equal(load_image(data), expected)


@pytest.mark.parametrize("size", [(HEIGHT, WIDTH), TALL], ids=str)
def test_16_bits_a_channel(size: tuple[int, int]) -> None:
    values = np.random.default_rng(1).integers(0, 1 << 16, (*size, 1), dtype=np.uint16)
    expected = grey(np.rint(values / 257).astype(np.uint8))
    np.testing.assert_array_equal(load_image(png_16(values, colour=0)), expected)
    np.testing.assert_array_equal(load_image(encoded(values[..., 0], "TIFF")), expected)
    np.testing.assert_array_equal(
        load_image(b"P5 %d %d 65535\n" % size[::-1] + values.astype(">u2").tobytes()), expected
    )
    colours = np.random.default_rng(2).integers(0, 1 << 16, (*size, 3), dtype=np.uint16)
    assert np.abs(load_image(png_16(colours, colour=2)) - colours / 257).max() <= 1  # Pillow keeps the upper byte


def test_grey_of_16_bits_that_is_transparent_is_white() -> None:
    values = np.array([[[0], [0x1234]], [[0x1235], [0xFFFF]]], np.uint16)
    loaded = load_image(png_16(values, colour=0, chunks={b"tRNS": struct.pack(">H", 0x1234)}))
    np.testing.assert_array_equal(loaded[..., 0], [[0, 255], [18, 255]])


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3)])
def test_one_colour_that_is_transparent(colour: int, channels: int) -> None:
    values = np.random.default_rng(4).integers(6, 9, (20, 30, channels), dtype=np.uint8)
    rows = np.concatenate([np.zeros((20, 1), np.uint8), values.reshape(20, -1)], axis=1)
    data = png((30, 20), rows.tobytes(), colour=colour, chunks={b"tRNS": struct.pack(">H", 7) * channels})
    expected = np.where((values == 7).all(axis=2, keepdims=True), 255, values)
    np.testing.assert_array_equal(load_image(data), grey(expected) if channels == 1 else expected)


def test_what_is_appended_to_a_jpeg_is_not_looked_at() -> None:
    photo = encoded(picture(), "JPEG", progressive=True)
    film = np.random.default_rng(5).bytes(10_000_000)  # with about 150 markers of a scan
    np.testing.assert_array_equal(load_image(photo + film), load_image(photo))


def test_floats_in_a_tiff() -> None:
    values = np.random.default_rng(3).random((HEIGHT, WIDTH), dtype=np.float32)
    np.testing.assert_array_equal(load_image(encoded(values, "TIFF")), grey(np.rint(values * 255).astype(np.uint8)))
    with pytest.raises(MediaError, match="floats from 0 to 255: divide them"):
        load_image(encoded(np.float32([[0, 255]]), "TIFF"))
    with pytest.raises(MediaError, match="32 bits, from 0 to 70000, and no definition of white"):
        load_image(encoded(np.int32([[0, 70_000]]), "TIFF"))


def test_integers_of_32_bits_are_those_of_a_scan_with_16_or_refused() -> None:
    assert load_image(Image.fromarray(np.int32([[0, 0xFFFF]])))[0, :, 0].tolist() == [0, 255]
    assert not load_image(Image.fromarray(np.int32([[0, 0]]))).any()
    dark = np.full((2000, 2000), 255, np.int32)  # a strip of it says nothing
    dark[-1, -1] = 256
    assert load_image(Image.fromarray(dark)).max() == 1
    assert load_image(b"P5 2 1 65535\n\0\0\0\xff")[0, :, 0].tolist() == [0, 1]  # this format says what is white
    for values in ([[0, 255]], [[0, 1]], [[-1, 9]]):
        with pytest.raises(MediaError, match=r'no definition of white: .*convert\("L"\) if 255 is white'):
            load_image(Image.fromarray(np.int32(values)))


# ------------------------------------------------------------------------------------------- orientation and frames


@pytest.mark.parametrize("orientation", range(10))  # 0 and 9 mean nothing
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation(file_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(picture(), file_format, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    loaded = load_image(data)
    assert loaded.flags.c_contiguous
    np.testing.assert_array_equal(loaded, expected)
    np.testing.assert_array_equal(load_image(Image.open(io.BytesIO(data))), expected)
    assert loaded.shape == ((WIDTH, HEIGHT, 3) if orientation in (5, 6, 7, 8) else (HEIGHT, WIDTH, 3))


def test_exif_that_cannot_be_read_turns_nothing() -> None:
    data = encoded(picture(), "JPEG", exif=b"Exif\0\0MM\0\x2a\0\0\xff\xff broken")
    np.testing.assert_array_equal(load_image(data), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_of_several_frames(file_format: str) -> None:
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(data)).n_frames == 3
    np.testing.assert_array_equal(load_image(data), np.full((20, 30, 3), (255, 0, 0)))
    opened = Image.open(io.BytesIO(data))
    opened.seek(1)
    np.testing.assert_array_equal(load_image(opened), np.full((20, 30, 3), (0, 255, 0)))


# ------------------------------------------------------------------------------------------------------------ limits


def test_an_image_may_be_as_large_as_the_limits_and_no_larger() -> None:
    data = encoded(picture(), "PNG")
    for image in (data, picture(), Image.fromarray(picture())):
        assert load_image(image, ImageLimits(max_image_pixels=HEIGHT * WIDTH)).shape == (HEIGHT, WIDTH, 3)
        with pytest.raises(MediaError, match=f"97 x 61 pixels, more than the {HEIGHT * WIDTH - 1} of max_image_pixels"):
            load_image(image, ImageLimits(max_image_pixels=HEIGHT * WIDTH - 1))
    for encoding in (data, io.BytesIO(data)):
        with pytest.raises(MediaError, match=f"more than the {len(data) - 1} bytes of max_image_bytes"):
            load_image(encoding, ImageLimits(max_image_bytes=len(data) - 1))
    assert load_image(data, ImageLimits(max_image_bytes=len(data))).shape == (HEIGHT, WIDTH, 3)
    assert load_image(data, ImageLimits(None, None)).shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("side", [12_000, 100_000])  # beyond Pillow's limit, and beyond twice that
def test_our_own_limit_speaks_before_that_of_pillow(side: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(MediaError, match="of max_image_pixels"):
            load_image(png((side, side), bytes(1000)))
    assert caught == []


def test_pillow_refuses_what_is_over_its_own_limit_where_ours_is_lifted() -> None:
    with pytest.raises(MediaError, match="MAX_IMAGE_PIXELS"):
        load_image(png((100_000, 100_000), bytes(1000)), ImageLimits(max_image_pixels=None))


@pytest.mark.parametrize("limit", [{"max_image_bytes": 0}, {"max_image_pixels": 1.5}, {"max_image_pixels": "9"}])
def test_what_is_no_limit_is_refused(limit: dict) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(limit))} must be"):
        ImageLimits(**limit)


ARRAYS = {
    "one axis": (np.zeros(3, np.uint8), r"shape \[3\]"),
    "four axes": (np.zeros((1, 5, 5, 3), np.uint8), r"shape \[1, 5, 5, 3\]"),
    "two channels": (np.zeros((5, 5, 2), np.uint8), r"shape \[5, 5, 2\]"),
    "no rows": (np.zeros((0, 5, 3), np.uint8), "holds no pixels"),
    "NaN": (np.full((2, 2), np.nan), "floats from nan"),
    "infinity": (np.full((2, 2), np.inf), "floats from inf"),
    "floats up to 255": (np.full((2, 2, 3), 255.0), "floats from 255 to 255"),
    "floats below 0": (np.full((2, 2, 3), -1.0), "floats from -1"),
    "int64": (np.zeros((2, 2, 3), np.int64), "dtype int64"),
    "int8": (np.zeros((2, 2, 3), np.int8), "dtype int8"),
    "truth values": (np.zeros((2, 2), bool), "dtype bool"),
    "complex": (np.zeros((2, 2), complex), "dtype complex128"),
    "objects": (np.full((2, 2), None), "dtype object"),
    "words": (np.full((2, 2), "a"), "dtype <U1"),
    "a terabyte that takes no memory": (np.broadcast_to(np.uint8(0), (1 << 19, 1 << 19, 3)), "max_image_pixels"),
    "a sparse tensor": (torch.zeros(2, 2, 3).to_sparse(), "not an array of numbers"),
    "a tensor without data": (torch.zeros(2, 2, 3, device="meta"), "not an array of numbers"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_no_images(name: str) -> None:
    array, message = ARRAYS[name]
    with pytest.raises(MediaError, match=message):
        load_image(array)


def test_without_pillow_files_need_the_extra_and_arrays_do_not() -> None:
    program = """
import sys
sys.modules["PIL"] = None
import numpy
from transept.errors import MissingPackageError
from transept.multimodal.image import load_image
assert load_image(numpy.zeros((4, 5), numpy.uint8)).shape == (4, 5, 3)
try:
    load_image(b"not looked at")
except MissingPackageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == 'reading images needs pillow; install them with: pip install "transept[image]"\n'


def test_pillow_and_torch_load_with_the_first_image() -> None:
    program = "import sys, transept.multimodal.image\nprint(*{'PIL', 'torch', 'av'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
