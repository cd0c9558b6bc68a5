"""The rules of discovery, each proved with plugins that pip installed and that a fresh interpreter discovers."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any

import pytest
from plugin_environment import EVERY_PLUGIN, Environment

INSTALLED = {"transept", "transept-speakers"}  # plugins of the environment that runs the tests
# distribution -> (plugin, version, error that is reported)
BROKEN = {
    "transept-noimport": ("noimport", "0.3", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
    "transept-exits": ("exits", "0.1", "SystemExit: this plugin needs a licence"),
    "transept-misspelt": (
        "misspelt",
        "0.1",
        (
            'PluginError: unknown hook "register_model"; the hooks are "register_models", "diarize", "embed_voice", '
            '"voice_model", "find_names", "align_words"'
        ),
    ),
    "transept-unmarked": (
        "unmarked",
        "0.1",
        (
            "PluginError: no hook: define one of register_models(), diarize(), embed_voice(), voice_model(), "
            "find_names(), align_words(), and mark it with @hookimpl"
        ),
    ),
    "transept-raises": (
        "raises",
        "0.1",
        "RuntimeError: no vocabulary found: looked in vocab.json looked in spiece.model",
    ),
    "transept-notalist": (
        "notalist",
        "0.1",
        "PluginError: register_models returned a value of type ModelSpec, not a list of ModelSpec",
    ),
    "transept-noattr": ("noattr", "0.1", "AttributeError: module 'transept_noattr' has no attribute 'plugin'"),
}
LICENCE = "this plugin needs a licence"
LEFT_OUT = ",".join(
    ["transept-rival", "transept-namesake", "transept-anypair", "transept-unresolved", *BROKEN]
)  # so that only what works is left

FIND = """
import json, sys
from transept.errors import TranseptError
from transept.registry.lookup import find_model
from transept.registry.plugins import discover
try:
    config = json.loads(sys.argv[3])
    found = find_model(discover(), sys.argv[1].split(","), config, "./some/config.json", sys.argv[2] or None)
    print(found.name)
except TranseptError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def find(
    environment: Environment, architecture: str, plugin: str = "", config: str = "{}", disable: str | None = None
) -> CompletedProcess[str]:
    return environment.run(FIND, architecture, plugin, config, disable=disable)


def found(environment: Environment, *arguments: str, disable: str | None = None) -> str:
    """The name of the model family that was found for an architecture and, if given, a plugin and a config.json."""
    done = find(environment, *arguments, disable=disable)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]  # transept-raises prints a line of its own before


