from transept.authoring import ModelSpec


def register_models() -> list[ModelSpec]:
    return [ModelSpec("unmarked", ("UnmarkedForConditionalGeneration",), "transept_unmarked:Model")]
