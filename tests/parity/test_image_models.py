"""Families that look at images beside transformers: one row a configuration, the same checks for each.

check_beam_search of the kit covers batches and preemption for greedy requests too: they share both with the beams. So
the checks of both alone are slow, but for one row of each family.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from random_donut import DONUT_ROWS, START, DonutRow
from random_florence import FLORENCE_ROWS, FlorenceRow
from random_pix2struct import PIX2STRUCT_ROWS, Pix2StructRow
from random_trocr import ROWS, Row
from safetensors.torch import save_file

from transept import SamplingParams
from transept.testing import Parity

ALL_ROWS = ROWS | DONUT_ROWS | FLORENCE_ROWS | PIX2STRUCT_ROWS
SLOW_ROWS = ("florence-2, wide images, a head of its own", "pix2struct, a tied head")
FAMILIES = ("trocr-base", "donut", "florence-2", "pix2struct")  # in checks of which the others are slow


def parameters(slow: Callable[[str], bool]) -> list[Any]:
    """Every row, marked where it is slow."""
    return [
        pytest.param(row, id=name, marks=[pytest.mark.slow] if slow(name) else []) for name, row in ALL_ROWS.items()
    ]


@pytest.fixture(scope="module", params=parameters(lambda name: name in SLOW_ROWS))
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    row: Row | DonutRow | FlorenceRow | Pix2StructRow = request.param
    return row.parity(tmp_path_factory.mktemp("checkpoint"))


def test_prefill(parity: Parity) -> None:
    parity.check_prefill()


@pytest.mark.sampled(2)
def test_decode(parity: Parity) -> None:
    parity.check_decode()


@pytest.mark.parametrize("parity", parameters(lambda name: name not in FAMILIES), indirect=True)
def test_batch(parity: Parity) -> None:
    parity.check_batch()
    parity.check_drafts()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("parity", parameters(lambda name: name not in FAMILIES), indirect=True)
def test_preemption(parity: Parity) -> None:
    parity.check_preemption()


@pytest.mark.sampled(6)
def test_beam_search(parity: Parity) -> None:
    parity.check_beam_search()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("parity", parameters(lambda name: name not in FAMILIES), indirect=True)
def test_bfloat16(parity: Parity) -> None:
    parity.check_low_precision(("bfloat16",))


def save_by_module_names(parity: Parity, directory: Path) -> None:
    """The weights under the names of transformers 5's modules, with those that transformers 4 had beside them."""
    weights = {name: weight.clone() for name, weight in parity.reference.model.state_dict().items()}
    weights["decoder.model.decoder.embed_positions._float_tensor"] = torch.zeros(1)
    weights["encoder.embeddings.mask_token"] = torch.zeros(1, 1, 32)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("name", ["trocr-base", "trocr-small"])
def test_weights_by_their_other_names(name: str, tmp_path: Path) -> None:
    parity = ROWS[name].parity(tmp_path)
    save_by_module_names(parity, tmp_path)
    parity.check_prefill()


def test_a_head_of_its_own_against_the_config(tmp_path: Path) -> None:
    parity = ROWS["trocr-base"].parity(tmp_path)
    model = parity.reference.model
    assert model.config.decoder.tie_word_embeddings
    head = model.decoder.output_projection
    head.weight = torch.nn.Parameter(torch.randn_like(head.weight) / 3)
    save_by_module_names(parity, tmp_path)
    parity.check_prefill()


@pytest.mark.parametrize("start", [2, 5])
def test_where_the_decoder_starts_without_generation_settings(start: int, tmp_path: Path) -> None:
    parity = replace(ROWS["trocr-base"], decoder={"decoder_start_token_id": start}).parity(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    assert parity.decoder_prompt == [start]


def test_a_donut_starts_from_the_users_prompt_alone(tmp_path: Path) -> None:
    """As in transformers, which puts no decoder start token before it."""
    parity = DONUT_ROWS["donut"].parity(tmp_path)
    assert parity.decoder_prompt == [START]
    (data, keywords) = (parity.inputs[0].prompt["multi_modal_data"], parity.inputs[0].keywords)
    prompt = {"multi_modal_data": data, "prompt_tokens": [9, 11]}
    (output,) = parity.engine.generate(prompt, SamplingParams(temperature=0.0, max_tokens=20))
    expected = parity.reference.model.generate(
        **keywords, decoder_input_ids=torch.tensor([[9, 11]]), max_new_tokens=20, do_sample=False
    )
    assert [*output.prompt_token_ids, *output.outputs[0].token_ids] == expected[0].tolist()
