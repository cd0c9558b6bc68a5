"""The engine's step loop over a small random Whisper: arrivals, aborts, preemption, samples, failures."""

import gc
import random
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from random_whisper import NO_TIMESTAMPS, SECONDS, START, save_random_whisper
from transformers import GenerationMixin, WhisperForConditionalGeneration

from transept import Engine, SamplingParams
from transept.core.kernels.dispatch import HUNDREDS
from transept.core.layers.linear import Linear
from transept.errors import (
    CapacityError,
    EngineClosedError,
    MediaError,
    ParameterError,
    PromptError,
    RequestFailedError,
)

SLOT_BYTES = 2 * 2 * 64 * 4  # keys and values, layers, width, float32
NOISE = np.random.default_rng(0).normal(0.0, 0.3, size=(12, int(SECONDS * 16_000))).astype(np.float32)
GREEDY = SamplingParams(temperature=0.0, max_tokens=30)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("random-whisper"))


@pytest.fixture(scope="module")
def engine(directory: Path) -> Engine:
    return Engine(directory)


def prompt(index: int) -> dict:
    return {"multi_modal_data": {"audio": (NOISE[index], 16_000)}}


def ids(output) -> list[list[int]]:
    return [completion.token_ids for completion in output.outputs]


def assert_no_blocks_held(engine: Engine) -> None:
    manager = engine.block_manager
    manager.check_integrity()
    assert manager.num_free_device_blocks == manager.num_device_blocks
    assert manager.num_free_host_blocks == manager.num_host_blocks
    assert not manager.block_tables
    assert not manager.cross_block_tables


def test_greedy_equals_transformers_on_random_weights(engine: Engine, directory: Path) -> None:
    reference = WhisperForConditionalGeneration.from_pretrained(directory).eval()
    outputs = engine.generate([prompt(index) for index in range(6)], GREEDY)
    for index, output in enumerate(outputs):
        features = engine.preprocess(prompt(index)).encoder.features["input_features"][None]
        start = torch.tensor([[START, NO_TIMESTAMPS]])
        row = GenerationMixin.generate(reference, features, max_new_tokens=30, decoder_input_ids=start)  # not Whisper's
        assert ids(output)[0] == row[0].tolist()[2:]
    assert len({tuple(ids(output)[0]) for output in outputs}) > 1  # the audio matters


def test_an_id_is_in_use_until_its_end_was_returned(engine: Engine) -> None:
    engine.add_request("same", prompt(0), SamplingParams(temperature=0.0, max_tokens=2))
    engine.generate(prompt(1), GREEDY)  # in whose steps the other one ends
    with pytest.raises(ParameterError, match="'same' is in use"):
        engine.add_request("same", prompt(2), GREEDY)
    (output,) = engine.step()
    assert output.finished
    assert not engine.has_unfinished_requests


def test_numpys_integers_are_token_ids(engine: Engine) -> None:
    expected, output = (
        engine.generate(prompt(0), SamplingParams(temperature=0.0, max_tokens=2, forced_bos_token_id=number(7)))[0]
        for number in (int, np.int64)
    )
    assert ids(output) == ids(expected)


def test_an_error_that_is_kept_keeps_no_model(directory: Path) -> None:
    def broken(logits: torch.Tensor, rows: object) -> None:
        raise KeyError("this processor is broken")

    engine = Engine(directory)
    with pytest.raises(RequestFailedError) as raised:
        engine.generate(prompt(0), SamplingParams(logits_processors=[broken]))
    kept, model = raised.value, weakref.ref(engine.executor.worker.runner.model)  # type: ignore[attr-defined]
    engine.close()
    gc.collect()
    assert model() is None
    assert "this processor is broken" in str(kept.__cause__)


def test_it_is_closed_at_the_end_of_a_with_statement(directory: Path) -> None:
    with pytest.raises(KeyError), Engine(directory) as closed:
        raise KeyError
    with pytest.raises(EngineClosedError, match="the engine is closed; make another one"):
        closed.generate(prompt(0))
    closed.close()


def test_an_encoder_of_sound_has_products_for_many_rows(engine: Engine) -> None:
    model = engine.executor.worker.runner.model
    encoder, decoder = (
        {module.packed.usual_rows for module in side.modules() if isinstance(module, Linear)}
        for side in (model.encoder, model.decoder)
    )
    assert encoder == {HUNDREDS}
    assert decoder == {1}


def test_outputs_carry_both_sides_and_come_in_order(engine: Engine) -> None:
    outputs = engine.generate([prompt(index) for index in (3, 1, 2)], GREEDY)
    assert [ids(output) for output in outputs] == [ids(engine.generate(prompt(i), GREEDY)[0]) for i in (3, 1, 2)]
    first = outputs[0]
    assert (first.encoder_prompt, first.encoder_prompt_token_ids) == (None, [])
    assert first.prompt_token_ids == [START, NO_TIMESTAMPS]
    assert first.finished
    assert first.outputs[0].finish_reason == "length"
    assert first.outputs[0].logprobs is None


