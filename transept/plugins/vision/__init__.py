"""Images to text: TrOCR (Li et al. 2021) reads lines, Donut (Kim et al. 2022) and Nougat (Blecher et al. 2023) pages.

Their checkpoints are transformers' VisionEncoderDecoderModel, with different types of encoder and decoder. Nougat has
Donut's types, and differs only in the preparation of images, which its preprocessor_config.json describes. Florence-2
(Xiao et al. 2023) has several tasks; Pix2Struct (Lee et al. 2023) has the one that it was fine-tuned for.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.authoring import CheckpointView, ModelSpec, VisionSpec, VisionTask, dec_prompt, hookimpl
from transept.plugins.vision import florence_tasks


def as_given(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Return a user's decoder prompt unchanged: each task of a Donut has its own first token."""
    return list(token_ids)


def reads_or_captions(view: CheckpointView) -> dict[str, VisionTask]:
    """Return two names for the task of a Pix2Struct; its checkpoint does not say which one it is."""
    return {"read": VisionTask(), "caption": VisionTask()}


@hookimpl
def register_models() -> list[ModelSpec]:
    """Return four families, for Hugging Face checkpoints."""
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
