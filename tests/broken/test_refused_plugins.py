"""Plugins that break their contract: whoever asks for their model is told which plugin, and what is wrong with it.

Each row is a distribution of its own: a module, and beside it the metadata that an installer writes, on sys.path.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusal import refused, watched

from transept import Engine, SamplingParams, TextGenerator, Transcriber
from transept.errors import CheckpointError, PluginError, PluginFailedError, TranseptError
from transept.registry.plugins import discover

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 22}
HEAD = """
import dataclasses
import torch
from transept.authoring import ModelShape, ModelSpec, SpeechSpec, TextSpec, TextTask, WeightMap, hookimpl
from transept.multimodal import MappedInput
from transept.plugins.bart.model import BartForConditionalGeneration
from transept.plugins.bart.weights import HUGGINGFACE


class Model(BartForConditionalGeneration):
    def encode(self, ids, positions, metadata, sound=None, **others):
        if sound is None:
            return super().encode(ids, positions, metadata)
        return torch.zeros(sum(len(each) for each in sound), self.config.d_model)


def five_tokens(data, view):
    return MappedInput({"sound": torch.zeros(5)}, num_tokens=5)
"""
TAIL = """

@hookimpl
def register_models():
    spec = {"name": "row", "architectures": ("RowModel",), "model_class": "transept_row:Model",
            "weight_maps": {"huggingface": HUGGINGFACE}, "input_mappers": {"sound": five_tokens}}
    return [ModelSpec(**{**spec, **CHANGED})]
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BART's weights in a checkpoint that asks for RowModel."""
    path = Path(shutil.copytree(CMUDICT / "bart-g2p", tmp_path_factory.mktemp("row") / "model"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "architectures": ["RowModel"]}))
    return path


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    Engine(CMUDICT / "bart-g2p", **SMALL).generate("ox", SamplingParams(max_tokens=2))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(source: str, reference: str = "transept_row", name: str = "row") -> None:
        site = tmp_path / "site"
        metadata = site / f"transept_{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: transept-{name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[transept.plugins]\n{name} = {reference}\n")
        (site / "transept_row.py").write_text(source)
        monkeypatch.delitem(sys.modules, "transept_row", raising=False)
        monkeypatch.syspath_prepend(site)

    return install


def test_what_the_rows_have_in_common_is_sound(install, checkpoint):
    install(f"{HEAD}\nCHANGED = {{}}\n{TAIL}")
    engine = Engine(checkpoint, **SMALL)
    reference = Engine(CMUDICT / "bart-g2p", **SMALL)
    params = SamplingParams(max_tokens=8)
    assert engine.generate("ox", params)[0].outputs[0].text == reference.generate("ox", params)[0].outputs[0].text
    assert engine.generate({"multi_modal_data": {"sound": 1}}, params)[0].outputs[0].token_ids


# --------------------------------------------------------------------------------------------- plugins that do not load

SPEC = 'ModelSpec("row", ("RowModel",), "transept_row:Model")'
HOOK = "from transept.authoring import ModelSpec, hookimpl\n@hookimpl\ndef register_models():\n    "

