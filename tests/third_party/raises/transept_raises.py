from transept.authoring import ModelSpec, hookimpl

print("transept-raises says hello")


@hookimpl
def register_models() -> list[ModelSpec]:
    raise RuntimeError("no vocabulary found:\n    looked in vocab.json\n    looked in spiece.model")
