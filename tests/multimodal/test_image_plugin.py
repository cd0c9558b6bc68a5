"""Images from the prompt to the tokens: a plugin's model that reads them, beside the same in transformers."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import encoded, picture
from PIL import Image
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, CLIPImageProcessorPil

from transept import SamplingParams
from transept.errors import MediaError, PromptError
from transept.testing import Parity

SIZES = [(64, 64), (40, 120), (97, 61), (200, 300)]  # of images: 4, 12, 6 and 6 patches


class SeeingBart(BartForConditionalGeneration):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.patches = nn.Conv2d(3, config.d_model, 16, stride=16)


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """seeing_bart, with the metadata that an installer writes."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "transept_seeing_bart-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transept-seeing-bart\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[transept.plugins]\nseeing-bart = seeing_bart\n")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(site)
        yield


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=320,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=200,
        init_std=0.3,
    )
    reference = SeeingBart(config)
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, do_center_crop=False)
    directory = tmp_path_factory.mktemp("seeing-bart")
    inputs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for size in SIZES:
        values = processor(Image.fromarray(picture(*size)), return_tensors="pt").pixel_values
        with torch.no_grad():
            embeddings = reference.patches(values).flatten(2).transpose(1, 2)
        inputs.append(({"image": encoded(picture(*size), "PNG")}, {"inputs_embeds": embeddings}))
    made = Parity(reference, directory, inputs=inputs)
    processor.save_pretrained(directory)
    return made


def test_prefill(parity: Parity) -> None:
    parity.check_prefill()


def test_decode(parity: Parity) -> None:
    parity.check_decode()


def test_batch(parity: Parity) -> None:
    parity.check_batch()


def test_preemption(parity: Parity) -> None:
    parity.check_preemption()


def test_every_form_of_an_image_gives_the_same_tokens(parity: Parity, tmp_path: Path) -> None:
    pixels = picture(*SIZES[1])
    path = tmp_path / "page.png"
    path.write_bytes(encoded(pixels, "PNG"))
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    forms = [path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), Image.open(path), pixels, tensor]
    prompts = [{"multi_modal_data": {"image": form}} for form in forms]
    prompts.append({"encoder_prompt": {"multi_modal_data": {"image": path}}, "decoder_prompt": None})
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    outputs = parity.engine.generate(prompts, params)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    (other,) = parity.engine.generate({"multi_modal_data": {"image": np.zeros_like(pixels)}}, params)
    assert other.outputs[0].token_ids != outputs[0].outputs[0].token_ids


def test_what_is_no_image_is_refused_as_such(parity: Parity) -> None:
    with pytest.raises(MediaError, match="not a readable image: pass a whole PNG"):
        parity.engine.generate({"multi_modal_data": {"image": b"Dear Sir"}})
    with pytest.raises(MediaError, match=r'no mapper for "images" data\. They take: "image"; did you mean "image"'):
        parity.engine.generate({"multi_modal_data": {"images": picture()}})
    with pytest.raises(PromptError, match=r'takes no text; pass \{"multi_modal_data": \{"image": \.\.\.\}\}'):
        parity.engine.generate({"prompt_tokens": [5, 6]})
