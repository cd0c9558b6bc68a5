from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_model() -> list[ModelSpec]:
    return [ModelSpec("misspelt", ("MisspeltForConditionalGeneration",), "transept_misspelt:Model")]