UNLOADED: dict[str, tuple[str, str]] = {
    "a module that is not installed": ("import a_module_that_nobody_has", "a_module_that_nobody_has"),
    "a module that is no Python": ("def register_models(:", "SyntaxError"),
    "a module that raises": ("raise RuntimeError('no licence')", "no licence"),
    "a module that ends the program": ("import sys; sys.exit('no licence')", "no licence"),
    "a module that recurses for ever": ("def f(): return f()\nf()", "RecursionError"),
    "a module that asks for a terabyte": ("import numpy; numpy.ones(1 << 40)", "MemoryError"),
    "a module with a zero byte": ("\0", "null bytes"),
    "no hook": ("models = []", "no hook: define one of register_models()"),
    "a hook without its mark": ("def register_models():\n    return []", "no hook: define one of register_models()"),
    "a hook that is misspelt": (HOOK.replace("register_models", "register_model") + f"return [{SPEC}]", "unknown hook"),
    "a hook that takes arguments": (HOOK.replace("()", "(config)") + f"return [{SPEC}]", "config"),
    "a hook that raises": (HOOK + "raise KeyError('vocabulary')", "vocabulary"),
    "a hook that raises what cannot be printed": (
        HOOK + "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
        "cannot be shown",
    ),
    "a hook that returns nothing": (HOOK + "pass", "None"),
    "a hook that returns a spec": (HOOK + f"return {SPEC}", "not a list"),
    "a hook that returns names": (HOOK + "return ['RowModel']", "RowModel"),
    "a hook that returns dicts": (HOOK + "return [{'name': 'row'}]", "dict"),
    "a hook that is a generator": (HOOK + f"yield {SPEC}", "generator"),
    "a spec without a name": (HOOK + 'return [ModelSpec("", ("RowModel",), "a:B")]', "name"),
    "a spec whose architectures are text": (HOOK + 'return [ModelSpec("row", "RowModel", "a:B")]', "architectures"),
    "a spec of no architecture": (HOOK + 'return [ModelSpec("row", (), "a:B")]', "architectures"),
    "a spec with an unknown field": (HOOK + 'return [ModelSpec("row", ("RowModel",), "a:B", speed=9)]', "speed"),
    "a spec whose model is a class": (HOOK + 'return [ModelSpec("row", ("RowModel",), dict)]', "package.module"),
    "a spec whose model is a path": (HOOK + 'return [ModelSpec("row", ("RowModel",), "a/b.py")]', "a/b.py"),
    "a hook that gives an argument a value": (
        "from transept.authoring import hookimpl\n@hookimpl\ndef diarize(waveform, max_speakers=None): ...",
        "diarize never gets max_speakers",
    ),
    "a voice embedder without its model": (
        "from transept.authoring import hookimpl\n@hookimpl\ndef embed_voice(waveform, sample_rate): ...",
        "voice_model()",
    ),
    "an architecture declared twice": (HOOK + f"return [{SPEC}, {SPEC}]", "declared twice"),
    "a weight map that is no regular expression": (
        "from transept.authoring import WeightMap\nWeightMap(rules=(('(', 'x'),))",
        "regular expression",
    ),
}


@pytest.mark.parametrize(("source", "names"), UNLOADED.values(), ids=list(UNLOADED))
def test_plugin_that_does_not_load(source, names, install, checkpoint):
    install(source)
    error = refused(lambda: watched(lambda: Engine(checkpoint, **SMALL)), names)
    assert "row from transept-row 1.0" in str(error)
    assert {"bart", "t5", "whisper"} <= {report.name for report in discover().with_status("ok")}


def test_plugin_without_its_packages_is_no_failure(install):
    install(
        "from transept.errors import require_packages\n"
        "require_packages('telling speakers apart', {'a_module_that_nobody_has': 'voices'}, 'speakers')"
    )
    (report,) = discover().with_status("missing")
    assert report.name == "row"
    assert 'telling speakers apart needs voices; install them with: pip install "transept[speakers]"' in report.error
    assert not discover().with_status("failed")


@pytest.mark.parametrize(
    ("reference", "names"),
    [("transept_nowhere", "transept_nowhere"), ("transept_row:plugin", "plugin"), ("transept_row:a.b", "'a'")],
)
def test_entry_point_to_nothing(reference, names, install, checkpoint):
    install("", reference)
    refused(lambda: Engine(checkpoint, **SMALL), names)


def test_two_plugins_of_one_architecture(install):
    install(HOOK + 'return [ModelSpec("mine", ("BartForConditionalGeneration",), "transept_row:Model")]')
    refused(lambda: Engine(CMUDICT / "bart-g2p", **SMALL), '2 plugins run "BartForConditionalGeneration"')
    Engine(CMUDICT / "bart-g2p", plugin="bart", **SMALL)


# ------------------------------------------------------------------------------------- plugins that load and fall short


def text(path: Path) -> Any:
    return Engine(path, **SMALL).generate("ox", SamplingParams(max_tokens=3))


def sound(path: Path) -> Any:
    return Engine(path, **SMALL).generate({"multi_modal_data": {"sound": 1}}, SamplingParams(max_tokens=3))


