"""Which plugin runs a checkpoint, and what is said when none does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from transept.authoring import WeightMap
from transept.cli.plugins.references import with_references
from transept.errors import UnsupportedModelError
from transept.registry.lookup import find_model
from transept.registry.plugins import PluginReport, Plugins, discover
from transept.registry.spec import ModelSpec

BART = ModelSpec("bart", ("BartModel", "BartForConditionalGeneration"), "bart.model:Bart")
T5 = ModelSpec("t5", ("T5ForConditionalGeneration",), "t5.model:T5")
OTHER_T5 = ModelSpec("quick t5", ("T5ForConditionalGeneration",), "quick.model:T5")

PLUGINS = Plugins(
    (
        PluginReport("bart", "transept", "0.1.0", "ok", models=(BART,)),
        PluginReport("quick", "transept-quick", "2.0", "ok", models=(OTHER_T5,)),
        PluginReport("t5", "transept", "0.1.0", "ok", models=(T5,)),
        PluginReport("whisper", "transept", "0.1.0", "disabled"),
        PluginReport("pegasus", "transept-pegasus", "0.3", "failed", error="ImportError: No module named 'foo'"),
    )
)


def message(
    architectures: list[str] | None, plugin: str | None = None, plugins: Plugins = PLUGINS, config: Any = None
) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        find_model(plugins, architectures, config or {}, "./some/config.json", plugin)
    return str(caught.value)


@pytest.mark.parametrize("architecture", BART.architectures)
def test_every_architecture_of_a_spec_finds_it(architecture: str) -> None:
    assert find_model(PLUGINS, [architecture], {}, "here") is BART


def test_first_architecture_that_is_known_decides() -> None:
    assert find_model(PLUGINS, ["SomethingElse", "BartModel", "T5ForConditionalGeneration"], {}, "here") is BART


def test_unknown_architecture() -> None:
    assert message(["PegasusForConditionalGeneration"]) == (
        'no plugin runs "PegasusForConditionalGeneration" (from ./some/config.json).\n'
        "Loaded: bart from transept 0.1.0 (BartModel, BartForConditionalGeneration), "
        "quick from transept-quick 2.0 (T5ForConditionalGeneration), "
        "t5 from transept 0.1.0 (T5ForConditionalGeneration).\n"
        "Failed to load: pegasus from transept-pegasus 0.3 (ImportError: No module named 'foo').\n"
        "Left out by TRANSEPT_DISABLE_PLUGINS: whisper from transept 0.1.0.\n"
        "More model families come as plugins: `transept plugins install` one, a distribution with an entry point in "
        '"transept.plugins", or write it: `transept plugins new`. See `transept plugins check`.'
    )


def test_no_plugins_at_all() -> None:
    assert "Loaded: no plugin." in message(["BartModel"], plugins=Plugins(()))


@pytest.mark.parametrize("architectures", [None, []])
def test_config_without_architectures(architectures: list[str] | None) -> None:
    text = message(architectures)
    assert 'does not say which model it is: its config.json has neither "architectures" nor "model_type".' in text
    assert "bart from transept 0.1.0 (BartModel, BartForConditionalGeneration)" in text
    text = message(architectures, config={"model_type": "led"})
    assert text.startswith(
        'no plugin runs a model of type "led" (from ./some/config.json); its config.json has no "architectures".\n'
    )


@pytest.mark.parametrize("architectures", [None, []])
def test_a_model_type_stands_for_architectures(architectures: list[str] | None) -> None:
    assert find_model(PLUGINS, architectures, {"model_type": "bart"}, "here") is BART
    assert find_model(PLUGINS, architectures, {"model_type": "t5"}, "here", "t5") is T5
    assert "2 plugins run" in message(architectures, config={"model_type": "t5"})


def test_every_family_is_found_by_the_model_type_of_transformers() -> None:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    families = {name: claims for name, claims in discover().claims.items() if name.endswith("ForConditionalGeneration")}
    assert len(families) > 10
    types = {_family(model): model_type for model_type, model in MODEL_MAPPING_NAMES.items() if isinstance(model, str)}
    for architecture, (claim,) in families.items():
        model_type = types.get(_family(architecture)) or architecture.removesuffix("ForConditionalGeneration").lower()
        config = {"model_type": model_type, "text_config": {"model_type": "bart"}}  # which Florence-2 requires
        assert find_model(discover(), None, config, "here") == claim.spec, model_type


def _family(class_name: str) -> str:
    return class_name.removesuffix("ForConditionalGeneration").removesuffix("Model")


def test_two_claims() -> None:
    text = message(["T5ForConditionalGeneration"])
    assert "quick from transept-quick 2.0 and t5 from transept 0.1.0" in text
    assert "plugin='quick' or plugin='t5', or leave" in text


@pytest.mark.parametrize(("plugin", "spec"), [("quick", OTHER_T5), ("transept-quick", OTHER_T5), ("t5", T5)])
def test_choosing_between_two_claims(plugin: str, spec: ModelSpec) -> None:
    assert find_model(PLUGINS, ["T5ForConditionalGeneration"], {}, "here", plugin) is spec


def test_unknown_plugin_suggests_the_nearest() -> None:
    text = message(["T5ForConditionalGeneration"], plugin="quik")
    assert text.startswith("""there is no plugin 'quik'. Did you mean 'quick'?""")


def test_chosen_plugin_does_not_run_it() -> None:
    assert message(["BartModel"], plugin="quick") == (
        'plugin "quick" does not run "BartModel" (from ./some/config.json).\n'
        "Loaded: quick from transept-quick 2.0 (T5ForConditionalGeneration).\n"
        "Plugins that run it: bart from transept 0.1.0 (BartModel, BartForConditionalGeneration)."
    )


def test_chosen_plugin_failed_to_load() -> None:
    assert "pegasus from transept-pegasus 0.3 (ImportError: No module named 'foo')" in message(["X"], plugin="pegasus")


def test_chosen_plugin_is_left_out() -> None:
    assert "TRANSEPT_DISABLE_PLUGINS" in message(["X"], plugin="whisper")


def spec(name: str, architectures: tuple[str, ...] = ("VisionEncoderDecoderModel",), **requires: Any) -> ModelSpec:
    dotted = {key.replace("__", "."): value for key, value in requires.items()}
    return ModelSpec(name, architectures, "some.model:Model", requires=dotted)


def installed(*specs: ModelSpec) -> Plugins:
    """Each spec in a plugin of its own."""
    return Plugins(tuple(PluginReport(each.name, f"transept-{each.name}", "1", "ok", models=(each,)) for each in specs))


TROCR = spec("trocr", encoder__model_type={"vit", "deit"}, decoder__model_type="trocr")
DONUT = spec("donut", encoder__model_type="donut-swin", decoder__model_type=("mbart", "bart"))
TROCR_CONFIG = {"encoder": {"model_type": "deit"}, "decoder": {"model_type": "trocr"}}
DONUT_CONFIG = {"encoder": {"model_type": "donut-swin"}, "decoder": {"model_type": "bart"}}


@pytest.mark.parametrize(
    "plugins", [installed(TROCR, DONUT), installed(DONUT, TROCR)], ids=["one way", "and the other"]
)
def test_what_specs_require_decides_between_them(plugins: Plugins) -> None:
    assert find_model(plugins, ["VisionEncoderDecoderModel"], TROCR_CONFIG, "here") is TROCR
    assert find_model(plugins, ["VisionEncoderDecoderModel"], DONUT_CONFIG, "here") is DONUT
    assert plugins.conflicts == {}


def test_several_specs_of_one_plugin_share_an_architecture() -> None:
    report = PluginReport("vision", "transept-vision", "1", "ok", models=(TROCR, DONUT))
    assert find_model(Plugins((report,)), ["VisionEncoderDecoderModel"], DONUT_CONFIG, "here") is DONUT
    assert report.architectures == ("VisionEncoderDecoderModel",)
    text = message(["VisionEncoderDecoderModel"], plugins=Plugins((report,)), config={})
    assert "  trocr (vision from transept-vision 1) requires " in text
    assert "  donut (vision from transept-vision 1) requires " in text


def test_next_architecture_is_tried_where_none_of_the_first_fits() -> None:
    other = spec("other", ("Other",))
    assert find_model(installed(TROCR, other), ["VisionEncoderDecoderModel", "Other"], DONUT_CONFIG, "here") is other


@pytest.mark.parametrize(
    ("required", "config", "met"),
    [
        (True, {"key": True}, True),
        (True, {"key": 1}, False),
        (1, {"key": True}, False),
        (1, {"key": 1.0}, True),
        (None, {}, True),
        (None, {"key": None}, True),
        (None, {"key": "a"}, False),
        ({None, "a"}, {"key": "a"}, True),
        ("a", {"key": ["a"]}, False),
        ("a", {"key": {"a": "a"}}, False),
    ],
)
def test_values_that_are_required(required: Any, config: dict[str, Any], met: bool) -> None:
    plugins = installed(spec("some", ("Some",), key=required))
    if met:
        assert find_model(plugins, ["Some"], config, "here")
    else:
        assert "requires key" in message(["Some"], plugins=plugins, config=config)


@pytest.mark.parametrize("config", [{}, {"encoder": None}, {"encoder": "vit"}, {"encoder": [{"model_type": "vit"}]}])
def test_config_without_the_nested_key(config: dict[str, Any]) -> None:
    text = message(["VisionEncoderDecoderModel"], plugins=installed(TROCR), config=config)
    assert "Its config.json has encoder.model_type missing, decoder.model_type missing:" in text


def test_chosen_plugin_requires_something_else() -> None:
    text = message(["VisionEncoderDecoderModel"], "trocr", installed(TROCR, DONUT), DONUT_CONFIG)
    assert text.startswith('plugin "trocr" does not run "VisionEncoderDecoderModel"')
    assert (
        "trocr (trocr from transept-trocr 1) requires encoder.model_type 'deit' or 'vit' and decoder.model_type 'tr"
        in text
    )
    assert "Plugins that run it: donut from transept-donut 1 (VisionEncoderDecoderModel with encoder.mod" in text


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": {1, 2}}, {"a": (2, 3)}, True),
        ({"a": {1, 2}}, {"a": {3, 4}}, False),
        ({"a": 1, "b": 1}, {"a": 1, "b": 2}, False),
        ({"a": None}, {"a": "x"}, False),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_claims_are_rivals_where_one_config_could_fit_both(
    one: dict[str, Any], other: dict[str, Any], both: bool
) -> None:
    plugins = installed(spec("one", **one), spec("other", **other))
    assert [claim.report.name for claim in plugins.conflicts.get("VisionEncoderDecoderModel", ())] == (
        ["one", "other"] if both else []
    )


SOUND = ModelSpec(
    "sound",
    ("Sound",),
    "transept.plugins.bart.model:BartForConditionalGeneration",
    weight_maps={"huggingface": "transept.plugins.bart.weights:HUGGINGFACE", "ctranslate2": WeightMap(())},
)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({}, None),
        (
            {"model_class": "transept.plugins.bart.weights:bart_layer_rules"},
            "which is not a subclass of ForConditionalGeneration",
        ),
        ({"model_class": "torch.nn:Linear"}, "which is not a subclass of ForConditionalGeneration"),
        ({"weight_maps": {"huggingface": WeightMap}}, "which is not a WeightMap"),
        ({"weight_maps": {"huggingface": "transept.authoring:WeightMap"}}, "which is not a WeightMap"),
        ({"weight_maps": {"huggingface": lambda: WeightMap(())}}, "which is not a WeightMap"),
        ({"input_mappers": {"image": "transept.plugins.bart.weights:HUGGINGFACE"}}, "which is not a function"),
    ],
)
def test_references_are_checked_to_be_of_the_right_kind(changed: dict[str, Any], error: str | None) -> None:
    spec = dataclasses.replace(SOUND, **changed)
    (report,) = with_references(Plugins((PluginReport("sound", "x", "1", "ok", models=(spec,)),))).reports
    assert report.status == ("ok" if error is None else "failed")
    assert (error or "") in (report.error or "")
    assert all(name in (report.error or "") for name in changed)
