"""Which plugin runs a checkpoint, and what is said when none does."""

from __future__ import annotations

import pytest

from transept.errors import UnsupportedModelError
from transept.registry.lookup import find_model
from transept.registry.plugins import PluginReport, Plugins
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


def message(architectures: list[str] | None, plugin: str | None = None, plugins: Plugins = PLUGINS) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        find_model(plugins, architectures, "./some/config.json", plugin)
    return str(caught.value)


@pytest.mark.parametrize("architecture", BART.architectures)
def test_every_architecture_of_a_spec_finds_it(architecture: str) -> None:
    assert find_model(PLUGINS, [architecture], "here") is BART


def test_first_architecture_that_is_known_decides() -> None:
    assert find_model(PLUGINS, ["SomethingElse", "BartModel", "T5ForConditionalGeneration"], "here") is BART


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
    assert "Loaded: no plugin at all." in message(["BartModel"], plugins=Plugins(()))


@pytest.mark.parametrize("architectures", [None, []])
def test_config_without_architectures(architectures: list[str] | None) -> None:
    text = message(architectures)
    assert './some/config.json does not say which model it is: there is no "architectures"' in text
    assert "BartForConditionalGeneration" in text


def test_two_claims() -> None:
    text = message(["T5ForConditionalGeneration"])
    assert "quick from transept-quick 2.0 and t5 from transept 0.1.0" in text
    assert 'plugin="quick" or plugin="t5" (--plugin quick on the command line)' in text


@pytest.mark.parametrize(("plugin", "spec"), [("quick", OTHER_T5), ("transept-quick", OTHER_T5), ("t5", T5)])
def test_choosing_between_two_claims(plugin: str, spec: ModelSpec) -> None:
    assert find_model(PLUGINS, ["T5ForConditionalGeneration"], "here", plugin) is spec


def test_unknown_plugin_suggests_the_nearest() -> None:
    text = message(["T5ForConditionalGeneration"], plugin="quik")
    assert text.startswith("""no plugin is named "quik". Did you mean 'quick'?""")


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