def test_several_parameters_in_one_batch_equal_each_alone(engine: Engine) -> None:
    many = [
        GREEDY,
        SamplingParams(temperature=0.0, max_tokens=5),
        SamplingParams(temperature=1.0, seed=7, max_tokens=20, top_k=50),
        SamplingParams(temperature=0.7, seed=8, max_tokens=20, top_p=0.9, n=3),
        SamplingParams(temperature=0.0, max_tokens=12, repetition_penalty=1.3, logprobs=4),
    ]
    batched = engine.generate([prompt(index) for index in range(5)], many)
    alone = [engine.generate(prompt(index), params)[0] for index, params in enumerate(many)]
    assert [ids(output) for output in batched] == [ids(output) for output in alone]
    assert [len(output.outputs) for output in batched] == [1, 1, 1, 3, 1]
    assert all(len(entry) in (4, 5) for entry in batched[4].outputs[0].logprobs)
    chosen = [entry[token] for entry, token in zip(batched[4].outputs[0].logprobs, ids(batched[4])[0], strict=True)]
    assert sum(chosen) == pytest.approx(batched[4].outputs[0].cumulative_logprob, abs=1e-4)


def test_samples_share_one_cross_table_and_one_encoder_run(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(directory, block_size=16, kv_cache_bytes=SLOT_BYTES << 10)
    runs = []
    model = engine.executor.worker.runner.model
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *args, **kwargs: runs.append(1) or encode(*args, **kwargs))
    params = SamplingParams(temperature=1.0, seed=1, n=4, max_tokens=40)
    engine.add_request("samples", prompt(0), params)
    while engine.has_unfinished_requests:
        (output,) = engine.step()
        assert len(engine.block_manager.cross_block_tables) == int(not output.finished)
        engine.block_manager.check_integrity()
    assert runs == [1]
    assert [completion.index for completion in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(sample) for sample in ids(output)}) == 4
    for index, sample in enumerate(ids(output)):  # a sample does not depend on how many there are
        fewer = engine.generate(prompt(0), SamplingParams(temperature=1.0, seed=1, n=index + 1, max_tokens=40))[0]
        assert ids(fewer)[index] == sample


def test_beams_share_one_cross_table_one_encoder_run_and_the_blocks_of_their_common_past(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(directory, block_size=4, kv_cache_bytes=SLOT_BYTES << 10)
    runs = []
    model = engine.executor.worker.runner.model
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *args, **kwargs: runs.append(1) or encode(*args, **kwargs))
    engine.add_request("beams", prompt(0), SamplingParams(num_beams=4, num_return_sequences=3, max_tokens=60))
    shared = most_beams = 0
    while engine.has_unfinished_requests:
        (output,) = engine.step()
        assert len(engine.block_manager.cross_block_tables) == int(not output.finished)
        tables = list(engine.block_manager.block_tables.values())
        shared += len({block for table in tables for block in table}) < sum(len(table) for table in tables)
        most_beams = max(most_beams, len(tables))
        engine.block_manager.check_integrity()
    assert runs == [1]
    assert shared > 10
    assert most_beams == 4
    assert [completion.index for completion in output.outputs] == [0, 1, 2]
    assert len({tuple(hypothesis) for hypothesis in ids(output)}) == 3
    scores = [completion.score for completion in output.outputs]
    assert scores == sorted(scores, reverse=True)
    lengths = [len(hypothesis) for hypothesis in ids(output)]
    sums = [completion.cumulative_logprob for completion in output.outputs]
    assert scores == pytest.approx([total / length for total, length in zip(sums, lengths, strict=True)])
    assert_no_blocks_held(engine)


def test_beams_are_shown_while_they_run(engine: Engine) -> None:
    engine.add_request("beams", prompt(0), SamplingParams(num_beams=4, max_tokens=9))
    lengths = []
    while engine.has_unfinished_requests:
        (output,) = engine.step()
        sums = [completion.cumulative_logprob for completion in output.outputs]
        assert sums == sorted(sums, reverse=True)
        lengths.append([len(completion.token_ids) for completion in output.outputs])
    assert lengths == [*([length] * 4 for length in range(1, 9)), [9]]
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("made_in", [False, True])
def test_an_engine_works_outside_the_inference_mode_in_which_it_was_made_and_within(
    engine: Engine, directory: Path, made_in: bool
) -> None:
    slots = 8 * 64
    with torch.inference_mode(made_in):
        small = Engine(directory, kv_cache_bytes=slots * SLOT_BYTES, swap_bytes=slots * SLOT_BYTES, max_num_seqs=8)
    prompts = [prompt(index) for index in range(4)]
    params = SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=80, early_stopping="never")
    expected = [ids(output) for output in engine.generate(prompts, params)]
    for inside in (False, True):
        with torch.inference_mode(inside):  # beams copy blocks, and more than fit are swapped
            assert [ids(output) for output in small.generate(prompts, params)] == expected


