from transept.authoring import ModelSpec, dec_bos_prompt, hookimpl, prepend_dec

BART_WEIGHTS = "transept.plugins.bart.weights:HUGGINGFACE"
IN_THE_MODEL = (
    "LatePositions",
    "SharpEncoder",
    "NoFinalBias",
    "HeadOfItsOwn",
    "DoubledLogits",
    "StuckPositions",
    "ForgetsAfter128",
    "MixedBatch",
    "ShortPrefill",
    "CoarseInHalf",
    "OverflowsInHalf",
)


def spec(name: str, model: str = "Right", prompt=dec_bos_prompt, prepare=prepend_dec, weights=BART_WEIGHTS):
    return ModelSpec(
        name=name,
        architectures=(name,),
        model_class=f"transept_faulty.model:{model}",
        default_decoder_prompt=prompt,
        prepare_decoder_prompt=prepare,
        weight_maps={"huggingface": weights},
    )


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        *(spec(name, name) for name in IN_THE_MODEL),
        spec("NoStartToken", prompt=lambda view: [view.config.bos_token_id]),
        spec("StartTokenTwice", prepare=lambda token_ids, view: [view.config.decoder_start_token_id, *token_ids]),
        spec("SettingsLost", weights="transept_faulty.model:SETTINGS_LOST"),
    ]
