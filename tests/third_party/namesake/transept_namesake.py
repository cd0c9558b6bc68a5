from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec("namesake", ("NamesakeForConditionalGeneration",), "transept_namesake:Model"),
        ModelSpec("other good", ("GoodForConditionalGeneration",), "transept_namesake:Model"),
    ]