@pytest.fixture(scope="session")
def listed(crowded: Environment) -> dict[str, dict[str, Any]]:
    """Distribution -> the line of `transept plugins list --json` about it."""
    done = crowded.cli("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {plugin["distribution"]: plugin for plugin in json.loads(done.stdout)["plugins"]}


def test_each_plugin_is_listed(listed: dict[str, dict[str, Any]]) -> None:
    assert set(listed) == {*INSTALLED, *(f"transept-{plugin}" for plugin in EVERY_PLUGIN)}


@pytest.mark.parametrize("distribution", BROKEN)
def test_broken_plugin_is_reported_in_one_line(listed: dict[str, dict[str, Any]], distribution: str) -> None:
    name, version, error = BROKEN[distribution]
    assert listed[distribution] == {
        "name": name,
        "distribution": distribution,
        "version": version,
        "status": "failed",
        "architectures": [],
        "models": [],
        "diarizes": False,
        "recognizes_voices": False,
        "finds_names": False,
        "times_words": False,
        "error": error,
    }


def test_what_a_model_requires_is_listed(listed: dict[str, dict[str, Any]], crowded: Environment) -> None:
    (model,) = listed["transept-pairbart"]["models"]
    assert model["architectures"] == ["EncoderDecoderModel"]
    assert model["requires"] == {"encoder.model_type": ["bart", "plbart"], "decoder.model_type": ["bart"]}
    table = crowded.cli("plugins", "list").stdout
    assert "  EncoderDecoderModel with encoder.model_type 'bart' or 'plbart' and decoder.model_type 'bart'\n" in table


def test_broken_plugins_stop_no_other(listed: dict[str, dict[str, Any]]) -> None:
    assert listed["transept-good"] == {
        "name": "good",
        "distribution": "transept-good",
        "version": "1.2",
        "status": "conflict",  # with transept-namesake
        "architectures": ["GoodModel", "GoodForConditionalGeneration"],
        "models": [
            {"name": "good", "architectures": ["GoodModel", "GoodForConditionalGeneration"], "requires": {}},
        ],
        "diarizes": False,
        "recognizes_voices": False,
        "finds_names": True,
        "times_words": False,
        "error": None,
    }
    working = {distribution for distribution, plugin in listed.items() if plugin["status"] in ("ok", "conflict")}
    paired = {"transept-pairbart", "transept-pairmbart", "transept-anypair"}
    loads = {*INSTALLED, "transept-good", "transept-rival", "transept-namesake", "transept-unresolved"}
    assert working == {*loads, *paired}


def test_names_are_found_by_a_plugin(crowded: Environment) -> None:
    redact = (
        "from transept import Transcript\n"
        "given = {'segments': [{'start': 0, 'end': 1, 'text': ' It is Anna.'}], 'language': 'en'}\n"
        "print(Transcript.from_dict(given).redacted('names').text)"
    )
    done = crowded.run(redact)
    assert done.stdout.endswith("It is [name].\n"), done.stderr
    assert "finds names" in crowded.cli("plugins", "list").stdout


def test_broken_plugins_stop_no_model_that_another_serves(crowded: Environment) -> None:
    assert found(crowded, "GoodModel") == "good"


def test_broken_plugins_are_named_when_nothing_serves_the_model(crowded: Environment) -> None:
    done = find(crowded, "MisspeltForConditionalGeneration")
    assert done.returncode == 1
    assert 'no plugin runs "MisspeltForConditionalGeneration" (from ./some/config.json)' in done.stderr
    for distribution, (name, version, error) in BROKEN.items():
        assert f"{name} from {distribution} {version} ({error})" in done.stderr


def test_unknown_architecture_lists_what_is_known_and_how_to_install_more(crowded: Environment) -> None:
    done = find(crowded, "BlenderbotForConditionalGeneration")
    assert done.returncode == 1
    assert done.stderr.startswith('UnsupportedModelError: no plugin runs "BlenderbotForConditionalGeneration"')
    assert "good from transept-good 1.2 (GoodModel, GoodForConditionalGeneration, finds names)" in done.stderr
    assert "rival from transept-rival 2.0 (WhisperForConditionalGeneration)" in done.stderr
    assert "transept plugins install" in done.stderr
    assert "transept plugins check" in done.stderr


def test_plugins_that_share_a_name_are_kept_apart(crowded: Environment, listed: dict[str, dict[str, Any]]) -> None:
    assert listed["transept-good"]["name"] == listed["transept-namesake"]["name"] == "good"
    assert found(crowded, "GoodModel", "good") == "good"
    assert found(crowded, "NamesakeForConditionalGeneration", "good") == "namesake"


def test_plugins_that_share_a_name_are_told_apart_by_distribution(crowded: Environment) -> None:
    done = find(crowded, "GoodForConditionalGeneration", "good")
    assert done.returncode == 1
    assert "plugin='transept-good' or plugin='transept-namesake'" in done.stderr
    assert found(crowded, "GoodForConditionalGeneration", "transept-namesake") == "other good"


def test_two_claims_on_one_architecture_name_both_distributions(crowded: Environment) -> None:
    done = find(crowded, "WhisperForConditionalGeneration")
    assert done.returncode == 1
    assert '2 plugins run "WhisperForConditionalGeneration"' in done.stderr
    assert "rival from transept-rival 2.0 and whisper from transept " in done.stderr
    assert "plugin='rival' or plugin='whisper'" in done.stderr


@pytest.mark.parametrize("plugin", ["whisper", "rival"])
def test_the_user_picks_one_of_two_claims(crowded: Environment, plugin: str) -> None:
    assert found(crowded, "WhisperForConditionalGeneration", plugin) == f"{plugin}"


PAIRS = {
    "pairbart": '{"encoder": {"model_type": "plbart"}, "decoder": {"model_type": "bart"}}',
    "pairmbart": '{"decoder": {"model_type": "mbart"}}',
}


@pytest.mark.parametrize("plugin", PAIRS)
def test_nested_model_types_decide_between_claims(crowded: Environment, plugin: str) -> None:
    assert found(crowded, "EncoderDecoderModel", "", PAIRS[plugin], disable="anypair") == plugin


def test_no_claim_fits_the_nested_model_types(crowded: Environment) -> None:
    config = '{"encoder": {"model_type": "swin"}, "decoder": {"model_type": "bart"}}'
    done = find(crowded, "EncoderDecoderModel", "", config, disable="anypair")
    assert done.stderr.startswith(
        'UnsupportedModelError: no plugin runs "EncoderDecoderModel" (from ./some/config.json).\n'
        "Its config.json has encoder.model_type 'swin', decoder.model_type 'bart':\n"
        "  pairbart (pairbart from transept-pairbart 0.1) requires encoder.model_type 'bart' or 'plbart' and "
        "decoder.model_type 'bart'.\n"
        "  pairmbart (pairmbart from transept-pairmbart 0.1) requires decoder.model_type 'mbart'.\n"
    )


def test_claims_that_can_both_match_are_a_conflict(crowded: Environment) -> None:
    done = find(crowded, "EncoderDecoderModel", "", PAIRS["pairmbart"])
    assert "plugin='anypair' or plugin='pairmbart', or leave" in done.stderr
    assert found(crowded, "EncoderDecoderModel", "pairmbart", PAIRS["pairmbart"]) == "pairmbart"
    checked = crowded.cli("plugins", "list", disable=LEFT_OUT.replace("transept-anypair,", ""))
    assert (
        "Conflict: EncoderDecoderModel is run by anypair (transept-anypair) and by pairbart (transept-pairbart) with "
        "encoder.model_type 'bart' or 'plbart' and decoder.model_type 'bart' and by pairmbart (transept-pairmbart) with"
    ) in checked.stdout


def test_disabling_one_of_two_claims_settles_it(crowded: Environment) -> None:
    assert found(crowded, "WhisperForConditionalGeneration", disable="rival") == "whisper"


def test_disabled_plugins_are_not_even_imported(crowded: Environment) -> None:
    code = """
import sys
from transept.registry.plugins import discover
print(*(report.status for report in discover().reports if report.name in ("raises", "rival")))
print(any(name in sys.modules for name in ("transept_raises", "transept_rival")))
"""
    done = crowded.run(code, disable=" raises, transept-rival,,")
    assert done.stdout == "disabled disabled\nFalse\n"
    assert done.stderr == ""


def test_disabled_plugins_are_named_when_their_model_is_asked_for(crowded: Environment) -> None:
    done = find(crowded, "GoodModel", disable="good")
    assert done.returncode == 1
    assert "Left out by TRANSEPT_DISABLE_PLUGINS: good from transept-good 1.2" in done.stderr


def test_disabling_what_does_not_exist_is_a_warning(healthy: Environment) -> None:
    done = find(healthy, "GoodModel", disable="wisper")
    assert done.stdout == "good\n"
    assert (
        """TRANSEPT_DISABLE_PLUGINS names "wisper", but no such plugin is installed. Did you mean 'whisper'?"""
        in done.stderr
    )


def test_check_fails_when_a_plugin_failed(crowded: Environment) -> None:
    rest = LEFT_OUT.replace("transept-misspelt", "").replace(",,", ",")
    done = crowded.cli("plugins", "check", disable=rest)
    assert done.returncode == 1
    assert BROKEN["transept-misspelt"][2] in done.stdout


def test_check_fails_when_two_plugins_claim_one_architecture(crowded: Environment) -> None:
    done = crowded.cli("plugins", "check", disable=LEFT_OUT.replace("transept-rival,", ""))
    assert done.returncode == 1
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[3] for row in rows if row[0] in ("rival", "whisper")] == ["failed", "conflict"]
    assert (
        "Conflict: WhisperForConditionalGeneration is run by rival (transept-rival) and by whisper (transept)"
        in done.stdout
    )


