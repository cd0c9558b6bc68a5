"""Declared options: what the declaration alone decides, and how errors name them at each door."""

import ast
import asyncio
import math
import pickle
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import transept
from transept import Transcriber
from transept.aio import AsyncTranscriber
from transept.cli.flags import assigned, flag
from transept.compat.faster_whisper import WhisperModel
from transept.errors import ParameterError
from transept.options import Option, declared, declares_options, made_of, take_options
from transept.serving.errors import api_error
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import VadOptions


@declares_options("tea has no option")
@dataclass(frozen=True)
class Leaves:
    """Leaves."""

    grams: Annotated[float, Option("weight", gt=0, lt=100)] = 2.0

    def __post_init__(self) -> None:
        take_options(self)


@declares_options("tea has no option")
@dataclass(frozen=True)
class Tea:
    """A cup."""

    minutes: Annotated[int, Option("how long it draws", "Less is weak.", ge=1, le=10, aliases=("time",))] = 3
    seed: Annotated[int | None, Option("of the cup", ge=0, le=2**64 - 1)] = None
    degrees: Annotated[float | None, Option("of the water", le=math.inf)] = None
    kind: Annotated[Literal["green", "black"], Option("of leaves")] = "green"
    milk: Annotated[bool, Option("add milk")] = False
    name: Annotated[str | None, Option("on the cup")] = None
    leaves: Annotated[Leaves, Option("what is in it", parse=partial(made_of, Leaves), aliases=("herbs",))] = Leaves()

    def __post_init__(self) -> None:
        take_options(self)


@pytest.mark.parametrize(
    ("given", "message", "param"),
    [
        ({"minutes": 0}, "minutes must be an integer of at least 1 and at most 10, not 0", "minutes"),
        ({"minutes": 11}, "minutes must be an integer of at least 1 and at most 10, not 11", "minutes"),
        ({"minutes": 2.5}, "minutes must be an integer of at least 1 and at most 10, not 2.5", "minutes"),
        ({"minutes": True}, "minutes must be an integer of at least 1 and at most 10, not True", "minutes"),
        ({"minutes": None}, "minutes must be an integer of at least 1 and at most 10, not None", "minutes"),
        ({"seed": 2**64}, f"seed must be at most {2**64 - 1}, not {2**64}", "seed"),
        ({"degrees": math.nan}, "degrees must be a number, not nan", "degrees"),
        ({"degrees": "80"}, "degrees must be a number, not '80'", "degrees"),
        ({"kind": "gren"}, 'kind must be "green" or "black", not \'gren\'. Did you mean "green"?', "kind"),
        ({"milk": 1}, "milk must be True or False, not 1", "milk"),
        ({"name": b"x"}, "name must be text, not b'x'", "name"),
        ({"name": "\ud800"}, "name holds half a surrogate pair, which is not valid text: '\\ud800'", "name"),
        ({"leaves": {"grams": 100}}, "leaves.grams must be a number above 0 and below 100, not 100", "leaves.grams"),
        ({"leaves": "grams=100"}, "leaves.grams must be a number above 0 and below 100, not 100.0", "leaves.grams"),
        ({"leaves": "x"}, "leaves must be name=value,... or a JSON object, not 'x'", "leaves"),
        ({"time": 11}, "time must be an integer of at least 1 and at most 10, not 11", "time"),
        ({"herbs": {"grams": 0}}, "herbs.grams must be a number above 0 and below 100, not 0", "herbs.grams"),
        ({"leaves": 5}, "leaves must be Leaves or a dict of them, not 5", "leaves"),
        ({"leaves": {"gram": 5}}, "leaves has no 'gram'. Did you mean 'grams'?", "leaves.gram"),
        (
            {"sugar": 1},
            "tea has no option 'sugar'. Known: degrees, herbs, kind, leaves, milk, minutes, name, seed, time.",
            "sugar",
        ),
    ],
)
def test_the_declaration_checks_values_and_names_the_option(
    given: dict[str, Any], message: str, param: str | None
) -> None:
    with pytest.raises(ParameterError) as raised:
        Tea(**given)
    assert (str(raised.value), raised.value.param) == (message, param)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.param) == (ParameterError, message, param)


def test_values_take_their_declared_form() -> None:
    tea = Tea(minutes=np.int64(4), degrees=math.inf, seed=2**64 - 1, leaves={"grams": np.float32(2.5)})  # type: ignore[arg-type]
    assert (type(tea.minutes), type(tea.leaves.grams), tea.leaves) == (int, float, Leaves(2.5))
    assert "minutes: how long it draws. Less is weak." in (Tea.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("minutes", "4", 4),
        ("seed", "None", None),
        ("degrees", "80.5", 80.5),
        ("milk", "yes", True),
        ("name", "none", None),
        ("name", "Ada", "Ada"),
        ("leaves", '{"grams": 3}', {"grams": 3}),
    ],
)
def test_texts_of_forms_and_flags_stand_for_values(name: str, text: str, value: Any) -> None:
    assert declared(Tea)[name].from_text(text) == value