def prompted(path: Path) -> Any:
    prompt = {"encoder_prompt": "ox", "decoder_prompt": {"prompt_tokens": [5]}}
    return Engine(path, **SMALL).generate(prompt, SamplingParams(max_tokens=3))


def translated(path: Path) -> Any:
    return TextGenerator(path, **SMALL).translate("ox", max_tokens=3)


def summarized(path: Path) -> Any:
    return TextGenerator(path, **SMALL).summarize("ox", max_tokens=3)


def heard(path: Path) -> Any:
    return Transcriber(path, **SMALL)


def changed(value: str, definitions: str = "") -> str:
    return f"{definitions}\nCHANGED = {value}"


def mapper(returned: str) -> str:
    return changed('{"input_mappers": {"sound": lambda data, config: ' + returned + "}}")


def method(name: str, arguments: str, body: str) -> str:
    """The model with one method of another body."""
    mark = "    @classmethod\n" if name == "shape" else ""
    inside = f"{mark}    def {name}({arguments}):\n        {body}\n"
    return changed('{"model_class": "transept_row:Broken"}', f"class Broken(Model):\n{inside}")


def weight_map(fields: str) -> str:
    return changed('{"weight_maps": {"huggingface": dataclasses.replace(HUGGINGFACE, ' + fields + ")}}")