@pytest.mark.sampled(6)
@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_random_arrivals_and_aborts_under_preemption(
    engine: Engine, directory: Path, block_size: int, swap: bool
) -> None:
    rng = random.Random(block_size + swap)
    slots = 8 * 64  # a few short requests, or one long one, at a time
    small = Engine(
        directory,
        block_size=block_size,
        kv_cache_bytes=slots * SLOT_BYTES,
        swap_bytes=slots * SLOT_BYTES if swap else 0,
        max_num_seqs=8,
    )
    kinds = [
        (index, params)
        for index in range(6)
        for params in (
            SamplingParams(temperature=0.0, max_tokens=7),
            SamplingParams(temperature=0.0, max_tokens=110),
            SamplingParams(temperature=1.0, seed=index, max_tokens=50, n=2),
            SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=80, early_stopping="never"),
        )
    ]
    expected = {kind: ids(engine.generate(prompt(kind[0]), kind[1])[0]) for kind in kinds}
    waiting = [rng.choice(kinds) for _ in range(167)]  # six cases: over 1,000 requests
    live, finished, aborted, preempted = {}, {}, 0, 0
    while waiting or small.has_unfinished_requests:
        for _ in range(min(rng.choice((0, 0, 1, 3)), len(waiting))):
            request_id = f"request-{len(waiting)}"
            live[request_id] = waiting.pop()
            small.add_request(request_id, prompt(live[request_id][0]), live[request_id][1])
        if live and rng.random() < 0.05:
            victim = rng.choice(list(live))
            del live[victim]
            small.abort_request(victim)
            aborted += 1
        for output in small.step():
            if output.finished:
                finished[output.request_id] = (live.pop(output.request_id), ids(output))
        small.block_manager.check_integrity()
        preempted += any(group.seqs[0].output_token_ids for group in small.scheduler.queue)
    assert not live
    assert len(finished) + aborted == 167
    assert preempted > 10
    assert aborted > 5
    for kind, got in finished.values():
        assert got == expected[kind]
    assert_no_blocks_held(small)


def test_a_request_that_could_never_fit_is_refused_with_the_numbers(directory: Path) -> None:
    engine = Engine(directory, block_size=16, kv_cache_bytes=10 * 16 * SLOT_BYTES)
    with pytest.raises(CapacityError, match=r"14 cache blocks .* the cache has 10.*kv_cache_bytes"):
        engine.add_request("long", prompt(0), SamplingParams(max_tokens=150))
    assert len(ids(engine.generate(prompt(0), GREEDY)[0])[0]) == 30
    assert_no_blocks_held(engine)


def test_bad_prompts_are_named_and_leave_nothing_behind(engine: Engine) -> None:
    with pytest.raises(PromptError, match=r"prompt 1: .*takes no text"):
        engine.generate([prompt(0), "hello", prompt(1)], GREEDY)
    with pytest.raises(MediaError, match=r"1\.50 s"):
        engine.generate({"multi_modal_data": {"audio": (np.ones(24_000, np.float32), 16_000)}}, GREEDY)
    assert not engine.has_unfinished_requests
    assert_no_blocks_held(engine)


def test_an_encoder_that_fails_ends_its_request_alone(engine: Engine) -> None:
    expected = ids(engine.generate(prompt(0), GREEDY)[0])
    engine.add_request("good", prompt(0), GREEDY)
    engine.step()
    engine.add_request("bad", prompt(11), GREEDY)  # which no other test encodes before
    bad = engine.scheduler.queue[0].encoder_seq.inputs.encoder
    bad.features["input_features"] = torch.zeros(7, 100)  # 7 mel bins: the convolution refuses
    outputs = {}
    while engine.has_unfinished_requests:
        outputs |= {output.request_id: output for output in engine.step()}
    assert ids(outputs["good"]) == expected
    assert isinstance(outputs["bad"].error, RequestFailedError)
    assert isinstance(outputs["bad"].error.__cause__, RuntimeError)
    assert outputs["bad"].outputs[0].finish_reason == "error"
    assert_no_blocks_held(engine)
    runs = engine.num_encoder_runs
    assert ids(engine.generate(prompt(11), GREEDY)[0])  # not from what the failed step left behind
    assert engine.num_encoder_runs == runs + 1


