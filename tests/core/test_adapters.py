"""Adapters of an engine: any rows beside each other, ranks and stages, rounding, loading and unloading, and errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from random_adapters import adapted, save_adapter
from safetensors.torch import load_file, save_file
from transformers import BartConfig, BartForConditionalGeneration

from transept import Engine, SamplingParams
from transept.core.request.inputs import Adapter
from transept.core.scheduling.adapter_slots import AdapterSlots
from transept.errors import CheckpointError, ParameterError

PARAMS = SamplingParams(max_tokens=8, temperature=0.0, num_beams=1, no_repeat_ngram_size=1, ignore_eos=True)
SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 96,
    "init_std": 0.3,
}
KINDS: dict[str, dict[str, Any]] = {  # of adapters
    "all": {"rank": 4, "modules": "all-linear"},
    "wide": {"rank": 33, "seed": 1},
    "inner": {"rank": 6, "seed": 2, "modules": ["fc1", "fc2", "out_proj"]},
    "decoder": {"rank": 9, "seed": 3, "modules": r".*decoder.*\.(q_proj|fc1)", "use_rslora": True},
}


class Case:
    """A small BART, its adapters, and prompts of different lengths."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "model"
        torch.manual_seed(0)
        self.model = BartForConditionalGeneration(BartConfig(**SIZES)).eval()
        self.model.generation_config.forced_eos_token_id = None
        self.model.save_pretrained(self.directory)
        self.folders = {name: str(save_adapter(self.model, folder / name, **kind)) for name, kind in KINDS.items()}
        generator = torch.Generator().manual_seed(0)
        self.prompts: list[Any] = [
            {"prompt_tokens": torch.randint(4, 300, (5 + index,), generator=generator).tolist()} for index in range(10)
        ]
        self.names: list[str | None] = [[None, *KINDS][index % 5] for index in range(10)]

    def engine(self, **options: Any) -> Engine:
        return Engine(self.directory, **{"adapters": self.folders, "threads": 1, **options})

    def expected(self, index: int) -> list[int]:
        """Tokens by the adapter's updates of the weights."""
        name = self.names[index]
        model = self.model if name is None else adapted(self.model, Path(self.folders[name]))
        ids, start = torch.tensor([self.prompts[index]["prompt_tokens"]]), [2]
        written = torch.tensor([start])
        with torch.inference_mode():
            for _ in range(8):
                logits = model(input_ids=ids, decoder_input_ids=written).logits[0, -1]
                logits[written[0]] = float("-inf")
                written = torch.cat([written, logits.argmax().view(1, 1)], dim=1)
        return written[0, len(start) :].tolist()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def expected(case: Case) -> list[list[int]]:
    return [case.expected(index) for index in range(len(case.prompts))]


@pytest.fixture(scope="module")
def engine(case: Case) -> Iterator[Engine]:
    with case.engine(adapters={}) as engine:
        yield engine


def tokens(output: Any) -> list[int]:
    return output.outputs[0].token_ids


def drawn(output: Any) -> tuple[list[int], float]:
    completion = output.outputs[0]
    return completion.token_ids, completion.cumulative_logprob


@pytest.mark.parametrize("rounding", [{}, {"dtype": "bfloat16"}, {"quantization": "int8"}])
def test_a_row_does_not_depend_on_other_rows(case: Case, expected: list[list[int]], rounding: dict[str, Any]) -> None:
    with case.engine(**rounding) as engine:
        together = engine.generate(case.prompts, PARAMS, lora=case.names, progress=False)
        alone = [engine.generate(case.prompts[index], PARAMS, lora=case.names[index])[0] for index in (0, 1, 3, 4)]
        reversed_ = engine.generate(case.prompts[::-1], PARAMS, lora=case.names[::-1], progress=False)[::-1]
    assert [drawn(each) for each in alone] == [drawn(together[index]) for index in (0, 1, 3, 4)]
    assert [drawn(each) for each in reversed_] == [drawn(each) for each in together]
    if not rounding:
        assert [tokens(output) for output in together] == expected