SHAPE = "ModelShape(2, 2, 8, config.vocab_size, 99, 99)"
FALLS_SHORT: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "weight maps that are a list": (changed('{"weight_maps": [HUGGINGFACE]}'), text, "weight_maps"),
    "no weight map": (changed('{"weight_maps": {}}'), text, "none"),
    "a weight map for an unknown format": (
        changed('{"weight_maps": {"gguf": HUGGINGFACE}}'),
        text,
        "has 'gguf'; a key is 'huggingface' or 'ctranslate2'",
    ),
    "a weight map for another format": (changed('{"weight_maps": {"ctranslate2": HUGGINGFACE}}'), text, "ctranslate2"),
    "a weight map in a missing module": (changed('{"weight_maps": {"huggingface": "gone:MAP"}}'), text, "gone"),
    "a weight map that is missing": (changed('{"weight_maps": {"huggingface": "transept_row:MAP"}}'), text, "MAP"),
    "a weight map that is a dict": (changed('{"weight_maps": {"huggingface": {}}}'), text, "WeightMap"),
    "a weight map without rules": (weight_map("rules=(), tied=()"), text, "unexpected"),
    "a weight map that ignores what is wanted": (weight_map('ignored=(".*layers.*",)'), text, "missing"),
    "a weight map to what the model lacks": (weight_map('rules=((".*", "nowhere.weight"),)'), text, "nowhere.weight"),
    "a weight map of all to one": (weight_map('rules=((".*", "shared.weight"),), tied=()'), text, "shared.weight"),
    "a weight map to a part that is none": (weight_map('rules=((".*", "shared.weight#z"),)'), text, "part z"),
    "a weight map to a group that is none": (weight_map(r'rules=((".*", r"\7"),), tied=()'), text, "does not fit"),
    "a config that raises": (weight_map("config=lambda checkpoint: 1 / 0"), text, "division by zero"),
    "a config that is None": (weight_map("config=lambda checkpoint: None"), text, "config"),
    "a generation config that raises": (weight_map("generation_config=lambda *given: 1 / 0"), text, "division by zero"),
    "a generation config of None": (
        weight_map("generation_config=lambda *given: None"),
        text,
        "generation config",
    ),
    "a model in a missing module": (changed('{"model_class": "gone.model:Model"}'), text, "gone"),
    "a model that is missing": (changed('{"model_class": "transept_row:Modell"}'), text, "Modell"),
    "a model that is a function": (changed('{"model_class": "transept_row:five_tokens"}'), text, "five_tokens"),
    "a model that is a module of torch": (changed('{"model_class": "torch.nn:Linear"}'), text, "Linear"),
    "a model whose shape is a dict": (method("shape", "cls, config", "return {}"), text, "shape"),
    "a model whose shape raises": (method("shape", "cls, config", "return config.size"), text, "size"),
    "a model whose shape has no layers": (
        method("shape", "cls, config", f"return dataclasses.replace({SHAPE}, num_decoder_layers=0)"),
        text,
        "num_decoder_layers",
    ),
    "a model whose constructor raises": (method("__init__", "self, *given", "raise OSError('no GPU')"), text, "no GPU"),
    "a model whose constructor takes nothing": (method("__init__", "self", "pass"), text, "__init__"),
    "a model that is not constructed": (method("__init__", "self, *given", "pass"), text, "Broken"),
    "an encoder that raises": (method("encode", "self, *given", "raise ValueError('deaf')"), text, "deaf"),
    "an encoder that returns nothing": (method("encode", "self, *given", "pass"), text, "Broken"),
    "an encoder that returns a row too many": (
        method("encode", "self, ids, *given", "return torch.zeros(len(ids) + 1, self.config.d_model)"),
        text,
        "Broken",
    ),
    "a decoder that raises": (method("decode", "self, *given", "raise ValueError('mute')"), text, "mute"),
    "a decoder that returns nothing": (method("decode", "self, *given", "pass"), text, "Broken.decode"),
    "a decoder that returns a row too few": (
        method("decode", "self, *given", "return super().decode(*given)[1:]"),
        text,
        "Broken.decode",
    ),
    "logits that are None": (method("compute_logits", "self, hidden", "pass"), text, "Broken.compute_logits"),
    "logits of another width": (
        method("compute_logits", "self, hidden", "return torch.zeros(len(hidden), 3)"),
        text,
        "Broken",
    ),
    "logits of a row too many": (
        method("compute_logits", "self, hidden", "return torch.zeros(len(hidden) + 1, self.config.vocab_size)"),
        text,
        "Broken",
    ),
    "a default prompt that is no function": (changed('{"default_decoder_prompt": [2, 0]}'), text, "prompt"),
    "a default prompt that raises": (changed('{"default_decoder_prompt": lambda view: 1 / 0}'), text, "division"),
    "a default prompt of None": (changed('{"default_decoder_prompt": lambda view: None}'), text, "NoneType"),
    "a default prompt of text": (changed('{"default_decoder_prompt": lambda view: "ab"}'), text, "prompt"),
    "a default prompt beyond the vocabulary": (
        changed('{"default_decoder_prompt": lambda view: [10**6]}'),
        text,
        "1000000",
    ),
    "a default prompt of no token": (changed('{"default_decoder_prompt": lambda view: []}'), text, "decoder"),
    "a prompt rule that raises": (
        changed('{"prepare_decoder_prompt": lambda ids, config: 1 / 0}'),
        prompted,
        "division",
    ),
    "a prompt rule that returns nothing": (
        changed('{"prepare_decoder_prompt": lambda ids, config: None}'),
        prompted,
        "NoneType",
    ),
    "a prompt rule of text": (
        changed('{"prepare_decoder_prompt": lambda ids, config: "a"}'),
        prompted,
        "'a'",
    ),
    "a prompt rule beyond the vocabulary": (
        changed('{"prepare_decoder_prompt": lambda ids, config: [10**6]}'),
        prompted,
        "1000000",
    ),
    "a prompt rule that leaves no token": (
        changed('{"prepare_decoder_prompt": lambda ids, config: []}'),
        prompted,
        "decoder",
    ),
    "mappers that are a list": (changed('{"input_mappers": [five_tokens]}'), sound, "input_mappers"),
    "a mapper in a missing module": (changed('{"input_mappers": {"sound": "gone:mapper"}}'), sound, "gone"),
    "a mapper that is missing": (changed('{"input_mappers": {"sound": "transept_row:six"}}'), sound, "six"),
    "a mapper that is no function": (changed('{"input_mappers": {"sound": 5}}'), sound, "sound"),
    "a mapper that takes no config": (changed('{"input_mappers": {"sound": lambda data: data}}'), sound, "lambda"),
    "a mapper that raises": (mapper("data['samples']"), sound, "subscriptable"),
    "a mapper that returns nothing": (mapper("None"), sound, "NoneType"),
    "a mapper that returns a tensor": (mapper("torch.zeros(5)"), sound, "Tensor"),
    "a mapper of no tokens": (mapper('MappedInput({"sound": torch.zeros(5)}, 0)'), sound, "num_tokens=0"),
    "a mapper of half a token": (mapper('MappedInput({"sound": torch.zeros(5)}, 0.5)'), sound, "num_tokens=0.5"),
    "a mapper of True tokens": (mapper('MappedInput({"sound": torch.zeros(5)}, True)'), sound, "num_tokens=True"),
    "a mapper of more tokens than it gives": (mapper('MappedInput({"sound": torch.zeros(5)}, 6)'), sound, "sound"),
    "a mapper of fewer tokens than it gives": (mapper('MappedInput({"sound": torch.zeros(5)}, 4)'), sound, "sound"),
    "a mapper of more tokens than positions": (mapper('MappedInput({"sound": torch.zeros(5)}, 9999)'), sound, "9999"),
    "a mapper of a billion tokens": (mapper('MappedInput({"sound": torch.zeros(5)}, 10**9)'), sound, "1000000000"),
    "a mapper of a list": (mapper("MappedInput([torch.zeros(5)], 5)"), sound, "kwargs"),
    "a mapper of nothing": (mapper("MappedInput({}, 5)"), sound, "sound"),
    "a mapper of an unknown keyword": (mapper('MappedInput({"noise": torch.zeros(5)}, 5)'), sound, "Model.encode"),
    "a mapper of a keyword that is a number": (mapper("MappedInput({5: torch.zeros(5)}, 5)"), sound, "kwargs"),
    "a mapper of text": (mapper('MappedInput({"sound": "five"}, 5)'), sound, "'str'"),
    "a mapper of a tensor without data": (
        mapper('MappedInput({"sound": torch.zeros(5, device="meta")}, 5)'),
        sound,
        "meta",
    ),
    "a task spec that is text": (changed('{"text": "summarize"}'), translated, "text"),
    "a task that raises": (
        changed('{"text": TextSpec(translate=lambda *given: 1 / 0)}'),
        translated,
        "division",
    ),
    "a translation that returns text": (
        changed('{"text": TextSpec(translate=lambda *given: "translate: ")}'),
        translated,
        "TextTask",
    ),
    "a summary that returns nothing": (
        changed('{"text": TextSpec(summarize=lambda *given: None)}'),
        summarized,
        "TextTask",
    ),
    "a speech spec that is text": (changed('{"speech": "whisper"}'), heard, "speech"),
}


