"""What a ModelSpec accepts, and how its references and its prompt rules work."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from views import view_of

from transept.errors import PluginError
from transept.registry.plugin_calls import tokenizers_of
from transept.registry.spec import (
    ModelSpec,
    PublishedCheckpoint,
    VisionSpec,
    dec_bos_prompt,
    prepend_dec,
    resolve,
)

BART = view_of(SimpleNamespace(decoder_start_token_id=2, bos_token_id=0))


def test_resolve_imports_what_a_reference_names() -> None:
    assert resolve("json:dumps") is json.dumps


def test_resolve_returns_anything_else_as_it_is() -> None:
    assert resolve(json.dumps) is json.dumps


@pytest.mark.parametrize("reference", ["", "json", "json:", ":dumps", "json.dumps"])
def test_resolve_refuses_what_is_no_reference(reference: str) -> None:
    with pytest.raises(PluginError, match=r"package\.module:attribute"):
        resolve(reference)


def test_resolve_names_the_module_that_lacks_the_attribute() -> None:
    with pytest.raises(PluginError, match="module json has no attribute dumbs"):
        resolve("json:dumbs")


def test_resolve_lets_import_errors_through() -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        resolve("a_module_that_nobody_has:Model")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"name": ""}, "name"),
        ({"architectures": ()}, "at least one"),
        ({"architectures": "BartModel"}, "must be a tuple"),
        ({"architectures": ["BartModel"]}, "must be a tuple"),
        ({"architectures": ("BartModel", "")}, "each must be a name"),
        ({"architectures": (7,)}, "each must be a name"),
        ({"vision": {"task": "read"}}, "vision must be a VisionSpec or None"),
        ({"vision": VisionSpec()}, r'vision needs input_mappers\["image"\]'),
        ({"encoder_inputs": ["marks"]}, "encoder_inputs must be a dict"),
        ({"encoder_inputs": {"marks": 1}}, r"encoder_inputs\['marks'\] is 1; it must be a function"),
        ({"encoder_inputs": {"a b": "x:y"}}, "encoder_inputs has 'a b'; names are keywords of `encode`"),
        ({"encoder_inputs": {"attn_metadata": "x:y"}}, "encoder_inputs has 'attn_metadata'"),
        ({"encoder_inputs": {5: "x:y"}}, "encoder_inputs has 5"),
        ({"tokenizers": "mine"}, "tokenizers is 'mine'; it must be a function"),
        ({"model_class": "bart.model.Bart"}, "package.module:ClassName"),
        ({"model_class": SimpleNamespace}, "package.module:ClassName"),
        ({"requires": ["model_type"]}, "requires must be a dict"),
        ({"requires": {"": "vit"}}, "has the key ''"),
        ({"requires": {"encoder..model_type": "vit"}}, r"has the key 'encoder\.\.model_type'"),
        ({"requires": {7: "vit"}}, "has the key 7"),
        ({"requires": {"encoder.model_type": set()}}, "requires has set\\(\\) for encoder.model_type"),
        ({"requires": {"encoder.model_type": {"vit": 1}}}, "requires has {'vit': 1} for encoder.model_type"),
        ({"requires": {"encoder.model_type": [["vit"]]}}, "for encoder.model_type; write a string"),
        ({"prompted_modalities": ("image",)}, "must be a tuple of keys of input_mappers"),
        ({"prompted_modalities": ["image"], "input_mappers": {"image": "a:b"}}, "must be a tuple of keys"),
        ({"published": ["small"]}, "published must be a dict"),
        ({"published": {"small": "org/name"}}, "must be a PublishedCheckpoint"),
        ({"published": {"org/small": PublishedCheckpoint("org/name", 1)}}, "a short name is a text"),
        ({"published": {"": PublishedCheckpoint("org/name", 1)}}, "a short name is a text"),
    ],
)
def test_spec_that_breaks_the_contract(changed: dict[str, Any], complaint: str) -> None:
    good = {"name": "bart", "architectures": ("BartModel",), "model_class": "bart.model:Bart"}
    with pytest.raises(PluginError, match=complaint):
        ModelSpec(**{**good, **changed})


@pytest.mark.parametrize("made", [None, "t", ("t",), ("t", "t", "t")])
def test_tokenizers_are_a_pair(made: Any) -> None:
    spec = ModelSpec("bart", ("BartModel",), "bart.model:Bart", tokenizers=lambda view: made)
    with pytest.raises(PluginError, match=r'tokenizers of plugin family "bart" returned .*; it must return a pair'):
        tokenizers_of(spec, BART)
    assert tokenizers_of(ModelSpec("bart", ("BartModel",), "bart.model:Bart"), BART) == (None, None)


def test_tokenizers_that_are_none_or_raise() -> None:
    def spec(tokenizers: Any) -> ModelSpec:
        return ModelSpec("bart", ("BartModel",), "bart.model:Bart", tokenizers=tokenizers)

    with pytest.raises(PluginError, match='tokenizers of plugin family "bart" returned 5 in its pair'):
        tokenizers_of(spec(lambda view: (None, 5)), BART)
    with pytest.raises(PluginError, match='tokenizers of plugin family "bart" raised ZeroDivisionError'):
        tokenizers_of(spec(lambda view: 1 / 0), BART)
    with pytest.raises(PluginError, match='tokenizers of plugin family "bart" raised TypeError'):
        tokenizers_of(spec(lambda: (None, None)), BART)


def test_default_decoder_prompt_is_dec_bos() -> None:
    assert dec_bos_prompt(BART) == [2, 0]


@pytest.mark.parametrize(
    ("given", "prepared"), [([2, 0, 51, 178, 2], [2, 0, 51, 178, 2]), ([0, 51], [2, 0, 51]), ([], [2]), ([2], [2])]
)
def test_dec_token_is_prepended_unless_it_is_first(given: list[int], prepared: list[int]) -> None:
    assert prepend_dec(given, BART) == prepared
