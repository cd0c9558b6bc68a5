"""The parity table on a GPU: in float32 the reference's ids, with graphs, swapping and preemption; in half precision
tokens that the reference, in float32, finds as likely as the best, to within what its own half precision is off. Half
precision is tested without a GPU, too.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from random_whisper import NO_TIMESTAMPS, SECONDS, START, save_random_whisper
from text_models import ROWS, TRAINED, Row
from torch import Tensor
from transformers import GenerationConfig, UMT5ForConditionalGeneration, WhisperForConditionalGeneration

from transept import Engine, SamplingParams

ON_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
TABLE = {name: row for name, row in (ROWS | TRAINED).items() if not name.startswith("opus-mt")}  # a plugin's
if not UMT5ForConditionalGeneration(TABLE["umt5"].config).decoder.block[0].layer[0].SelfAttention.is_causal:
    del TABLE["umt5"]  # whose decoder sees later tokens in some versions of transformers, 5.17 among them
# Its searches end early, so that one long input and short ones need no more cache than the long one alone may.
LENGTHS = {"t5-g2p": (33, 7, 1, 540, 600)}
HALF = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
GREEDY = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
NOISE = np.random.default_rng(0).normal(0.0, 0.3, size=(6, int(SECONDS * 16_000))).astype(np.float32)
AUDIO = [{"multi_modal_data": {"audio": (noise, 16_000)}} for noise in NOISE]


@needs_gpu
@pytest.mark.parametrize("name", TABLE)
def test_float32(name: str, tmp_path: Path) -> None:
    parity = TABLE[name].parity(tmp_path, device="cuda", encoder_lengths=LENGTHS.get(name))
    parity.tolerance = 1e-3  # other orders of sums than a CPU's
    parity.check_prefill()
    parity.check_decode()
    parity.check_batch()
    parity.check_preemption()
    parity.check_beam_search()


@pytest.mark.sampled(4)
@HALF
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_half_precision(row: Row, dtype: str, tmp_path: Path) -> None:
    parity = row.parity(tmp_path)
    prompts = [each.prompt for each in parity.inputs]
    outputs = engine_in(dtype, tmp_path).generate(prompts, GREEDY, generation_config=GenerationConfig())
    rounding, below = 0.0, 0.0
    for given, output in zip(parity.inputs, outputs, strict=True):
        start, ids = output.prompt_token_ids, output.outputs[0].token_ids
        exact, rounded = (
            parity.reference.logits(given, start + ids[:-1], each)[len(start) - 1 :].float()
            for each in ("float32", dtype)
        )
        rounding = max(rounding, float((rounded - exact).abs().max()))
        below = max(below, float((exact.amax(1) - exact.gather(1, torch.tensor(ids)[:, None])[:, 0]).max()))
    # The best token's logit and the chosen one's may both be off. Ranks would not do: a text that repeats itself may
    # meet the same two tokens, as good as equal, at every turn.
    assert below <= 2 * rounding


@pytest.fixture(autouse=True)
def _float32_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # by default convolutions round it on a GPU


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("whisper"))


@needs_gpu
@pytest.mark.parametrize("enforce_eager", [False, True])
def test_speech_in_float32(whisper: Path, enforce_eager: bool) -> None:
    engine = Engine(whisper, device="cuda", dtype="float32", kv_cache_bytes=1 << 26, enforce_eager=enforce_eager)
    assert_likely(speech_ranks(engine, whisper), first=1.0)
    assert (engine.executor.worker.runner.decoder.graphs is None) == enforce_eager  # nothing stood in a capture's way


@HALF
def test_speech_in_half_precision(whisper: Path, dtype: str) -> None:
    assert_likely(speech_ranks(engine_in(dtype, whisper), whisper))


def engine_in(dtype: str, directory: Path) -> Engine:
    return Engine(directory, device="cuda" if ON_GPU else "cpu", dtype=dtype, kv_cache_bytes=1 << 26)


def speech_ranks(engine: Engine, directory: Path) -> list[int]:
    reference = WhisperForConditionalGeneration.from_pretrained(directory).eval()
    start, ranks = [START, NO_TIMESTAMPS], []
    for prompt, output in zip(AUDIO, engine.generate(AUDIO, GREEDY, generation_config=GenerationConfig()), strict=True):
        ids = output.outputs[0].token_ids
        features = engine.preprocess(prompt).encoder.features["input_features"][None].cpu()
        with torch.inference_mode():
            logits = reference(features, decoder_input_ids=torch.tensor([start + ids[:-1]])).logits[0]
        ranks += ranks_of(ids, logits[len(start) - 1 :])
    return ranks


def ranks_of(ids: list[int], logits: Tensor) -> list[int]:
    """How many tokens the reference finds likelier than each of ours, after the same tokens."""
    ours = logits.gather(1, torch.tensor(ids)[:, None])
    return (logits > ours).sum(dim=1).tolist()


def assert_likely(ranks: list[int], first: float = 0.85) -> None:
    """All are among the reference's five most likely, and this share of them the most likely."""
    assert max(ranks) < 5
    assert ranks.count(0) >= first * len(ranks)
