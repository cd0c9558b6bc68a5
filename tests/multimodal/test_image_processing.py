"""pixel_values beside transformers' image processors over Pillow, and settings that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from image_files import picture
from PIL import Image

from transept.errors import CheckpointError, MediaError
from transept.multimodal.image import load_image
from transept.multimodal.image_processing import pixel_values
from transept.multimodal.image_settings import ImageSize, image_settings, read_image_settings
from transept.registry.checkpoint_view import CheckpointView

SIZES = [(1, 1), (2, 3), (5, 90), (7, 5), (61, 97), (64, 64), (90, 70), (97, 61), (100, 101), (200, 31), (333, 480)]

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT": ("ViT", {}),
    "TrOCR's ViT": ("ViT", {"size": 384, "resample": 2, "do_normalize": True}),
    "ViT, lanczos": ("ViT", {"size": {"height": 50, "width": 70}, "resample": 1}),
    "ViT, nearest": ("ViT", {"size": [40, 30], "resample": 0}),
    "ViT without normalising": ("ViT", {"size": 32, "do_normalize": False}),
    "ViT without rescaling": (
        "ViT",
        {"size": 32, "do_rescale": False, "image_mean": [9, 8, 7], "image_std": [2, 3, 4]},
    ),
    "ViT, one mean": (
        "ViT",
        {"size": 32, "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
    ),
    "DeiT": ("DeiT", {}),
    "DeiT, cropped to more than there is": ("DeiT", {"size": 40, "crop_size": {"height": 51, "width": 33}}),
    "DeiT without resizing": ("DeiT", {"do_resize": False, "crop_size": 64}),
    "CLIP": ("CLIP", {}),
    "Florence-2's CLIP": ("CLIP", {"size": {"height": 96, "width": 96}, "do_center_crop": False, "crop_size": 96}),
    "CLIP, a number is a shortest edge": ("CLIP", {"size": 51, "crop_size": 50}),
    "CLIP, both edges": ("CLIP", {"size": {"shortest_edge": 60, "longest_edge": 80}, "do_center_crop": False}),
    "CLIP, at most": ("CLIP", {"size": {"max_height": 60, "max_width": 80}, "do_center_crop": False}),
    "Donut": ("Donut", {"size": {"height": 128, "width": 96}}),
    "Donut, width first": ("Donut", {"size": [96, 128]}),
    "Donut, aligned": ("Donut", {"size": [96, 128], "do_align_long_axis": True}),
    "Donut, nearest": ("Donut", {"size": [128, 96], "resample": 0}),
    "Donut, cropped": ("Donut", {"size": [128, 96], "do_center_crop": True, "crop_size": [77, 88]}),
    "Nougat": ("Nougat", {"size": {"height": 112, "width": 84}}),
    "Nougat, aligned": ("Nougat", {"size": {"height": 84, "width": 112}, "do_align_long_axis": True}),
    "Nougat, height first": ("Nougat", {"size": [56, 40], "do_crop_margin": False, "resample": 3}),
}


def page(height: int, width: int) -> np.ndarray:
    """Something to read within a light margin that is not quite even."""
    values = np.random.default_rng(0).integers(240, 256, (height, width, 3)).astype(np.uint8)
    values[height // 4 : height // 2 + 1, width // 5 : width // 2 + 1] = 30
    return values


def reference(processor: str, settings: dict[str, Any]) -> Any:
    return getattr(transformers, f"{processor}ImageProcessorPil")(**settings)


def outcome(call: Any) -> np.ndarray | None:
    """Pixel values; None where that cannot be computed."""
    try:
        return np.asarray(call())
    except (MediaError, ValueError):
        return None


@pytest.mark.parametrize("row", ROWS)
def test_the_same_numbers_as_transformers(row: str) -> None:
    processor, values = ROWS[row]
    theirs = reference(processor, values)
    settings = image_settings({"image_processor_type": f"{processor}ImageProcessor", **values}, "a test")
    num_compared = 0
    for height, width in SIZES:
        for image in (picture(height, width), page(height, width)):
            ours = outcome(lambda image=image: pixel_values(image, settings))
            expected = outcome(lambda image=image: theirs(Image.fromarray(image), return_tensors="np").pixel_values[0])
            assert (ours is None) == (expected is None), (height, width)
            if ours is not None:
                num_compared += 1
                assert ours.dtype == np.float32
                np.testing.assert_array_equal(ours, expected.astype(np.float32), err_msg=f"{height} x {width}")
    assert num_compared >= 2 * len(SIZES) - 4


@pytest.mark.parametrize("row", ROWS)
def test_what_transformers_saves_is_read_back_as_the_same_settings(row: str, tmp_path: Path) -> None:
    processor, values = ROWS[row]
    settings = image_settings({"image_processor_type": f"{processor}ImageProcessor", **values}, "a test")
    reference(processor, values).save_pretrained(tmp_path)
    assert read_image_settings(CheckpointView(tmp_path, None)) == settings


def test_files_of_every_mode_as_transformers_sees_them(tmp_path: Path) -> None:
    theirs = reference("CLIP", {})  # which converts to RGB
    settings = image_settings({"image_processor_type": "CLIPImageProcessor"}, "a test")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        path = tmp_path / f"{mode}.png"
        Image.fromarray(picture(channels=4)).convert(mode).save(path)
        expected = theirs(Image.open(path), return_tensors="pt").pixel_values[0]
        assert torch.equal(pixel_values(load_image(path), settings), expected)


def test_the_result_lies_in_memory_in_its_own_order() -> None:
    settings = image_settings({"image_processor_type": "ViTImageProcessor"}, "a test")
    values = pixel_values(picture(), settings)
    assert (values.shape, values.dtype, values.is_contiguous()) == ((3, 224, 224), torch.float32, True)


# ------------------------------------------------------------------------------------------- what checkpoints hold

# As on the hub: microsoft/trocr-base-handwritten, naver-clova-ix/donut-base, facebook/nougat-base, Florence-2-base.
PUBLISHED: dict[str, dict[str, Any]] = {
    "trocr": {
        "do_normalize": True, "do_resize": True, "feature_extractor_type": "ViTFeatureExtractor", "resample": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": 384,
    },
    "donut": {
        "do_align_long_axis": False, "do_normalize": True, "do_pad": True, "do_rescale": True, "do_resize": True,
        "do_thumbnail": True, "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "DonutFeatureExtractor",
        "image_std": [0.5, 0.5, 0.5], "processor_class": "DonutProcessor", "resample": 2,
        "rescale_factor": 0.00392156862745098, "size": [1920, 2560],
    },
    "nougat": {
        "data_format": "channels_first", "do_align_long_axis": False, "do_crop_margin": True, "do_normalize": True,
        "do_pad": True, "do_rescale": True, "do_resize": True, "do_thumbnail": True,
        "image_mean": [0.485, 0.456, 0.406], "image_processor_type": "NougatImageProcessor",
        "image_std": [0.229, 0.224, 0.225], "input_data_format": "channels_first", "resample": 2,
        "processor_class": "NougatProcessor", "rescale_factor": 0.00392156862745098,
        "size": {"height": 896, "width": 672},
    },
    "florence-2": {
        "auto_map": {"AutoProcessor": "processing_florence2.Florence2Processor"},
        "_valid_processor_keys": ["images", "do_resize"], "do_resize": True, "size": {"height": 768, "width": 768},
        "resample": 3, "do_center_crop": False, "do_rescale": True, "do_normalize": True, "do_convert_rgb": None,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "image_seq_length": 577,
        "crop_size": {"height": 768, "width": 768}, "image_processor_type": "CLIPImageProcessorFast",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "processor", "size"),
    [("trocr", "ViT", (384, 384)), ("donut", "Donut", (2560, 1920)), ("nougat", "Nougat", (896, 672)),
     ("florence-2", "CLIP", (768, 768))],
)  # fmt: skip
def test_published_settings(name: str, processor: str, size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PUBLISHED[name]))
    settings = read_image_settings(CheckpointView(tmp_path, None))
    assert (settings.processor, settings.size) == (processor, ImageSize(*size))
    assert pixel_values(picture(), settings).shape == (3, *size)


def test_processor_config_holds_them_too_and_comes_first(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PUBLISHED["donut"]))
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": "DonutProcessor"}))
    assert read_image_settings(CheckpointView(tmp_path, None)).processor == "Donut"
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": PUBLISHED["trocr"]}))
    assert read_image_settings(CheckpointView(tmp_path, None)).processor == "ViT"


REFUSED: dict[str, tuple[Any, str]] = {
    "no type": ({"size": 384}, "names no image_processor_type. Known: ViTImageProcessor, DeiTImageProcessor, CLIP"),
    "an unknown type": (
        {"image_processor_type": "SamImageProcessor"},
        "'SamImageProcessor'. Known: ViTImageProcessor, ",
    ),
    "a type that is a number": ({"image_processor_type": 5}, "not known, 5"),
    "an unknown setting": (
        {"do_sharpen": True},
        "sets do_sharpen to True, which no image processor here does. Known: ",
    ),
    "a setting that is misspelt": ({"do_normalise": True}, "Did you mean 'do_normalize'?"),
    "another type's step": ({"do_pad": True}, "sets do_pad, which a ViTImageProcessor does not do"),
    "a margin of Donut's": ({"image_processor_type": "DonutImageProcessor", "do_crop_margin": True}, "do_crop_margin"),
    "a page by its edge": (
        {"image_processor_type": "DonutImageProcessor", "size": {"shortest_edge": 9}},
        "without height and width",
    ),
    "a crop to nothing": ({"do_center_crop": True}, "no crop_size"),
    "a longest edge alone": ({"size": {"longest_edge": 224}}, "known are a number of pixels, and objects with height"),
    "a number of pixels in all": ({"size": {"min_pixels": 1, "max_pixels": 9}}, "min_pixels"),
    "a size of 0": ({"size": 0}, "size to 0"),
    "a size below 0": ({"size": {"height": -4, "width": 4}}, "-4"),
    "a size of millions": ({"size": 1 << 20}, "1048576"),
    "a size of True": ({"size": True}, "True"),
    "a size of three": ({"size": [1, 2, 3]}, "[1, 2, 3]"),
    "a size in text": ({"size": "224"}, "'224'"),
    "an unknown filter": ({"resample": 6}, "known are 0 (nearest), 1 (lanczos), 2 (bilinear)"),
    "a filter by its name": ({"resample": "bicubic"}, "'bicubic'"),
    "a flag in text": ({"do_resize": "yes"}, "true or false"),
    "two means": ({"image_mean": [0.5, 0.5]}, "three numbers"),
    "a mean that is no number": ({"image_mean": [0.5, None, 0.5]}, "three numbers"),
    "a mean of NaN": ({"image_mean": [0.5, float("nan"), 0.5]}, "three numbers"),
    "a deviation of 0": ({"image_std": [0.5, 0, 0.5]}, "nothing can be divided"),
    "a factor of 0": ({"rescale_factor": 0}, "above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_refused(name: str, tmp_path: Path) -> None:
    settings, message = REFUSED[name]
    if name != "no type":
        settings = {"image_processor_type": "ViTImageProcessor", **settings}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError) as raised:
        read_image_settings(CheckpointView(tmp_path, None))
    assert message in str(raised.value)
    assert str(tmp_path / "preprocessor_config.json") in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'"ViT"', b"[" * 100_000])
def test_files_that_hold_no_settings(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_bytes(content)
    with pytest.raises(
        CheckpointError,
        match=r'cannot read ".*preprocessor_config\.json"|preprocessor_config\.json" is not a JSON object',
    ):
        read_image_settings(CheckpointView(tmp_path, None))


def test_a_folder_without_settings(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no preprocessor_config\.json"):
        read_image_settings(CheckpointView(tmp_path, None))


def test_images_too_long_and_narrow_are_refused_before_they_fill_the_memory() -> None:
    long = np.zeros((100_000, 2, 3), np.uint8)
    for processor, size in (("ViT", 4096), ("CLIP", 224), ("Donut", [960, 1280]), ("Nougat", [1280, 960])):
        settings = image_settings({"image_processor_type": f"{processor}ImageProcessor", "size": size}, "a test")
        with pytest.raises(MediaError, match="too long and narrow for this model, which resizes 2 x 100000 pixels"):
            pixel_values(long, settings)


def test_an_image_larger_than_what_it_is_padded_to() -> None:
    settings = {"image_processor_type": "DonutImageProcessor", "size": [50, 50], "do_resize": False}
    with pytest.raises(MediaError, match="97 x 61 pixels, and this checkpoint pads images to 50 x 50"):
        pixel_values(picture(), image_settings({**settings, "do_thumbnail": False}, "a test"))