@pytest.mark.parametrize("split", [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}])
def test_ranks_and_stages(case: Case, expected: list[list[int]], split: dict[str, int]) -> None:
    with case.engine(max_adapters=2, **split) as engine:
        outputs = engine.generate(case.prompts, PARAMS, lora=case.names, progress=False)
    assert [tokens(output) for output in outputs] == expected


def test_more_adapters_than_slots_and_a_small_cache(case: Case, expected: list[list[int]]) -> None:
    with case.engine(max_adapters=1, block_size=4, max_num_seqs=3) as engine:
        outputs = engine.generate(case.prompts, PARAMS, lora=case.names, progress=False)
    assert [tokens(output) for output in outputs] == expected


def test_loaded_and_unloaded_while_requests_run(case: Case, expected: list[list[int]]) -> None:
    at = {name: case.names.index(name) for name in KINDS}
    with case.engine(adapters={}, max_adapters=2) as engine:
        num_encoded = 0
        for turn, name in enumerate([*KINDS] * 3):
            engine.load_adapter(name, case.folders[name])
            engine.add_request(f"{turn}", case.prompts[at[name]], PARAMS, lora=name)
            engine.step()
            engine.unload_adapter(name)
            assert engine.adapters.names == []
            outputs = {}
            while engine.has_unfinished_requests and (turn % 2 or turn == 11):
                outputs |= {output.request_id: output for output in engine.step() if output.finished}
            for request_id, output in outputs.items():
                assert tokens(output) == expected[at[[*KINDS][int(request_id) % 4]]]
            num_encoded = engine.num_encoder_runs
        assert num_encoded == 12  # an adapter that is loaded again is another one
        assert tokens(engine.generate(case.prompts[0], PARAMS)[0]) == expected[0]


def test_the_encoder_cache_tells_adapters_apart(case: Case) -> None:
    prompt = case.prompts[0]
    with case.engine() as engine:
        outputs = engine.generate([prompt] * 5, PARAMS, lora=[None, "all", "wide", "all", None], progress=False)
        assert engine.num_encoder_runs == 3
        assert engine.num_encoder_hits == 2
    assert drawn(outputs[1]) == drawn(outputs[3]) != drawn(outputs[0]) == drawn(outputs[4])


@pytest.mark.parametrize("rounding", [{}, {"tensor_parallel_size": 1, "quantization": "int8"}])
def test_merged(case: Case, expected: list[list[int]], rounding: dict[str, Any]) -> None:
    with case.engine(adapters={}, merge_adapter=case.folders["all"], **rounding) as engine:
        (output,) = engine.generate(case.prompts[1], PARAMS)
    if not rounding:
        assert tokens(output) == expected[1]


def test_wrong_names(case: Case) -> None:
    with case.engine(adapters={"legal": case.folders["all"]}) as engine:
        with pytest.raises(ParameterError, match=r"there is no adapter 'legl'. Did you mean 'legal'\?"):
            engine.generate(case.prompts[0], PARAMS, lora="legl")
        with pytest.raises(ParameterError, match="'legal' is in use by another adapter"):
            engine.load_adapter("legal", case.folders["all"])
        with pytest.raises(ParameterError, match="there is no adapter 'medical'"):
            engine.unload_adapter("medical")
        with pytest.raises(ParameterError, match="2 names in lora for 1 prompts"):
            engine.generate(case.prompts[0], PARAMS, lora=["legal", None])
        with pytest.raises(ParameterError, match="not empty, not ''"):
            engine.load_adapter("", case.folders["all"])
    with pytest.raises(ParameterError, match="needs a folder for each name, as NAME=PATH"):
        Engine(case.directory, adapters="legal")