@pytest.mark.parametrize("prompt", ["5", '"ab"', "None", "[]", "[10**6]", "['a']", "[2.5]", "view.config.vocab_size"])
def test_a_default_prompt_that_is_the_plugins_fault_is_told_as_such(install, checkpoint, prompt):
    install(HEAD + changed(f'{{"default_decoder_prompt": lambda view: {prompt}}}') + TAIL)
    with pytest.raises(PluginError, match='the default_decoder_prompt of plugin family "row"'):
        Engine(checkpoint, **SMALL)


def test_a_default_prompt_of_the_checkpoints_values_names_those(install, checkpoint):
    install(HEAD + changed('{"default_decoder_prompt": lambda view: [view.config.vocab_size]}') + TAIL)
    with pytest.raises(
        CheckpointError, match=r"config.json.* by the default_decoder_prompt of .* read last: vocab_size=\d+$"
    ):
        Engine(checkpoint, **SMALL)


def test_what_reads_no_value_has_no_list_of_values(install, checkpoint):
    install(HEAD + method("__init__", "self, config, context", "1 / 0") + TAIL)
    with pytest.raises(CheckpointError, match=r"does not describe a Broken of plugin .*: .*division by zero$"):
        Engine(checkpoint, **SMALL)


ROW = r'plugin family "row" \(plugin "row" of transept-row 1\.0\)'
LAYER = "class Layer(torch.nn.Module):\n    def forward(self, x):\n        return x.nothing\n"
NAMES_THE_PLUGIN = {
    "an encoder": (
        method("encode", "self, *given", "raise ValueError('deaf')"),
        rf"Broken\.encode of {ROW} raised ValueError: deaf, at \S*transept_row\.py:\d+ in Broken\.encode \(",
    ),
    "a layer of a decoder": (
        LAYER + method("decode", "self, ids, *given", "return Layer()(ids)"),
        rf"Broken\.decode of {ROW} raised AttributeError: .*, at \S*transept_row\.py:\d+ in Layer\.forward \(",
    ),
    "a decoder in an operation of PyTorch": (
        method("compute_logits", "self, hidden", "return torch.nn.functional.linear(hidden, hidden.T[:3])"),
        rf"Broken\.compute_logits of {ROW} raised RuntimeError: .*, at \S*\.py:\d+ in Broken\.compute_logits \(",
    ),
    "a decoder with other arguments": (
        method("decode", "self", "pass"),
        rf"Broken\.decode of {ROW} raised TypeError: .* given \(the plugin",
    ),
    "a layer of ours that is called wrongly": (
        "from transept.errors import PluginError\n"
        + method("encode", "self, *given", "raise PluginError('this layer has rotary positions')"),
        f"^{ROW}: this layer has rotary positions",
    ),
    "an encoder's rows": (method("encode", "self, *given", "pass"), rf"Broken\.encode of {ROW} returned NoneType"),
    "a default prompt that reads a config": (
        changed('{"default_decoder_prompt": lambda view: [view.config.begin]}'),
        rf"default_decoder_prompt of {ROW} raised AttributeError: .*, at \S*transept_row\.py:\d+ in <lambda> \(",
    ),
    "a weight map's names": (
        weight_map('rules=((".*", "nowhere.weight"),)'),
        rf"^the weights in .* do not fit Model of {ROW}:\n",
    ),
    "a weight map's part": (weight_map('rules=((".*", "shared.weight#z"),)'), rf"^{ROW}: weight map: .* part z"),
    "a weight map's config": (weight_map("config=lambda checkpoint: 1 / 0"), f"the weight map of {ROW} cannot make a"),
    "a head's size": (
        method("shape", "cls, config", f"return dataclasses.replace({SHAPE}, head_dim=0)"),
        f"does not describe a Broken of {ROW}: head_dim must be",
    ),
    "a head's size that is not the layers'": (
        method("shape", "cls, config", "return dataclasses.replace(super().shape(config), head_dim=3)"),
        rf"CrossAttention\.keys_and_values of {ROW} returned \[4, 4, 32\], and the cache takes \[4, 4, 3\]",
    ),
    "a shape": (method("shape", "cls, config", "return {}"), rf"^{ROW}: Broken\.shape returned dict"),
    "a constructor": (method("__init__", "self, *given", "pass"), rf"^{ROW}: Broken\.__init__ does not call"),
}


