"""What an engine does with a GPU, tried without one: see `emulated_gpu`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGpu, emulated_gpu
from one_head import with_one_head
from random_whisper import save_random_whisper

from transept import Engine, RequestOutput, SamplingParams
from transept.core.execution.decode_graphs import DecodeGraphs
from transept.core.kernels.transfer import Download, upload
from transept.multimodal.log_mel import mel_filters, recording_log_mel

WORDS = ["grapheme", "ox", "transept", "a", "engine", "nave"]
KINDS = [
    SamplingParams(temperature=0.0, max_tokens=8),
    SamplingParams(temperature=1.0, seed=3, max_tokens=7),
    SamplingParams(temperature=0.0, max_tokens=5, logprobs=2, min_tokens=2),
]
SEE_TOKENS = [
    SamplingParams(temperature=0.7, seed=4, max_tokens=4, n=2, top_p=0.9),
    SamplingParams(num_beams=3, max_tokens=4),
    SamplingParams(temperature=0.0, max_tokens=5, repetition_penalty=1.5, no_repeat_ngram_size=2),
]
pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
    pytest.mark.usefixtures("triton_checks_no_overflow"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p"])
def test_a_step_waits_once_and_tokens_are_the_cpus(name: str, tmp_path: Path) -> None:
    directory = with_one_head(name, tmp_path)
    options = {"dtype": "float32", "kv_cache_bytes": 1 << 24}
    params = [*KINDS, *KINDS], [*KINDS, *SEE_TOKENS]
    on_cpu = Engine(directory, device="cpu", **options)
    expected = [on_cpu.generate(WORDS, each, progress=False) for each in params]
    with emulated_gpu() as gpu:
        engine = Engine(directory, device="cuda", attention_backend="triton", block_size=16, max_num_seqs=4, **options)
        for each, outputs in zip(params, expected, strict=True):
            finished, ahead = run(engine, gpu, each)
            assert ahead >= (6 if each is params[0] else 1)
            for index, output in enumerate(outputs):
                for ours, theirs in zip(finished[str(index)].outputs, output.outputs, strict=True):
                    assert ours.token_ids == theirs.token_ids
                    assert ours.cumulative_logprob == pytest.approx(theirs.cumulative_logprob, abs=1e-4)
        engine.block_manager.check_integrity()
        assert not engine.executor.worker.runner.decoder.graphs.failed_shapes  # nothing stood in a capture's way


ON_GPU = """
import sys
from emulated_gpu import emulated_gpu
from transept import Engine, SamplingParams
with emulated_gpu():
    engine = Engine(sys.argv[1], device="cuda", attention_backend="triton", block_size=16, kv_cache_bytes=1 << 24)
    assert engine.generate(["ox"], SamplingParams(temperature=0.0, max_tokens=2), progress=False)
with open("/proc/self/maps") as mapped:
    print(*{line.split("/")[-1].strip() for line in mapped if "/kernels_" in line})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="loaded libraries are listed in /proc")
def test_an_engine_on_a_gpu_loads_no_kernels_of_cpus(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_GPU, str(with_one_head("bart-g2p", tmp_path))]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


@pytest.mark.slow
def test_a_capture_that_breaks_off_leaves_other_shapes_their_graphs(tmp_path: Path) -> None:
    directory = with_one_head("bart-g2p", tmp_path)
    with emulated_gpu() as gpu:
        engine = Engine(directory, device="cuda", attention_backend="triton", dtype="float32", kv_cache_bytes=1 << 24)
        params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (2, 2, 3, 5, 5, 4)]
        expected = engine.generate(WORDS, params, progress=False)
        runner = engine.executor.worker.runner
        runner.decoder.graphs = DecodeGraphs(runner.model, runner.cache, runner.block_size)
        decode, breaks = runner.model.decode, []

        def decode_unless_four(input_ids: torch.Tensor, *rest: object) -> torch.Tensor:
            if gpu.recorded is not None and len(input_ids) == 4:
                breaks.append(len(input_ids))
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
            return decode(input_ids, *rest)

        runner.model.decode = decode_unless_four
        ours = engine.generate(WORDS, params, progress=False)
    assert [each.outputs[0].token_ids for each in ours] == [each.outputs[0].token_ids for each in expected]
    assert {shape[0] for shape in runner.decoder.graphs.failed_shapes} == {4}
    assert {shape[0] for shape in runner.decoder.graphs._recordings} == {16, 8, 2}
    assert len(breaks) == len(runner.decoder.graphs.failed_shapes)


def test_a_window_of_sound_gets_its_features_and_its_name_without_waiting(tmp_path: Path) -> None:
    waveform = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    expected = recording_log_mel(waveform, 80)
    on_cpu = Engine(save_random_whisper(tmp_path))
    with emulated_gpu() as gpu:
        mel_filters(80, "cuda")  # kept from the first use on
        gpu.waits.clear()
        features = recording_log_mel(waveform, 80, "cuda")
        prompt = {"multi_modal_data": {"audio_features": features}, "multi_modal_uuids": {"audio_features": "one"}}
        assert on_cpu.preprocess(prompt).encoder.content_key is not None
        assert not gpu.waits
        del prompt["multi_modal_uuids"]
        on_cpu.preprocess(prompt)
        assert gpu.waits == {"copy": 1}  # to look at what they hold
        assert torch.equal(features.cpu(), expected)


def run(engine: Engine, gpu: EmulatedGpu, params: list[SamplingParams]) -> tuple[dict[str, RequestOutput], int]:
    """The outputs, and before how many steps' tokens the next step was issued. Each step waits once."""
    finished, ahead = {}, 0
    for index, (word, own) in enumerate(zip(WORDS, params, strict=True)):
        engine.add_request(str(index), word, own)
    while engine.has_unfinished_requests:
        gpu.waits.clear()
        finished |= {output.request_id: output for output in engine.step()}
        assert gpu.waits == {"event": 1}
        ahead += bool(engine.core.in_flight)
    return finished, ahead


def test_the_emulated_gpu_refuses_what_a_gpu_would() -> None:
    with emulated_gpu() as gpu:
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        assert there.is_cuda
        assert there.device.type == (there + 1)[:2].device.type == "cuda"
        with pytest.raises(RuntimeError, match="several devices"):
            there + here
        assert there.tolist() == [1.0] * 3
        assert gpu.waits == {"tolist": 1}
        assert there.cpu().device.type == "cpu"
        there.copy_(here)
        assert gpu.waits == {"tolist": 1, "copy": 2}

        part = Download([there + 4])
        assert part._parts[0].tolist() == [-123.0] * 3
        assert part.collect()[0].tolist() == [5.0] * 3

        with pytest.raises(RuntimeError, match="no arrays"):
            torch.tensor(np.arange(2), pin_memory=True)
        assert upload(np.arange(2), there.device).is_cuda
        numbers = torch.arange(2).pin_memory()
        numbers.to(there.device, non_blocking=True)
        numbers[0] = 7
        with pytest.raises(RuntimeError, match="while a copy from it was under way"):
            torch.cuda.Event.synchronize(_recorded())
        gpu.leaving.clear()

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = there * 2
        there += 1
        graph.replay()
        assert doubled.tolist() == [4.0] * 3
        with pytest.raises(RuntimeError, match="waits for nothing"), torch.cuda.graph(graph):
            doubled.tolist()
        with pytest.raises(RuntimeError, match="a copy between devices"), torch.cuda.graph(graph):
            upload([1, 2], there.device)


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record()
    return event
