from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="anypair",
            architectures=("EncoderDecoderModel",),
            model_class="transept.plugins.bart.model:BartForConditionalGeneration",
            weight_maps={"huggingface": "transept.plugins.bart.weights:HUGGINGFACE"},
        )
    ]