def test_check_passes_when_the_broken_and_the_rivals_are_left_out(crowded: Environment) -> None:
    done = crowded.cli("plugins", "check", disable=LEFT_OUT)
    assert done.returncode == 0, done.stdout


def test_check_passes_in_a_healthy_environment(healthy: Environment) -> None:
    done = healthy.cli("plugins", "check", "--json")
    assert done.returncode == 0, done.stdout
    data = json.loads(done.stdout)
    assert {*INSTALLED, "transept-good"} == {plugin["distribution"] for plugin in data["plugins"]}
    assert data["conflicts"] == []


def test_check_shows_where_a_plugin_failed(crowded: Environment) -> None:
    done = crowded.cli("plugins", "check", "--traceback")
    assert 'transept_raises.py", line 8, in register_models' in done.stderr


def test_check_imports_what_plugins_name(crowded: Environment) -> None:
    rest = LEFT_OUT.replace("transept-unresolved,", "")
    assert "unresolved" in crowded.cli("plugins", "list", disable=rest).stdout
    done = crowded.cli("plugins", "check", "--json", "--traceback", disable=rest)
    assert done.returncode == 1
    reports = {report["name"]: report for report in json.loads(done.stdout)["plugins"]}
    assert {report["status"] for name, report in reports.items() if name != "unresolved"} == {"ok", "disabled"}
    assert reports["unresolved"]["status"] == "failed"
    named, nobody = "of unresolved: ", "cannot be imported: ModuleNotFoundError: No module named "
    assert reports["unresolved"]["error"].split("; ") == [
        f'model_class {named}"transept_unresolved:Model": module transept_unresolved has no attribute Model',
        f'input_mappers["image"] {named}"transept_unresolved_mapper:map_image" {nobody}\'a_module_that_nobody_has\'',
        f'input_mappers["audio_features"] {named}"json:__name__" is \'json\', which is not a function',
        f'weight_maps["huggingface"] {named}"transept_nowhere.weights:HUGGINGFACE" {nobody}\'transept_nowhere\'',
        f'weight_maps["ctranslate2"] {named}"json:__name__" is \'json\', which is not a WeightMap',
        f'speech.features {named}"transept_unresolved_licence:features" cannot be imported: SystemExit: {LICENCE}',
        f'speech.timestamp_rules {named}"no colon" is not a reference',
        'write "package.module:attribute"',
    ]
    assert "import a_module_that_nobody_has" in done.stderr


def test_table_is_aligned(crowded: Environment) -> None:
    head, *rows = crowded.cli("plugins", "list").stdout.splitlines()
    names = [row.split()[0] for row in rows if not row.startswith("Conflict: ")]
    assert names == sorted(names)  # failed ones in their place
    for row in rows:
        if not row.startswith("Conflict: "):
            assert row[head.index("STATUS") :].split()[0] in ("ok", "failed", "conflict")


def test_listing_imports_nothing_heavy(healthy: Environment) -> None:
    code = """
import sys
import transept.cli
for arguments in (["--help"], ["plugins", "list"]):
    try:
        transept.cli.main(arguments)
    except SystemExit as done:
        assert done.code == 0
print("heavy:", *({"torch", "transformers", "transept_good.model"} & set(sys.modules)))
"""
    done = healthy.run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_model_class_is_imported_on_first_use(healthy: Environment) -> None:
    code = """
from transept.registry.lookup import find_model
from transept.registry.plugins import discover
from transept.registry.spec import resolve
print(resolve(find_model(discover(), ["GoodModel"], {}, "here").model_class).__name__)
"""
    assert healthy.run(code).stdout == "GoodForConditionalGeneration\n"
