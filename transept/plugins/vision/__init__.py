"""Images to text: TrOCR (Li et al. 2021) reads lines, Donut (Kim et al. 2022) and Nougat (Blecher et al. 2023) pages.

Checkpoints of these are transformers' VisionEncoderDecoderModel; the types of encoder and decoder tell them apart, but
Nougat from Donut, from which it differs in how images are made ready, and its preprocessor_config.json says that.
Florence-2 (Xiao et al. 2023) is asked what to do, Pix2Struct (Lee et al. 2023) does what it was tuned for.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.authoring import CheckpointView, ModelSpec, VisionSpec, VisionTask, dec_prompt, hookimpl
from transept.plugins.vision import florence_tasks


def as_given(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """A user's decoder prompt as it is: each task of a Donut starts with a token of its own."""
    return list(token_ids)


def reads_or_captions(view: CheckpointView) -> dict[str, VisionTask]:
    """Two names for the one thing that a Pix2Struct was tuned for, of which its checkpoint says nothing."""
    return {"read": VisionTask(), "caption": VisionTask()}


@hookimpl
def register_models() -> list[ModelSpec]:
    """Four families, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="trocr",
            architectures=("VisionEncoderDecoderModel",),
            model_class="transept.plugins.vision.model:TrOCR",
            default_decoder_prompt=dec_prompt,
            input_mappers={"image": "transept.plugins.vision.model:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:TROCR"},
            vision=VisionSpec(),
            requires={"encoder.model_type": {"vit", "deit"}, "decoder.model_type": "trocr"},
        ),
        ModelSpec(
            name="donut",
            architectures=("VisionEncoderDecoderModel",),
            model_class="transept.plugins.vision.donut:Donut",
            default_decoder_prompt=dec_prompt,
            prepare_decoder_prompt=as_given,
            input_mappers={"image": "transept.plugins.vision.donut:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:DONUT"},
            vision=VisionSpec(),
            requires={"encoder.model_type": "donut-swin", "decoder.model_type": "mbart"},
        ),
        ModelSpec(
            name="florence2",
            architectures=("Florence2ForConditionalGeneration",),
            model_class="transept.plugins.vision.florence:Florence2",
            default_decoder_prompt=dec_prompt,
            input_mappers={"image": "transept.plugins.vision.florence:map_image"},
            prompted_modalities=("image",),
            weight_maps={"huggingface": "transept.plugins.vision.weights:FLORENCE2"},
            vision=VisionSpec(florence_tasks.tasks),
            requires={"text_config.model_type": "bart"},
        ),
        ModelSpec(
            name="pix2struct",
            architectures=("Pix2StructForConditionalGeneration",),
            model_class="transept.plugins.vision.pix2struct:Pix2Struct",
            default_decoder_prompt=dec_prompt,
            input_mappers={"image": "transept.plugins.vision.pix2struct:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:PIX2STRUCT"},
            vision=VisionSpec(reads_or_captions),
        ),
    ]
