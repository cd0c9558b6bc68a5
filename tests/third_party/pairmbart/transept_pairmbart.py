from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="pairmbart",
            architectures=("EncoderDecoderModel",),
            model_class="transept.plugins.bart.model:MBartForConditionalGeneration",
            default_decoder_prompt=lambda view: [view.config.decoder_start_token_id],
            weight_maps={"huggingface": "transept.plugins.bart.weights:HUGGINGFACE"},
            requires={"decoder.model_type": "mbart"},
        )
    ]
