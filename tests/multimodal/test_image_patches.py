"""flattened_patches beside transformers' Pix2StructImageProcessor, and settings that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import picture
from PIL import Image
from transformers import Pix2StructImageProcessorPil

from transept.errors import CheckpointError
from transept.multimodal.image_patches import PatchSettings, flattened_patches, read_patch_settings
from transept.registry.checkpoint_view import CheckpointView

SIZES = [(1, 1), (3, 500), (16, 16), (61, 97), (200, 31), (333, 480), (640, 200)]


@pytest.mark.parametrize(
    "values",
    [{}, {"max_patches": 100}, {"max_patches": 50, "patch_size": {"height": 8, "width": 12}}, {"do_normalize": False}],
    ids=str,
)
def test_the_same_patches_as_transformers(values: dict[str, Any], tmp_path: Path) -> None:
    theirs = Pix2StructImageProcessorPil(**values)
    theirs.save_pretrained(tmp_path)
    settings = read_patch_settings(CheckpointView(tmp_path, None))
    for size in SIZES:
        image = picture(*size)
        expected = theirs(Image.fromarray(image), return_tensors="pt")
        patches = flattened_patches(image, settings)
        assert len(patches) <= settings.max_patches
        padded = torch.nn.functional.pad(patches, (0, 0, 0, settings.max_patches - len(patches)))
        torch.testing.assert_close(padded, expected.flattened_patches[0], rtol=0, atol=1e-6, msg=str(size))
        assert expected.attention_mask[0].sum() == len(patches)


def test_an_image_in_one_colour() -> None:
    image = np.full((40, 50, 3), 77, np.uint8)
    expected = Pix2StructImageProcessorPil(max_patches=12)(Image.fromarray(image), return_tensors="pt")
    patches = flattened_patches(image, PatchSettings(max_patches=12))
    torch.testing.assert_close(patches, expected.flattened_patches[0][: len(patches)], rtol=0, atol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"image_processor_type": "ViTImageProcessor"}, "not of a Pix2StructImageProcessor"),
    "an unknown setting": ({"max_patch": 5}, "Did you mean 'max_patches'?"),
    "questions": ({"is_vqa": True}, "questions drawn above the image"),
    "a flag in text": ({"do_normalize": "no"}, "do_normalize to 'no'"),
    "no patches": ({"max_patches": 0}, "max_patches to 0"),
    "patches of half a pixel": ({"patch_size": {"height": 0.5, "width": 16}}, "numbers from 1 to"),
    "patches without a width": ({"patch_size": {"height": 16}}, "numbers from 1 to"),
    "patches in text": ({"patch_size": "16"}, "numbers from 1 to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_refused(name: str, tmp_path: Path) -> None:
    values, message = REFUSED[name]
    settings = {"image_processor_type": "Pix2StructImageProcessor", **values}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError) as raised:
        read_patch_settings(CheckpointView(tmp_path, None))
    assert message in str(raised.value)
    assert "preprocessor_config.json" in str(raised.value)