def test_requests_join_a_running_batch_and_leave_it(engine: Engine) -> None:
    expected = [ids(engine.generate(prompt(index), GREEDY)[0]) for index in range(3)]
    finished = {}
    for index in range(3):
        engine.add_request(str(index), prompt(index), GREEDY)
        for output in [*engine.step(), *engine.step()]:
            assert len(output.outputs[0].token_ids) <= 6
    with pytest.raises(ParameterError, match="in use"):
        engine.add_request("1", prompt(1), GREEDY)
    assert ids(engine.generate(prompt(0), GREEDY)[0]) == expected[0]  # in the same batch
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    assert [ids(finished[str(index)]) for index in range(3)] == expected
    engine.abort_request("1")  # finished or unknown ids are no error
    assert_no_blocks_held(engine)


def test_engines_in_threads_of_one_process(directory: Path, engine: Engine) -> None:
    alone = [ids(output) for output in engine.generate([prompt(index) for index in range(6)], GREEDY)]
    num_threads = torch.get_num_threads()

    def run(_: int) -> list[list[list[int]]]:
        own = Engine(directory, threads=num_threads)
        outputs = [own.generate(prompt(index), GREEDY)[0] for index in range(6)]
        assert torch.get_num_threads() == num_threads
        return [ids(output) for output in outputs]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [alone] * 3


def test_progress_bar_counts_prompts(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    engine.generate([prompt(0), prompt(1)], GREEDY, progress=True)
    assert "2/2" in capfd.readouterr().err
    engine.generate([prompt(0), prompt(1)], GREEDY)  # stderr is no terminal
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_sise": 16}, "block_size"),
        ({"dtype": "float23"}, "float32"),
        ({"device": "tpu"}, "cpu"),
        ({"attention_backend": "flash"}, "known: auto, torch"),
        ({"quantization": "int4"}, "int8"),
        ({"kv_cache_dtype": "fp9"}, "fp8"),
        ({"threads": -1}, "at least 0"),
        ({"threads": 10**6}, "far above this machine's"),
        ({"device": 0}, "must be a string, such as"),
        ({"block_size": 0}, "at least 1"),
        ({"max_num_seqs": 8, "max_decoder_tokens": 4}, "max_decoder_tokens"),
    ],
)
def test_bad_options_are_explained(directory: Path, options: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Engine(directory, **options)


def test_a_dtype_may_be_pytorchs(directory: Path) -> None:
    assert Engine(directory, dtype=torch.float32).config.dtype == "float32"


def test_parameters_that_are_none_are_refused(engine: Engine) -> None:
    for params in ({"temperature": 0.0}, [{"temperature": 0.0}]):
        with pytest.raises(ParameterError, match="must be SamplingParams, not dict"):
            engine.generate([prompt(0)], params)
    with pytest.raises(ParameterError, match="must be SamplingParams, not dict"):
        engine.add_request("a", prompt(0), {"temperature": 0.0})
    assert not engine.has_unfinished_requests


def test_one_parameter_set_a_prompt_or_one_for_all(engine: Engine) -> None:
    with pytest.raises(ParameterError, match="2 sampling_params for 1 prompts"):
        engine.generate([prompt(0)], [GREEDY, GREEDY])


def test_no_prompts_give_no_outputs(engine: Engine) -> None:
    assert engine.generate([]) == []
    with pytest.raises(ParameterError, match="1 sampling_params for 0 prompts"):
        engine.generate([], [SamplingParams()])


def test_a_cache_too_small_for_a_whole_request_is_said_at_the_start(directory: Path, caplog) -> None:
    Engine(directory, block_size=16, kv_cache_bytes=10 * 16 * SLOT_BYTES)
    assert "the cache has 10 blocks, and a request of the model's full length takes 32" in caplog.text
    assert "raise kv_cache_bytes (3.20 times as much)" in caplog.text
    caplog.clear()
    Engine(directory, block_size=16, kv_cache_bytes=32 * 16 * SLOT_BYTES)
    assert not caplog.text


LITTLE_MEMORY = """
import resource, sys
import torch
from transept import CapacityError, Engine
torch.ones(100, 100) @ torch.ones(100, 100)  # whose threads have their stacks now
Engine(sys.argv[1], kv_cache_bytes=10_000_000)
for more in map(int, sys.argv[3:]):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
    try:
        Engine(sys.argv[2], kv_cache_bytes=1_000_000_000)
    except CapacityError as error:
        print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="how much memory is in use is not known")
def test_too_little_memory_is_an_error_that_says_for_what(directory: Path, tiny_en_dir: Path) -> None:
    command = [sys.executable, "-c", LITTLE_MEMORY, str(directory), str(tiny_en_dir), str(180 << 20), str(900 << 20)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [line.partition(": ")[0] for line in done.stdout.splitlines()]
    assert told == [f"there is too little memory for {what}" for what in ("the weights", "the cache")], done.stderr
