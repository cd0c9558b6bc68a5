"""What encoders are given and return: lengths that mappers declared, and numbers in the model's dtype."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import PATIENCE
from ragged_whisper import frames_of, map_frames, ragged_engine
from random_whisper import save_random_whisper
from torch import Tensor

from transept import SamplingParams
from transept.errors import PluginError
from transept.multimodal.mapping import MappedInput

GREEDY = SamplingParams(temperature=0.0, max_tokens=6)
SAME_NAME = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from ragged_whisper import frames_of, ragged_engine
from transept import SamplingParams
engine = ragged_engine(Path({directory!r}), block_size=16, kv_cache_bytes=1 << 22)
for count in (16, 100, 60):
    prompt = {{"multi_modal_data": {{"audio_features": frames_of(count)}}}}
    named = prompt | {{"multi_modal_uuids": {{"audio_features": "one"}}}}
    engine.block_manager.reset()
    engine.generate({{**named, "multi_modal_data": {{"audio_features": frames_of(16, seed=1)}}}}, progress=False)
    ours, expected = (
        engine.generate(each, SamplingParams(temperature=0.0, max_tokens=6), progress=False)[0].outputs[0].token_ids
        for each in (named, prompt)
    )
    print(count, ours == expected, flush=True)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("random-whisper"))


def prompt(*counts: int) -> list[dict]:
    return [{"multi_modal_data": {"audio_features": frames_of(count)}} for count in counts]


def test_inputs_of_other_lengths_under_one_name_share_no_cross_table(directory: Path) -> None:
    program = SAME_NAME.format(tests=str(Path(__file__).parents[2]), directory=str(directory))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["16 False", "100 True", "60 True", ""]  # of one form, the name alone counts


@pytest.mark.parametrize("counts", [[32], [100, 32]])
def test_an_encoder_that_returns_other_lengths_than_declared_is_named(directory: Path, counts: list[int]) -> None:
    def one_fewer(frames: Tensor, view: Any) -> MappedInput:
        return MappedInput({"input_features": frames}, num_tokens=frames.shape[1] // 2 - 1)

    engine = ragged_engine(directory, one_fewer)
    declared, returned = counts[0] // 2 - 1, counts[0] // 2  # of the first, which is told alone
    with pytest.raises(
        PluginError, match=rf"returned {returned} .* \"audio_features\" mapper .* \"whisper\" .* {declared}"
    ):
        engine.generate(prompt(*counts), GREEDY, progress=False)


@pytest.mark.parametrize("frames", [32, 100])  # of 50 positions
def test_a_length_with_one_token_too_many_is_the_mappers(directory: Path, frames: int) -> None:
    def one_more(frames: Tensor, view: Any) -> MappedInput:
        return MappedInput({"input_features": frames}, num_tokens=frames.shape[1] // 2 + 1)

    engine = ragged_engine(directory, one_more)
    owner = r'the "audio_features" mapper of plugin family "whisper" \(plugin "whisper" of transept \S+\)'
    told = {
        32: rf"^RaggedWhisper\.encode of plugin family .* returned 16 rows, but {owner} declared 17 encoder tokens",
        100: rf"^{owner} declared num_tokens=51, and the encoder gives 50 tokens at most.*the plugin's author: correct",
    }
    with pytest.raises(PluginError, match=told[frames]) as raised:
        engine.generate(prompt(frames), GREEDY, progress=False)
    assert "shorten" not in str(raised.value)


def test_hidden_states_of_another_shape_are_named(directory: Path) -> None:
    engine = ragged_engine(directory)
    model = engine.executor.worker.runner.model

    class Batched(type(model)):
        def encode(self, *inputs: Any, **features: Any) -> Tensor:
            return super().encode(*inputs, **features)[None]

    model.__class__ = Batched
    with pytest.raises(PluginError, match=r"Batched\.encode of plugin family .* returned \[1, 16, 64\]"):
        engine.generate(prompt(32), GREEDY, progress=False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("features", [torch.float32, torch.float64, torch.float16], ids=str)
def test_features_come_in_the_models_dtype(directory: Path, dtype: str, features: torch.dtype) -> None:
    seen = []

    def in_dtype(frames: Tensor, view: Any) -> MappedInput:
        return map_frames(frames.to(features), view)

    engine = ragged_engine(directory, in_dtype, dtype=dtype)
    encode = engine.executor.worker.runner.model.encode
    engine.executor.worker.runner.model.encode = lambda *inputs, **given: (
        seen.extend(given["input_features"]) or encode(*inputs, **given)
    )
    (output,) = engine.generate(prompt(100), GREEDY, progress=False)
    assert len(output.outputs[0].token_ids) == 6
    on_cpu = engine.config.device == "cpu"
    activations = "float32" if dtype == "bfloat16" and on_cpu else dtype  # which rounds what it multiplies
    assert [each.dtype for each in seen] == [getattr(torch, activations)]


def test_requests_of_other_keywords_or_without_ids_are_encoded_apart(directory: Path) -> None:
    """Whatever a mapper leaves out for one request, encode gets of all requests of a call the same."""

    def some_of_it(frames: Tensor, view: Any) -> MappedInput:
        kind, mapped = frames.shape[1] // 30 - 1, map_frames(frames, view)
        more = {"rate": torch.tensor([kind])} if kind == 1 else {}
        ids = [*range(7, 7 + mapped.num_tokens)] if kind == 2 else ()
        return MappedInput({**mapped.kwargs, **more}, mapped.num_tokens, ids)

    engine = ragged_engine(directory, some_of_it, max_num_seqs=8)
    encode, calls = engine.executor.worker.runner.model.encode, []

    def recording(input_ids: Any, positions: Any, metadata: Any, **features: list[Tensor]) -> Tensor:
        calls.append((input_ids, positions, {name: len(values) for name, values in features.items()}))
        return encode(input_ids, positions, metadata, **features)

    engine.executor.worker.runner.model.encode = recording
    counts = (32, 34, 60, 62, 90, 92, 36)
    together = [output.outputs[0].token_ids for output in engine.generate(prompt(*counts), GREEDY, progress=False)]
    assert [features for _, _, features in calls] == [
        {"input_features": 2},
        {"input_features": 2, "rate": 2},
        {"input_features": 2},
        {"input_features": 1},
    ]
    assert [input_ids is not None for input_ids, _, _ in calls] == [False, False, True, False]
    assert calls[2][0].tolist() == [*range(7, 52), *range(7, 53)]
    assert calls[2][1].tolist() == [*range(45), *range(46)]
    engine.block_manager.reset()
    alone = [engine.generate([each], GREEDY, progress=False)[0].outputs[0].token_ids for each in prompt(*counts)]
    assert together == alone