@pytest.mark.parametrize(("source", "message"), NAMES_THE_PLUGIN.values(), ids=list(NAMES_THE_PLUGIN))
def test_the_plugin_and_the_place_are_named(install, checkpoint, source, message):
    install(f"{HEAD}\n{source}\n{TAIL}")
    with pytest.raises(TranseptError, match=message):
        text(checkpoint)


def test_a_model_that_raises_for_one_request_holds_up_no_other(install, checkpoint):
    fails = "assert 30 not in ids, 'a z'\n        return super().encode(ids, *given)"
    install(HEAD + method("encode", "self, ids, *given", fails) + TAIL)
    engine, reference = Engine(checkpoint, **SMALL), Engine(CMUDICT / "bart-g2p", **SMALL)
    words, failing = ["choir", "nave"], {"prompt_tokens": [5, 30, 7]}
    for index, prompt in enumerate([words[0], failing, words[1]]):
        engine.add_request(str(index), prompt, SamplingParams(max_tokens=8))
    finished = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    assert isinstance(finished["1"].error, PluginFailedError)
    assert isinstance(finished["1"].error.__cause__, AssertionError)
    for index, word in (("0", words[0]), ("2", words[1])):
        expected = reference.generate(word, SamplingParams(max_tokens=8))[0].outputs[0].token_ids
        assert finished[index].outputs[0].token_ids == expected


@pytest.mark.parametrize(("source", "call", "names"), FALLS_SHORT.values(), ids=list(FALLS_SHORT))
def test_plugin_that_falls_short(source, call, names, install, checkpoint):
    install(f"{HEAD}\n{source}\n{TAIL}")
    refused(lambda: watched(lambda: call(checkpoint)), names)
