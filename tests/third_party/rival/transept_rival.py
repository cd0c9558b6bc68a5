from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    return [ModelSpec("rival", ("WhisperForConditionalGeneration",), "transept_rival:Model")]
