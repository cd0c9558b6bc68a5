"""Adapters: tokens of eight PEFT adapters in one batch, and of one that is merged, are PEFT's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from marian_example import marian_plugin
from parity.text_models import BART_SIZES, PADDING, T5_SIZES, VOCABULARY, by_init_std, wide
from random_trocr import ROWS, line_image
from random_whisper import NO_TIMESTAMPS, SECONDS, START, save_random_whisper
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from transept import Engine, SamplingParams

NUM_TOKENS, NUM_INPUTS, BATCH = 6, 4, 32
GREEDY = SamplingParams(
    max_tokens=NUM_TOKENS,
    temperature=0.0,
    no_repeat_ngram_size=1,  # a random model repeats itself
    ignore_eos=True,
    suppress_tokens=(),
    begin_suppress_tokens=(),
)
ADAPTERS: list[dict[str, Any]] = [
    {"r": 4, "target_modules": "all-linear"},
    {"r": 8, "lora_alpha": 24, "use_rslora": True},
    {"r": 16, "target_modules": "all-linear"},
    {"r": 64, "lora_alpha": 64},
    {"r": 5, "target_modules": "all-linear", "lora_alpha": 3},
    {"r": 12, "target_modules": r".*decoder.*\.(q_proj|q|fc1|wi)"},
    {"r": 32, "rank_pattern": {"v_proj|v|value": 7}, "alpha_pattern": {"q_proj|q|query": 50}},
    {"r": 4, "target_modules": r".*encoder.*\.(k_proj|k|key|fc2|wo|intermediate\.dense)"},
]
QUERIES_AND_VALUES = ["q_proj", "v_proj", "q", "v", "query", "value"]


@dataclass
class Family:
    """A model of transformers, its decoder's first tokens, and inputs, each for both sides."""

    model: Any
    start: list[int]
    inputs: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def with_texts(self) -> "Family":
        for index in range(NUM_INPUTS):
            ids = torch.randint(4, VOCABULARY - 2, (1, 9), generator=torch.Generator().manual_seed(index))
            self.inputs.append(({"prompt_tokens": ids[0].tolist()}, {"input_ids": ids}))
        return self


def bart(_: Path) -> Family:
    torch.manual_seed(0)
    model = BartForConditionalGeneration(BartConfig(**BART_SIZES))
    model.generation_config.forced_eos_token_id = None
    return Family(model, [2]).with_texts()


def t5(_: Path) -> Family:
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(**T5_SIZES))
    wide(model)
    return Family(model, [0]).with_texts()


def marian(_: Path) -> Family:
    torch.manual_seed(0)
    config = MarianConfig(
        **BART_SIZES, scale_embedding=True, pad_token_id=PADDING, decoder_start_token_id=PADDING, eos_token_id=0
    )
    model = MarianMTModel(config)
    by_init_std(model)
    model.generation_config.forced_eos_token_id = None
    return Family(model, [PADDING]).with_texts()


def whisper(folder: Path) -> Family:
    model = WhisperForConditionalGeneration.from_pretrained(save_random_whisper(folder))
    extract = WhisperFeatureExtractor(chunk_length=int(SECONDS))
    family = Family(model, [START, NO_TIMESTAMPS])
    for index in range(NUM_INPUTS):
        noise = np.random.default_rng(index).normal(0.0, 0.3, int(SECONDS * 16_000)).astype(np.float32)
        features = extract(noise, sampling_rate=16_000, return_tensors="pt").input_features
        family.inputs.append(({"multi_modal_data": {"audio": (noise, 16_000)}}, {"input_features": features}))
    return family


def trocr(folder: Path) -> Family:
    row = ROWS["trocr-base"]
    model, processor = row.model(), row.processor
    processor.save_pretrained(folder)
    family = Family(model, [2])
    for index in range(NUM_INPUTS):
        image = line_image("transept"[index:], (64 + 16 * index, 48))
        pixels = processor(image, return_tensors="pt").pixel_values
        family.inputs.append(({"multi_modal_data": {"image": image}}, {"pixel_values": pixels}))
    return family


@torch.inference_mode()
def greedy(model: Any, start: list[int], keywords: dict[str, Any]) -> list[int]:
    """The most likely tokens, each at most once, by whole passes."""
    ids = torch.tensor([start])
    for _ in range(NUM_TOKENS):
        logits = model(**keywords, decoder_input_ids=ids).logits[0, -1]
        logits[ids[0]] = float("-inf")
        ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
    return ids[0, len(start) :].tolist()


@dataclass
class Case:
    """A checkpoint, folders of adapters by name, and the tokens of each input by each adapter; None: of none."""

    family: Family
    directory: Path
    adapters: dict[str, str]
    expected: dict[tuple[str | None, int], list[int]]

    @property
    def batch(self) -> list[tuple[str | None, int]]:
        """One of nine rows has no adapter."""
        names = [None, *self.adapters]
        return [(names[index % len(names)], index % NUM_INPUTS) for index in range(BATCH)]

    def tokens(self, engine: Engine, rows: list[tuple[str | None, int]], **options: Any) -> list[list[int]]:
        prompts: list[Any] = [
            {"encoder_prompt": self.family.inputs[index][0], "decoder_prompt": {"prompt_tokens": self.family.start}}
            for _, index in rows
        ]
        outputs = engine.generate(prompts, GREEDY, progress=False, **options)
        return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module", autouse=True)
def _marian_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with marian_plugin(tmp_path_factory):
        yield


@pytest.fixture(scope="module", params=[bart, t5, whisper, trocr, marian], ids=lambda build: build.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    build: Callable[[Path], Family] = request.param
    directory = tmp_path_factory.mktemp(build.__name__)
    family = build(directory)
    family.model.eval().save_pretrained(directory)
    given = [{"target_modules": QUERIES_AND_VALUES, **each} for each in ADAPTERS]
    configs = {f"adapter-{index}": peft.LoraConfig(**each, init_lora_weights=False) for index, each in enumerate(given)}
    torch.manual_seed(1)
    name, config = next(iter(configs.items()))
    model = peft.get_peft_model(family.model, config, name)
    for name, config in [*configs.items()][1:]:
        model.add_adapter(name, config)
    model.save_pretrained(directory / "adapters")
    model.eval()
    expected: dict[tuple[str | None, int], list[int]] = {}
    for name in configs:
        model.set_adapter(name)
        for index, (_, keywords) in enumerate(family.inputs):
            expected[name, index] = greedy(model.base_model.model, family.start, keywords)
    with model.disable_adapter():
        for index, (_, keywords) in enumerate(family.inputs):
            expected[None, index] = greedy(model.base_model.model, family.start, keywords)
    folders = {name: str(directory / "adapters" / name) for name in configs}
    return Case(family, directory, folders, expected)


def test_eight_adapters_in_one_batch(case: Case) -> None:
    batch = case.batch
    differ = [key for key in case.expected if case.expected[key] != case.expected[None, key[1]]]
    assert len(differ) > 24, "adapters change most texts"
    with Engine(case.directory, adapters=case.adapters, threads=1) as engine:
        tokens = case.tokens(engine, batch, lora=[name for name, _ in batch])
    assert tokens == [case.expected[row] for row in batch]


def test_a_merged_adapter(case: Case) -> None:
    name = "adapter-2"
    with Engine(case.directory, merge_adapter=case.adapters[name], threads=1) as engine:
        assert case.tokens(engine, [(name, 0), (name, 1)]) == [case.expected[name, 0], case.expected[name, 1]]
