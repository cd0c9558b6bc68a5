"""The declaration of the Skeleton family. Imported whenever plugins are listed, so it imports nothing heavy."""

from transept.authoring import ModelSpec, VisionSpec, dec_prompt, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="skeleton",
            architectures=("SkeletonForConditionalGeneration",),  # as in config.json; there may be several
            model_class="transept_skeleton.model:SkeletonForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            weight_maps={"huggingface": "transept_skeleton.weights:HUGGINGFACE"},
            input_mappers={"image": "transept_skeleton.mapper:map_image"},
            vision=VisionSpec(),
        )
    ]
