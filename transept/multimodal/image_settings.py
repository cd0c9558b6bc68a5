"""ImageSettings: a checkpoint's steps from an image to the encoder's input, from its preprocessor_config.json.

`read_image_settings` reads them from a CheckpointView; `pixel_values` in `transept.multimodal.image_processing` applies
them. An unknown setting is an error, because the encoder's input would differ from training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transept.errors import CheckpointError, shown, suggest
from transept.registry.checkpoint_view import CheckpointView

BILINEAR, BICUBIC = 2, 3  # as PIL.Image.Resampling numbers its filters
FILTERS = {0: "nearest", 1: "lanczos", BILINEAR: "bilinear", BICUBIC: "bicubic", 4: "box", 5: "hamming"}
LARGEST_SIDE = 1 << 16  # pixels; larger numbers are errors in the settings

Check = Callable[[Any, str, str], Any]  # (value, its name, the file) -> the value; raises CheckpointError
Triple = tuple[float, float, float]  # of red, green and blue
HALF: Triple = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ImageSize:
    """A size in pixels: height and width; or shortest_edge, perhaps with longest_edge; or max_height and max_width.

    shortest_edge keeps the proportions; so do max_height and max_width, which give the largest image that fits.
    """

    height: int | None = None
    width: int | None = None
    shortest_edge: int | None = None
    longest_edge: int | None = None
    max_height: int | None = None
    max_width: int | None = None

    @property
    def box(self) -> tuple[int, int]:
        """Height and width, if the size has both."""
        return self.height or 0, self.width or 0


SIZES = ({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}, {"max_height", "max_width"})


@dataclass(frozen=True)
class ImageSettings:
    """The steps, in their order, under the names of preprocessor_config.json.

    processor: type of the image processor, one of PROCESSORS. size: for do_resize, do_thumbnail, do_pad and
    do_align_long_axis. resample: one of FILTERS. crop_size: height and width for do_center_crop. image_mean,
    image_std: of values after do_rescale.
    """

    processor: str
    size: ImageSize
    resample: int
    image_mean: Triple
    image_std: Triple
    do_crop_margin: bool = False
    do_align_long_axis: bool = False
    do_resize: bool = True
    do_thumbnail: bool = False
    do_pad: bool = False
    do_center_crop: bool = False
    crop_size: ImageSize | None = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True


CENTER = {"resample": BICUBIC, "do_center_crop": True, "crop_size": ImageSize(224, 224)}
PAGE = {"resample": BILINEAR, "do_thumbnail": True, "do_pad": True}
BY_HALF: dict[str, Any] = {"image_mean": HALF, "image_std": HALF}
BY_IMAGENET: dict[str, Any] = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
# Values of settings that a checkpoint leaves out, or that are null: the defaults of transformers' classes.
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": {**BY_HALF, "size": ImageSize(224, 224), "resample": BILINEAR},
    "DeiT": {**BY_HALF, **CENTER, "size": ImageSize(256, 256)},
    "CLIP": {**CENTER, "size": ImageSize(shortest_edge=224), "image_mean": CLIP_MEAN, "image_std": CLIP_STD},
    "Donut": {**BY_HALF, **PAGE, "size": ImageSize(2560, 1920)},
    "Nougat": {**BY_IMAGENET, **PAGE, "size": ImageSize(896, 672), "do_crop_margin": True},
}
PAGES = ("Donut", "Nougat")  # fit an image into `size` and pad it; the others make it that size
NO_STEPS = {  # steps of other types of processors
    **dict.fromkeys(("ViT", "DeiT", "CLIP"), ("do_crop_margin", "do_align_long_axis", "do_thumbnail", "do_pad")),
    "Donut": ("do_crop_margin",),
    "Nougat": ("do_center_crop",),
}
# Settings without effect here: an image is always RGB, with the channels first.
NEUTRAL = (
    "_valid_processor_keys", "auto_map", "data_format", "device", "disable_grouping", "do_convert_rgb",
    "feature_extractor_type", "image_processor_type", "image_seq_length", "input_data_format", "processor_class",
    "return_tensors",
)  # fmt: skip


def read_image_settings(view: CheckpointView) -> ImageSettings:
    """Return a checkpoint's settings. Raises CheckpointError like `settings_in` and `image_settings`."""
    return image_settings(*settings_in(view))


def settings_in(view: CheckpointView) -> tuple[Mapping[str, Any], str]:
    """Return the image processor's settings in processor_config.json or preprocessor_config.json, and the file's name.

    Raises CheckpointError for missing files and files of another form.
    """
    file, found = view.path / "processor_config.json", view.processor_config.get("image_processor")
    if not found:
        file, found = view.path / "preprocessor_config.json", view.preprocessor_config
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{file} must hold an object with settings of an image processor, not {shown(found)}")
    if not found:
        raise CheckpointError(
            f'"{view.path}" has no preprocessor_config.json, which says how to prepare images. Copy it from the '
            "checkpoint's publisher"
        )
    return found, str(file)


