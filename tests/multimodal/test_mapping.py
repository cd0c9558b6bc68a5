"""map_input: the mapper that a family declared, and what happens when it has none or breaks its contract."""

import dataclasses

import pytest
from views import view_of

from transept.errors import MediaError, PluginError
from transept.multimodal.mapping import EncoderPrompt, MappedInput, map_input
from transept.registry.spec import ModelSpec


def count_samples(data, view):
    """A mapper, found by its name in `test_reference`."""
    return MappedInput(kwargs={"samples": data, "scale": view.config["scale"]}, num_tokens=len(data))


def family(**mappers):
    return ModelSpec(name="counter", architectures=("Counter",), model_class="counter:Model", input_mappers=mappers)


@pytest.mark.parametrize("mapper", [count_samples, f"{__name__}:count_samples"], ids=["callable", "reference"])
def test_the_declared_mapper_gets_data_and_the_view(mapper):
    mapped = map_input(family(audio=mapper), view_of({"scale": 3}), "audio", [1, 2])
    assert mapped == MappedInput(kwargs={"samples": [1, 2], "scale": 3}, num_tokens=2)


def test_a_family_without_mappers():
    with pytest.raises(MediaError, match=r'"counter" models cannot read "audio" data: they take text only'):
        map_input(family(), view_of({}), "audio", [1])


def test_an_unknown_modality_lists_what_there_is():
    spec = family(audio=count_samples, image=count_samples)
    with pytest.raises(MediaError, match=r'no mapper for "video" data\. They take: "audio", "image"'):
        map_input(spec, view_of({}), "video", [1])
    with pytest.raises(MediaError, match='did you mean "audio"'):
        map_input(spec, view_of({}), "audios", [1])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"samples": []}, "dict; it must return a MappedInput"),
        (None, "NoneType"),
        (MappedInput({}, 0), "num_tokens=0"),
        (MappedInput({}, -1), "num_tokens=-1"),
        (MappedInput({}, 2.0), "num_tokens=2.0"),
    ],
)
def test_a_mapper_that_breaks_its_contract(returned, message):
    with pytest.raises(PluginError, match=f'"audio" mapper of plugin family "counter" returned {message}'):
        map_input(family(audio=lambda data, view: returned), view_of({}), "audio", [1])


def test_a_mappers_error_is_the_callers():
    def refuse(data, view):
        raise MediaError("too long")

    with pytest.raises(MediaError, match="too long"):
        map_input(family(audio=refuse), view_of({}), "audio", [1])


def test_a_reference_to_nothing():
    with pytest.raises(PluginError, match="has no attribute nothing"):
        map_input(family(audio=f"{__name__}:nothing"), view_of({}), "audio", [1])


def test_the_mapper_of_a_prompted_modality_gets_the_prompt():
    def count_both(data, view, prompt):
        return MappedInput({"samples": data}, 3, [7, *(prompt.token_ids or [8, 8])])

    spec = dataclasses.replace(family(audio=count_both, image=count_samples), prompted_modalities=("audio",))
    mapped = map_input(spec, view_of({}), "audio", [1], EncoderPrompt(token_ids=[5, 6]))
    assert mapped.token_ids == [7, 5, 6]
    assert map_input(spec, view_of({}), "audio", [1]).token_ids == [7, 8, 8]
    assert map_input(spec, view_of({"scale": 3}), "image", [1], EncoderPrompt("beside")).num_tokens == 1


def test_an_id_for_every_token_or_for_none():
    spec = family(audio=lambda data, view: MappedInput({}, 3, [1, 2]))
    with pytest.raises(PluginError, match="returned 2 token_ids and num_tokens=3; return an id for every token"):
        map_input(spec, view_of({}), "audio", [1])
