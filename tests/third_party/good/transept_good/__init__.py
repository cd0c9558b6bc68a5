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