def image_settings(settings: Mapping[str, Any], source: str) -> ImageSettings:
    """Return the settings in the content of a preprocessor_config.json. source: the file's name, for messages.

    Raises CheckpointError for an unknown type of processor or setting, and for a value out of range.
    """
    processor = _processor(settings, source)
    known = [name for name in ImageSettings.__dataclass_fields__ if name != "processor"]
    values = dict(PROCESSORS[processor])
    square = processor != "CLIP" if settings.get("default_to_square") is None else settings["default_to_square"]
    for name, value in settings.items():
        if value is None or name in NEUTRAL or name == "default_to_square":
            continue
        if name not in known:
            raise CheckpointError(
                f"{source} sets {name} to {shown(value)}, which no image processor here does.{suggest(name, known)}"
            )
        if name in ("size", "crop_size"):
            if processor == "Donut" and name == "size" and isinstance(value, list | tuple):
                value = value[::-1]  # width and height, of its first checkpoints
            values[name] = _size(value, name, source, square=bool(square) or name == "crop_size")
        else:
            check: Check = _VALUES.get(name, _truth)
            values[name] = check(value, name, source)
    return _consistent(ImageSettings(processor, **values), source)


def _processor(settings: Mapping[str, Any], source: str) -> str:
    named = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    known = ", ".join(f"{each}ImageProcessor" for each in PROCESSORS)
    if named is None:
        raise CheckpointError(f"{source} names no image_processor_type. Known: {known}")
    found = re.fullmatch(r"(\w+?)(?:ImageProcessor(?:Fast|Pil)?|FeatureExtractor)", str(named))
    if found is None or found[1] not in PROCESSORS:
        raise CheckpointError(f"{source} asks for an image processor that is not known, {shown(named)}. Known: {known}")
    return found[1]


def _consistent(settings: ImageSettings, source: str) -> ImageSettings:
    """Return the settings. Raises CheckpointError for a step of another type of processor, or a missing size."""
    for step in NO_STEPS[settings.processor]:
        if getattr(settings, step):
            raise CheckpointError(f"{source} sets {step}, which a {settings.processor}ImageProcessor does not do")
    if settings.processor in PAGES and not settings.size.height:
        raise CheckpointError(
            f"{source} gives a size without height and width, to which {settings.processor} fits pages"
        )
    if settings.do_center_crop and (not settings.crop_size or not settings.crop_size.height):
        raise CheckpointError(f"{source} sets do_center_crop and no crop_size with a height and a width")
    return settings


def _size(value: Any, name: str, source: str, *, square: bool) -> ImageSize:
    """Return a size. square: True if a single number is the height and the width; otherwise it is the shortest edge."""
    if _is_side(value):
        return ImageSize(value, value) if square else ImageSize(shortest_edge=value)
    if isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_side, value)):
        return ImageSize(*value)
    if isinstance(value, Mapping):
        sides = {key: side for key, side in value.items() if side is not None}
        if set(sides) in SIZES and all(map(_is_side, sides.values())):
            return ImageSize(**sides)
    known = "; ".join(" and ".join(sorted(keys)) for keys in SIZES)
    raise CheckpointError(
        f"{source} sets {name} to {shown(value)}; known are a number of pixels, and objects with {known}"
    )


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_SIDE


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _truth(value: Any, name: str, source: str) -> bool:
    if isinstance(value, bool):
        return value
    raise CheckpointError(f"{source} sets {name} to {shown(value)}, where true or false belongs")


def _filter(value: Any, name: str, source: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in FILTERS:
        return value
    known = ", ".join(f"{number} ({filter_name})" for number, filter_name in sorted(FILTERS.items()))
    raise CheckpointError(f"{source} sets {name} to {shown(value)}; known are {known}")


def _factor(value: Any, name: str, source: str) -> float:
    if _is_number(value) and value > 0:
        return float(value)
    raise CheckpointError(f"{source} sets {name} to {shown(value)}, where a number above 0 belongs")


def _mean(value: Any, name: str, source: str) -> Triple:
    channels = [value] * 3 if _is_number(value) else value
    if isinstance(channels, list | tuple) and len(channels) == 3 and all(map(_is_number, channels)):
        return (float(channels[0]), float(channels[1]), float(channels[2]))
    raise CheckpointError(f"{source} sets {name} to {shown(value)}, where three numbers belong: red, green, blue")


def _std(value: Any, name: str, source: str) -> Triple:
    channels = _mean(value, name, source)
    if min(channels) > 0:
        return channels
    raise CheckpointError(f"{source} sets {name} to {shown(value)}, by which nothing can be divided")


_VALUES: dict[str, Check] = {
    "resample": _filter,
    "rescale_factor": _factor,
    "image_mean": _mean,
    "image_std": _std,
}