@pytest.mark.parametrize(("name", "text"), [("minutes", "4.0"), ("milk", "perhaps"), ("leaves", "[]"), ("leaves", "{")])
def test_texts_that_stand_for_nothing_are_refused(name: str, text: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name} must be .*, not ") as raised:
        declared(Tea)[name].from_text(text)
    assert raised.value.param == name


@pytest.mark.parametrize(
    ("given", "in_flags", "over_http", "field"),
    [
        (
            {"beam_size": 0},
            "--beam-size must be an integer of at least 1, not 0",
            "beam_size must be an integer of at least 1, not 0",
            "beam_size",
        ),
        (
            {"vad_options": {"threshold": 2}},
            "--vad-threshold must be a number above 0 and below 1, not 2",
            "chunking_strategy.threshold must be a number above 0 and below 1, not 2",
            "chunking_strategy.threshold",
        ),
        (
            {"mode": "sequential", "vad_options": {"threshold": 0.4}},
            "--vad-threshold defines silence; set --vad to leave it out in sequential mode",
            "chunking_strategy.threshold defines silence; set vad=true to leave it out in sequential mode",
            "chunking_strategy.threshold",
        ),
        (
            {"multilingual": True, "language": "de"},
            "--multilingual detects the language of every window, so --language de has no meaning",
            'multilingual=true detects the language of every window, so language="de" has no meaning',
            "language",
        ),
    ],
)
def test_every_door_spells_an_option_its_own_way(
    given: dict[str, Any], in_flags: str, over_http: str, field: str
) -> None:
    with pytest.raises(ParameterError) as raised:
        TranscriptionOptions(**given)
    assert raised.value.spelt(flag, assigned) == in_flags
    answer = api_error(raised.value, field_of=lambda name: name.replace("vad_options", "chunking_strategy"))
    assert (answer.status, answer.message, answer.param) == (400, over_http, field)


@pytest.mark.parametrize("cls", [TranscriptionOptions, VadOptions, SubtitleLayout])
def test_every_option_is_declared_with_a_help_and_its_default_is_one_of_its_values(cls: type) -> None:
    for name, each in declared(cls).items():
        assert each.option.help, name
        assert each.taken(each.default) == each.default, name


def test_a_text_gives_the_parts_of_an_option() -> None:
    assert Tea(leaves="grams=3") == Tea(leaves='{"grams": 3}') == Tea(leaves=Leaves(3.0))  # type: ignore[arg-type]
    assert TranscriptionOptions(vad_options="threshold=0.4") == TranscriptionOptions(vad_options={"threshold": 0.4})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": 5}, "prompt must be text or token ids, such as (50, 60), not 5"),
        ({"temperature": "hot"}, "temperature must be numbers, such as 0.2 or (0.0, 0.2, 0.4), not 'hot'"),
        ({"clip_timestamps": "a"}, "clip_timestamps must be numbers, such as (0.0, 10.0), not 'a'"),
    ],
)
def test_the_example_in_an_error_is_a_valid_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as raised:
        TranscriptionOptions(**given)
    assert str(raised.value) == message
    example = message.partition("such as ")[2].partition(", not ")[0].rpartition(" or ")[2]
    assert TranscriptionOptions(**dict.fromkeys(given, ast.literal_eval(example)))


def test_a_call_names_the_alias_that_was_given(tiny_en_dir: Path) -> None:
    transcriber, silence = Transcriber(tiny_en_dir), np.zeros(16000, np.float32)
    for call in (
        lambda: transept.transcribe(silence, tiny_en_dir, num_beams=-1),
        lambda: transcriber.transcribe(silence, num_beams=-1),
        lambda: transcriber.stream(silence, num_beams=-1),
        lambda: asyncio.run(AsyncTranscriber(transcriber).transcribe(silence, num_beams=-1)),
        lambda: WhisperModel(str(tiny_en_dir)).transcribe(silence, num_beams=-1),
    ):
        with pytest.raises(ParameterError, match=r"^num_beams must be an integer of at least 1, not -1$") as raised:
            call()
        assert raised.value.param == "num_beams"
    with pytest.raises(ParameterError, match=r"^download_dir must be a folder or None, not 5$"):
        transept.EngineConfig("model", download_dir=5)
