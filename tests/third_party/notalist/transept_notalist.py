from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> ModelSpec:
    return ModelSpec("notalist", ("NotAListForConditionalGeneration",), "transept_notalist:Model")
