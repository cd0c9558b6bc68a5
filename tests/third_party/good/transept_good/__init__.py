from transept.authoring import ModelSpec, hookimpl


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="good",
            architectures=("GoodModel", "GoodForConditionalGeneration"),
            model_class="transept_good.model:GoodForConditionalGeneration",
        )
    ]


@hookimpl
def find_names(text: str, language: str) -> list[tuple[int, int]]:
    return [(place, place + len("Anna")) for place in range(len(text)) if text.startswith("Anna", place)]
