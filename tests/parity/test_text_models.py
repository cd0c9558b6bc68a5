"""Text models beside transformers: one row a configuration (text_models.py), the same checks for each.

check_beam_search of the kit covers batches and preemption for greedy requests too: they share both with the beams.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from marian_example import marian_plugin
from text_models import CMUDICT, ROWS, TRAINED, VARIANTS
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, ByT5Tokenizer

from transept import Engine, SamplingParams
from transept.testing import Parity

# Whose check in bfloat16 is not slow: architectures computed by different layers.
BFLOAT16_ROWS = ("bart-base", "mbart-large-50", "pegasus-xsum", "blenderbot_small-90M", "nllb-200", "t5")
# Whose beams are slow, since another row has the same layers, and the search does not depend on what else differs.
BEAMS_ELSEWHERE = ("bart, bare", "bart, scaled, ReLU", "mbart-large-en-ro", "m2m100", "opus-mt", "mt5", "byt5")
SCORE_TOLERANCE = 1e-4  # absolute: sums of some 60 log probabilities in float32, over lengths
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module", autouse=True)
def _marian_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with marian_plugin(tmp_path_factory):
        yield


@pytest.fixture(scope="module", params=(ROWS | TRAINED).values(), ids=ROWS | TRAINED)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    return request.param.parity(tmp_path_factory.mktemp("checkpoint"))


def test_prefill(parity: Parity) -> None:
    parity.check_prefill()


@pytest.mark.sampled(2)
def test_decode(parity: Parity) -> None:
    parity.check_decode()


@pytest.mark.sampled(3)
def test_drafts(parity: Parity) -> None:
    parity.check_drafts()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "parity",
    [
        pytest.param(row, id=name, marks=[pytest.mark.slow] if name in BEAMS_ELSEWHERE else [])
        for name, row in (ROWS | TRAINED).items()
    ],
    indirect=True,
)
def test_beam_search(parity: Parity) -> None:
    parity.check_beam_search()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "parity",
    [
        pytest.param(row, id=name, marks=[] if name in BFLOAT16_ROWS else [pytest.mark.slow])
        for name, row in (ROWS | TRAINED).items()
    ],
    indirect=True,
)
def test_bfloat16(parity: Parity) -> None:
    # Of these random weights up to 7 steps in 100 are near ties, which each processor's order of summation decides.
    parity.check_low_precision(("bfloat16",), share=0.9)


@pytest.mark.sampled(8)
def test_own_settings(parity: Parity) -> None:
    prompts = parity.prompts[:3]
    assert_as_transformers(parity.engine, parity.reference.model, prompts)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_checkpoints_on_words(name: str) -> None:
    words = [entry["word"] for entry in json.loads((CMUDICT / "heldout.json").read_text())[:20]]
    texts = [f"pronounce: {word}" for word in words] if name == "t5-g2p" else words
    model = AutoModelForSeq2SeqLM.from_pretrained(CMUDICT / name)
    tokenizer = AutoTokenizer.from_pretrained(CMUDICT / name)
    assert_as_transformers(Engine(CMUDICT / name), model, tokenizer(texts).input_ids)


def assert_as_transformers(engine: Engine, model: torch.nn.Module, prompts: list[list[int]]) -> None:
    """Nothing said but the prompts is what `generate` makes of them. So are the same settings without beams.

    Both kinds of requests share one batch.
    """
    params = [params for _ in prompts for params in (SamplingParams(), GREEDY)]
    doubled = [prompt for prompt in prompts for _ in range(2)]
    outputs = engine.generate([{"prompt_tokens": prompt} for prompt in doubled], params)
    for prompt, each, output in zip(doubled, params, outputs, strict=True):
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            use_cache=False,  # theirs fails where the decoder has more layers than the encoder
            output_scores=True,
            return_dict_in_generate=True,
            **({"num_beams": 1} if each is GREEDY else {}),
        )
        (ours,) = output.outputs
        assert output.prompt_token_ids + ours.token_ids == expected.sequences[0].tolist()
        if ours.score is not None:
            assert ours.score == pytest.approx(expected.sequences_scores[0].item(), abs=SCORE_TOLERANCE)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("row", VARIANTS.values(), ids=VARIANTS)
def test_variants(row, tmp_path: Path) -> None:
    parity = row.parity(tmp_path)
    parity.check_prefill()
    parity.check_decode()


@pytest.mark.slow
@pytest.mark.parametrize("row", VARIANTS.values(), ids=VARIANTS)
def test_variants_in_bfloat16(row, tmp_path: Path) -> None:
    row.parity(tmp_path).check_low_precision(("bfloat16",))


def test_byt5_reads_and_writes_bytes(tmp_path: Path) -> None:
    parity = ROWS["byt5"].parity(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    texts = ["Größe: 3 µm, „nichts Neues“", "トランセプト"]
    tokenizer = ByT5Tokenizer()
    for text, output in zip(texts, Engine(tmp_path).generate(texts, GREEDY), strict=True):
        encoded = tokenizer(text, return_tensors="pt")
        expected = parity.reference.model.generate(**encoded, use_cache=False)[0].tolist()
        assert output.encoder_prompt_token_ids == [*(byte + 3 for byte in text.encode()), 1]
        assert output.encoder_prompt_token_ids == encoded.input_ids[0].tolist()
        assert [0, *output.outputs[0].token_ids] == expected
        assert output.outputs[0].text == tokenizer.decode(expected, skip_special_tokens=True)
