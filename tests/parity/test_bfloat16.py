"""Models in bfloat16 on a CPU beside transformers in float32; and what is lost on real speech."""

import json
from pathlib import Path

import jiwer
import pytest
import torch
from text_models import ROWS, TRAINED
from transformers import GenerationConfig, WhisperFeatureExtractor
from whisper.normalizers import EnglishTextNormalizer
from whisper_reference import reference_model, windows

from transept import Engine, SamplingParams
from transept.core.kernels.dispatch import multiplies_bfloat16, reads_float16
from transept.testing import Parity

GREEDY = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)


@pytest.mark.parametrize("name", ["bart-large-cnn", "t5 1.1", *TRAINED])
def test_the_highest_tokens_are_transformers_but_for_near_ties(name: str, tmp_path: Path) -> None:
    parity = (ROWS | TRAINED)[name].parity(tmp_path)
    engine = Engine(tmp_path, dtype="bfloat16")
    prompts = [each.prompt for each in parity.inputs]
    together = engine.generate(prompts, GREEDY, generation_config=GenerationConfig())
    differ = total = 0
    for prompt, given, output in zip(prompts, parity.inputs, together, strict=True):
        start, ids = output.prompt_token_ids, output.outputs[0].token_ids
        logits = parity.reference.logits(given, start + ids[:-1])[len(start) - 1 :]
        ours = logits.gather(1, torch.tensor(ids)[:, None])[:, 0]
        # Of logits that deviate by 3. T5 does not scale its scores, so that rounded queries and keys move them more.
        assert (logits.amax(1) - ours).max() < (0.6 if name == "t5 1.1" else 0.4)
        differ += int((logits.argmax(1) != torch.tensor(ids)).sum())
        total += len(ids)
        (alone,) = engine.generate(prompt, GREEDY, generation_config=GenerationConfig())
        assert alone.outputs[0].token_ids == ids
    assert differ < total // 12


@pytest.mark.slow
def test_whisper_beside_transformers(tiny_en_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    extractor, inputs = WhisperFeatureExtractor(), []
    for clip in sorted((speech_dir / "librivox").glob("*.flac"))[:3]:
        sound = windows(clip)[0]
        heard = extractor(sound, sampling_rate=16_000, return_tensors="pt")
        inputs.append(({"audio": (sound, 16_000)}, dict(heard)))
    model = reference_model(tiny_en_dir)
    Parity(model, tmp_path, inputs=inputs, draw_constants=False).check_low_precision(("bfloat16",))


def test_weights_are_packed_in_bfloat16_and_the_cache_is_float16(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ROWS["bart-large-cnn"].parity(tmp_path)
    worker = Engine(tmp_path, dtype="bfloat16").executor.worker
    warned = any("bfloat16 is slower than float32" in message for message in caplog.messages)
    assert warned is not multiplies_bfloat16()
    layer = worker.runner.model.decoder.layers[0]
    assert layer.ffn.fc1.packed.panels.dtype is torch.bfloat16
    assert worker.cache.layers[0].dtype is (torch.float16 if reads_float16() else torch.float32)
    assert worker.runner.model.compute_dtype is torch.float32


@pytest.mark.parametrize(
    ("model", "count"),
    [("tiny_en_dir", 6), *(pytest.param(name, 54, marks=pytest.mark.slow) for name in ("tiny_en_dir", "base_dir"))],
)
def test_bfloat16_loses_no_words(model: str, count: int, request: pytest.FixtureRequest, speech_dir: Path) -> None:
    folder = speech_dir / "prompts-en"
    entries = json.loads((folder / "transcripts.json").read_text())[:count]
    clips = [{"multi_modal_data": {"audio": (windows(folder / entry["audio"])[0], 16_000)}} for entry in entries]
    normalize = EnglishTextNormalizer()
    said, rates = [normalize(entry["text"]) for entry in entries], []
    for dtype in ("bfloat16", "float32"):
        outputs = Engine(request.getfixturevalue(model), dtype=dtype).generate(clips, SamplingParams(temperature=0.0))
        rates.append(jiwer.wer(said, [normalize(output.outputs[0].text) for output in outputs]))
    assert abs(rates[0] - rates[1]) < 0.005