REFUSED = {
    "DoRA": {"use_dora": True},
    "whole modules": {"modules_to_save": ["lm_head"]},
    "trained biases": {"bias": "all"},
    "a changed base model": {"init_lora_weights": "pissa"},
    "'IA3'": {"peft_type": "IA3"},
    "whose rank is 5": {"r": 5},
    "wrong types": {"lora_alpha": "many"},
    "not among its target_modules": {"target_modules": ["k_proj"]},
    "unusable regular expression": {"target_modules": "("},
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_config_that_is_refused(case: Case, engine: Engine, tmp_path: Path, problem: str) -> None:
    folder = save_adapter(case.model, tmp_path, rank=4)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **REFUSED[problem]}))
    with pytest.raises(CheckpointError, match=problem) as error:
        engine.load_adapter("refused", folder)
    assert str(folder) in str(error.value)


NAME = "base_model.model.model.decoder.layers.0.self_attn.q_proj"
TENSORS: dict[str, dict[str, tuple[int, ...] | None]] = {
    "lacks model.decoder.layers.0.self_attn.q_proj.lora_B": {f"{NAME}.lora_B.weight": None},
    "not factors of a linear layer: .*shared.lora_embedding_A": {
        "base_model.model.model.shared.lora_embedding_A": (4, 9)
    },
    r"weight of \[48, 50\], and the model's is \[48, 48\]": {f"{NAME}.lora_A.weight": (4, 50)},
    "layers that this model does not have: model.decoder.layers.0.q_proj": {
        "base_model.model.model.decoder.layers.0.q_proj.lora_A.weight": (4, 48),
        "base_model.model.model.decoder.layers.0.q_proj.lora_B.weight": (48, 4),
    },
    "lm_head, an embedding or the output layer": {
        "base_model.model.lm_head.lora_A.weight": (4, 48),
        "base_model.model.lm_head.lora_B.weight": (48, 4),
    },
}


@pytest.mark.parametrize("problem", TENSORS)
def test_tensors_that_are_refused(case: Case, engine: Engine, tmp_path: Path, problem: str) -> None:
    folder = save_adapter(case.model, tmp_path, rank=4, modules=["q_proj", "v_proj"])
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ".*"}))
    tensors = load_file(folder / "adapter_model.safetensors")
    for name, shape in TENSORS[problem].items():
        tensors.pop(name, None)
        if shape is not None:
            tensors[name] = torch.zeros(shape)
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=problem):
        engine.load_adapter("refused", folder)


def test_folders_that_are_no_adapters(case: Case, engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not an adapter: it has no adapter_config\.json"):
        engine.load_adapter("refused", tmp_path)
    folder = save_adapter(case.model, tmp_path / "wide", rank=65)
    with pytest.raises(CheckpointError, match="has rank 65, and max_adapter_rank is 64"):
        engine.load_adapter("refused", folder)
    (folder / "adapter_model.safetensors").write_bytes(b"\0" * 99)
    with pytest.raises(CheckpointError, match="truncated or corrupt"):
        engine.load_adapter("refused", folder)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="has no weights"):
        engine.load_adapter("refused", folder)
    tensors = load_file(Path(case.folders["all"]) / "adapter_model.safetensors")
    torch.save(tensors, folder / "adapter_model.bin")
    (folder / "adapter_config.json").write_bytes((Path(case.folders["all"]) / "adapter_config.json").read_bytes())
    engine.load_adapter("pickled", folder)
    assert engine.adapters.names == ["pickled"]


def test_the_least_recently_used_slot_is_filled_anew() -> None:
    a, b, c = (Adapter(number, "", number) for number in range(3))
    slots = AdapterSlots(2)
    assert [slots.take(each, ())[0] for each in (a, b, a)] == [0, 1, 0]
    slot, load = slots.take(c, ())
    assert load is not None
    assert (slot, load.slot, load.updates) == (1, 1, 2)
    assert slots.take(a, ()) == (0, None)
    assert not slots.fits(b, {0, 1})
    assert slots.fits(c, {0, 1})
    assert slots.take(b, {0})[0] == 1
