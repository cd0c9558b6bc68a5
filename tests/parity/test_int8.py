"""Models in int8 beside transformers with the same weights rounded; and what is lost on real speech."""

import json
import shutil
from pathlib import Path

import jiwer
import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from text_models import CMUDICT, ROWS, TRAINED
from transformers import GenerationConfig, PreTrainedTokenizerFast
from whisper.normalizers import EnglishTextNormalizer
from whisper_reference import reference_model, windows

from transept import CompletionOutput, Engine, SamplingParams
from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
from transept.core.kernels.cpu.library import reads_float16
from transept.errors import ParameterError

GREEDY = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)


@torch.no_grad()
def round_weights(model: torch.nn.Module) -> None:
    """Each row of a linear layer, and of a vocabulary matrix, to multiples of a 127th of its largest number."""
    done = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and id(module.weight) not in done:
            steps = (module.weight.abs().amax(1, keepdim=True) / 127).clamp(min=1e-30)
            module.weight.copy_((module.weight / steps).round() * steps)
            done.add(id(module.weight))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["bart-large-cnn", "pegasus-xsum", "t5", "t5 1.1", "mt5", *TRAINED])
def test_text_models_say_what_transformers_says_with_rounded_weights(name: str, tmp_path: Path) -> None:
    parity = (ROWS | TRAINED)[name].parity(tmp_path)
    round_weights(parity.reference.model)
    engine = Engine(tmp_path, quantization="int8")
    prompts = [each.prompt for each in parity.inputs]
    together = engine.generate(prompts, GREEDY, generation_config=GenerationConfig())
    differ = 0
    for prompt, given, output in zip(prompts, parity.inputs, together, strict=True):
        start, ids = output.prompt_token_ids, output.outputs[0].token_ids
        logits = parity.reference.logits(given, start + ids[:-1])[len(start) - 1 :]
        ours = logits.gather(1, torch.tensor(ids)[:, None])[:, 0]
        assert (logits.amax(1) - ours).max() < 0.02  # a tie, where ours is not the reference's
        differ += (logits.argmax(1) != torch.tensor(ids)).sum()
        (alone,) = engine.generate(prompt, GREEDY, generation_config=GenerationConfig())
        assert alone.outputs[0].token_ids == ids
    assert differ <= 2


@pytest.mark.parametrize("swap_bytes", [0, 1 << 24], ids=["recomputed", "swapped"])
def test_requests_that_lose_their_blocks_say_the_same(swap_bytes: int, tmp_path: Path) -> None:
    parity = ROWS["bart-large-cnn"].parity(tmp_path)
    prompts = [{"prompt_tokens": prompt} for prompt in parity.prompts]
    ample = Engine(tmp_path, quantization="int8", block_size=4)
    assert ample.executor.worker.cache.layers[0].dtype is (torch.float16 if reads_float16() else torch.float32)
    longest = max(map(len, parity.prompts)) + GREEDY.max_tokens + 2
    num_bytes = (longest // 4 + 4) * sum(layer[:, 0].nbytes for layer in ample.executor.worker.cache.layers)
    tight = Engine(tmp_path, quantization="int8", block_size=4, kv_cache_bytes=num_bytes, swap_bytes=swap_bytes)
    expected = {
        str(index): output.outputs[0].token_ids
        for index, output in enumerate(ample.generate(prompts, GREEDY, generation_config=GenerationConfig()))
    }
    for index, prompt in enumerate(prompts):
        tight.add_request(str(index), prompt, GREEDY, generation_config=GenerationConfig())
    ours, preempted = {}, 0
    while tight.has_unfinished_requests:
        ours |= {output.request_id: output.outputs[0].token_ids for output in tight.step() if output.finished}
        preempted += any(group.seqs[0].output_token_ids for group in tight.scheduler.queue)
    assert ours == expected
    assert preempted


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[dict]:
    """The first window of some prompts."""
    folder = speech_dir / "prompts-en"
    entries = json.loads((folder / "transcripts.json").read_text())[:20]
    return [{**entry, "waveform": windows(folder / entry["audio"])[0]} for entry in entries]


def heard(engine: Engine, clips: list[dict]) -> list[CompletionOutput]:
    prompts = [{"multi_modal_data": {"audio": (clip["waveform"], 16_000)}} for clip in clips]
    return [output.outputs[0] for output in engine.generate(prompts, SamplingParams(temperature=0.0))]


def test_a_ctranslate2_checkpoint_in_int8_is_taken_as_it_is(
    tiny_en_dir: Path, clips: list[dict], tmp_path: Path
) -> None:
    reference_model(tiny_en_dir).save_pretrained(tmp_path)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tiny_en_dir / "tokenizer.json"), bos_token="<|endoftext|>")
    tokenizer.add_special_tokens({"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})
    converter = TransformersConverter(str(tmp_path))
    converter.load_tokenizer = lambda *_, **__: tokenizer
    directory = tmp_path / "int8"
    converter.convert(str(directory), quantization="int8")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(tiny_en_dir / name, directory)

    engine = Engine(directory)
    assert engine.config.quantization == "int8"
    weight = engine.executor.worker.runner.model.decoder.layers[1].ffn.fc1.packed
    place = CTranslate2Checkpoint(directory).variables["decoder/layer_1/ffn/linear_0/weight"]
    count = place.shape[0] * place.shape[1]
    stored = np.frombuffer((directory / "model.bin").read_bytes(), np.int8, count, place.offset).reshape(place.shape)
    assert np.array_equal(weight.panels.values.transpose(1, 2).reshape(place.shape).numpy(), stored)
    ours = heard(Engine(tiny_en_dir, quantization="int8"), clips[:5])
    assert [each.token_ids for each in heard(engine, clips[:5])] == [each.token_ids for each in ours]


@pytest.mark.parametrize("count", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_int8_loses_few_words(count: int, tiny_en_dir: Path, clips: list[dict]) -> None:
    clips = clips[:count]
    normalize = EnglishTextNormalizer()
    said = [normalize(clip["text"]) for clip in clips]
    rates = [
        jiwer.wer(said, [normalize(each.text) for each in heard(Engine(tiny_en_dir, quantization=weights), clips)])
        for weights in ("int8", None)
    ]
    assert abs(rates[0] - rates[1]) < 0.005


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantization": "int9"}, "quantization must be .int8. or .fp8., not .int9.. Did you mean .int8."),
        ({"quantization": "fp8"}, "quantization='fp8' is for GPUs; on a CPU quantization='int8' is"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype='fp8' is for GPUs; on a CPU the cache is in float16"),
        ({"quantization": "int8", "dtype": "bfloat16"}, "on a CPU needs dtype='float32', not 'bfloat16'"),
    ],
)
def test_what_cannot_be_says_what_can(options: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Engine(CMUDICT / "bart-g2p", device="cpu", **options)
