"""Jobs that share an engine, on a small real text model: who is answered when, in which thread, and what is left."""

import gc
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from interruptions import interrupted_after

from transept import Engine, SamplingParams
from transept.core.jobs.job import Channel, Gather, Offload, Submit, Wait
from transept.core.jobs.tasks import MAX_GATHERED
from transept.core.request.prompts import Request
from transept.errors import (
    CapacityError,
    ParameterError,
    PromptError,
    QueueFullError,
    RequestFailedError,
    TranseptError,
)

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)
LONG = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
WORDS = ["g2p: engine", "g2p: transept", "g2p: window", "g2p: language"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engine: Engine):
    yield
    assert not engine.has_unfinished_requests
    engine.block_manager.check_integrity()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


@pytest.fixture(scope="module")
def expected(engine: Engine) -> dict[str, str]:
    outputs = engine.generate(WORDS, GREEDY, progress=False)
    return {word: output.outputs[0].text for word, output in zip(WORDS, outputs, strict=True)}


def asks(*rounds):
    """A job with a question a round, each about some words. It tells how many texts it has, and returns all."""
    texts = []
    for words in rounds:
        outputs = yield Submit([Request(word, GREEDY) for word in words])
        texts += [output.outputs[0].text for output in outputs]
        yield len(texts)
    return texts


def tells(*values, then=()):
    """A job that asks, and then tells each of some values."""
    yield Submit([Request(WORDS[0], GREEDY), *(Request(word, GREEDY) for word in then)])
    yield from values
    return values


def test_answers_come_in_order_and_events_before_results(engine: Engine, expected: dict[str, str]) -> None:
    events = list(engine.runner.run([asks(WORDS[:3], WORDS[3:]), asks(WORDS[::-1])], max_jobs=2))
    first = [event for index, event in events if index == 0]
    second = [event for index, event in events if index == 1]
    assert first == [3, 4, [expected[word] for word in WORDS]]
    assert second == [4, [expected[word] for word in reversed(WORDS)]]


def test_jobs_share_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    step, widths = engine.core.step, []

    def counted():
        step()
        widths.append(len(engine.core.took_part))

    monkeypatch.setattr(engine.core, "step", counted)
    list(engine.runner.run([asks([word]) for word in WORDS], max_jobs=4))
    assert widths[0] == len(WORDS)


def test_jobs_are_read_as_there_is_room(engine: Engine) -> None:
    read = []

    def jobs():
        for word in WORDS:
            read.append(word)
            yield asks([word])

    events = engine.runner.run(jobs(), max_jobs=2)
    next(events)
    assert read == WORDS[:2]
    list(events)
    assert read == WORDS


def test_an_ask_of_nothing_is_answered_at_once(engine: Engine) -> None:
    assert list(engine.runner.run([asks([], [])], max_jobs=1))[-1] == (0, [])


def test_gather_gives_results_and_findings_in_the_jobs_order(engine: Engine, expected: dict[str, str]) -> None:
    def child(word: str, steps: int):
        for _ in range(steps):  # the earlier the child, the more steps it takes
            yield Submit([Request(word, SamplingParams(temperature=0.0, max_tokens=1))])
        yield word
        (output,) = yield Submit([Request(word, GREEDY)])
        return output.outputs[0].text

    def parent():
        texts = yield Gather(child(word, 4 - index) for index, word in enumerate(WORDS))
        yield "all"
        return texts

    events = [event for _, event in engine.runner.run([parent()], max_jobs=1)]
    assert events == [*WORDS, "all", [expected[word] for word in WORDS]]


def test_gather_merges_events_as_they_come(engine: Engine) -> None:
    def child(steps: int):
        for step in range(steps):
            yield Submit([Request(WORDS[0], SamplingParams(temperature=0.0, max_tokens=1))])
            yield step
        return steps

    def inner():
        return (yield Gather([child(1), tells("told")]))

    def parent():
        results = yield Gather(
            [child(3), inner(), child(2)], merge=lambda number, event: [(number, event)] * (event != 1)
        )
        yield "all"
        return results

    events = [event for _, event in engine.runner.run([parent()], max_jobs=1)]
    *merged, after, results = events
    assert after == "all"
    assert results == [3, [1, ("told",)], 2]
    assert sorted(merged, key=str) == sorted([(0, 0), (0, 2), (1, 0), (1, "told"), (2, 0)], key=str)
    assert merged.index((2, 0)) < merged.index((0, 2)), "nobody waits for an older job"
    assert merged.index((1, 0)) < merged.index((1, "told")), "what a job gathers without merging keeps its order"


def test_what_a_merge_raises_comes_once_all_jobs_have_ended(engine: Engine) -> None:
    ended = []

    def child(name: str, steps: int):
        for step in range(steps):
            yield Submit([Request(WORDS[0], SamplingParams(temperature=0.0, max_tokens=1))])
            yield step
        ended.append(name)

    def merge(number: int, event: int):
        if event == 1:
            raise ValueError("no ones")
        return [event]

    def parent():
        try:
            yield Gather([child("a", 2), child("b", 4)], merge=merge)
        except ValueError as error:
            yield str(error)
        return (yield Gather([tells("later")]))  # which nothing merges

    events = [event for _, event in engine.runner.run([parent()], max_jobs=1)]
    assert ended == ["a", "b"]
    assert events == [0, 0, "no ones", "later", [("later",)]]


def test_gather_of_jobs_that_ask_nothing(engine: Engine) -> None:
    def child(value: int):
        yield value
        return value

    def parent():
        return (yield Gather(child(value) for value in range(3)))

    assert list(engine.runner.run([parent()], max_jobs=1)) == [(0, 0), (0, 1), (0, 2), (0, [0, 1, 2])]


@pytest.mark.parametrize(("max_jobs", "expected"), [(None, MAX_GATHERED), (3, 3), (1, 1), (100, MAX_GATHERED)])
def test_gather_has_so_many_jobs_at_work_at_most(engine: Engine, max_jobs: int | None, expected: int) -> None:
    assert engine.config.max_num_seqs > MAX_GATHERED
    at_work, most = set(), 0

    def child(index: int):
        nonlocal most
        at_work.add(index)
        most = max(most, len(at_work))
        yield Submit([Request(WORDS[index % len(WORDS)], GREEDY)])
        at_work.remove(index)
        return index

    def parent():
        jobs = (child(index) for index in range(2 * MAX_GATHERED))
        return (yield Gather(jobs, max_jobs=max_jobs))

    assert list(engine.runner.run([parent()], max_jobs=1)) == [(0, list(range(2 * MAX_GATHERED)))]
    assert most == expected


def test_gather_may_be_nested_and_empty(engine: Engine) -> None:
    def inner(name: str):
        yield Gather([tells(f"{name}1", then=WORDS), tells(f"{name}2")])
        return name

    def outer():
        nothing = yield Gather([])
        names = yield Gather([inner("a"), inner("b")])
        return nothing, names

    events = [event for _, event in engine.runner.run([outer()], max_jobs=1)]
    assert events == ["a1", "a2", "b1", "b2", ([], ["a", "b"])]


def test_jobs_of_gather_start_as_the_engine_has_room(expected: dict[str, str]) -> None:
    engine = Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p", max_num_seqs=2)
    started = []

    def children():
        for word in WORDS:
            started.append(word)
            yield asks([word])

    def parent():
        return (yield Gather(children()))

    events = engine.runner.run([parent()], max_jobs=1)
    next(events)
    assert len(started) <= 3
    rest = list(events)
    assert started == WORDS
    assert rest[-1] == (0, [[expected[word]] for word in WORDS])


def test_a_job_that_fails_ends_alone(engine: Engine, expected: dict[str, str]) -> None:
    def fails():
        yield Submit([Request(WORDS[0], GREEDY)])
        raise TranseptError("no more")

    events = list(engine.runner.run([fails(), asks(WORDS)], max_jobs=2))
    (failure,) = [event for index, event in events if index == 0]
    assert isinstance(failure, TranseptError)
    assert str(failure) == "no more"
    assert events[-1] == (1, [expected[word] for word in WORDS])


def test_a_refused_request_is_raised_in_the_job(engine: Engine, expected: dict[str, str]) -> None:
    def tries():
        try:
            yield Submit([Request(WORDS[0], GREEDY), Request({"prompt_tokens": []}, GREEDY)])
        except PromptError:
            (output,) = yield Submit([Request(WORDS[1], GREEDY)])
            return output.outputs[0].text

    def insists():
        yield Submit([Request(WORDS[0], SamplingParams(temperature=1.0, n=1000))])

    events = dict(engine.runner.run([tries(), insists()], max_jobs=2))
    assert events[0] == expected[WORDS[1]]
    assert isinstance(events[1], CapacityError)


def test_a_failure_among_jobs_of_gather_closes_the_others(engine: Engine) -> None:
    closed = []

    def fails():
        yield Submit([Request(WORDS[0], SamplingParams(temperature=0.0, max_tokens=1))])
        raise TranseptError("no more")

    def sibling():
        try:
            yield Submit([Request(WORDS[1], LONG)])
        finally:
            closed.append(True)

    def parent():
        try:
            yield Gather([sibling(), fails()])
        except TranseptError as error:
            return str(error)

    assert dict(engine.runner.run([parent()], max_jobs=1)) == {0: "no more"}
    assert closed == [True]


def test_closing_and_foreign_errors_end_everything(engine: Engine) -> None:
    closed = []

    def long():
        try:
            yield Submit(
                [Request(word, SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)) for word in WORDS]
            )
        finally:
            closed.append(True)

    events = engine.runner.run([tells("ready"), long()], max_jobs=2)
    assert next(events) == (0, "ready")
    assert engine.has_unfinished_requests
    events.close()
    assert closed == [True]

    def crashes():
        yield Submit([Request(WORDS[0], GREEDY)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(engine.runner.run([long(), crashes()], max_jobs=2))
    assert closed == [True, True]


def test_several_runs_interleave_in_one_thread(engine: Engine, expected: dict[str, str]) -> None:
    first = engine.runner.run([tells("one"), asks(WORDS, WORDS)], max_jobs=2)
    assert next(first) == (0, "one")
    assert list(engine.runner.run([asks(WORDS[:2])], max_jobs=1))[-1] == (0, [expected[word] for word in WORDS[:2]])
    assert engine.generate(WORDS[3], GREEDY)[0].outputs[0].text == expected[WORDS[3]]
    assert list(first)[-1] == (1, [expected[word] for word in WORDS * 2])


def test_requests_of_the_engines_user_go_on_beside_jobs(engine: Engine, expected: dict[str, str]) -> None:
    engine.add_request("mine", WORDS[1], GREEDY)
    assert list(engine.runner.run([asks(WORDS)], max_jobs=1))[-1] == (0, [expected[word] for word in WORDS])
    assert engine.has_unfinished_requests  # what came of it meanwhile has not been told
    told = {}
    while engine.has_unfinished_requests:
        told |= {output.request_id: output for output in engine.step()}
    assert told["mine"].finished
    assert told["mine"].outputs[0].text == expected[WORDS[1]]


def test_steps_of_the_engines_user_start_the_jobs_of_a_gather(engine: Engine, expected: dict[str, str]) -> None:
    channel = engine.runner.submit(_gathers(WORDS))
    for _ in range(100):
        engine.step()
    assert len(channel.events) == 1
    assert engine.runner.read(channel) == (0, [expected[word] for word in WORDS])


def answers(word: str):
    (output,) = yield Submit([Request(word, GREEDY)])
    return output.outputs[0].text


def _gathers(words: list[str]):
    return (yield Gather(answers(word) for word in words))


def test_a_job_that_is_closed_in_the_middle_of_a_step_is_gone_after_it(engine: Engine) -> None:
    channel = engine.runner.submit(tells(WORDS[0]))
    engine.step()

    def closes(logits: object, rows: object) -> None:
        with ThreadPoolExecutor(1) as pool:  # another thread, since this one is in the middle of its step
            pool.submit(engine.runner.close, channel).result(60)

    engine.add_request("mine", WORDS[1], SamplingParams(temperature=0.0, max_tokens=1, logits_processors=[closes]))
    assert [output.request_id for output in engine.step()] == ["mine"]
    assert not channel.unfinished
    assert not engine.has_unfinished_requests


def test_a_request_may_be_added_in_the_middle_of_a_run(engine: Engine, expected: dict[str, str]) -> None:
    events = engine.runner.run([tells("one"), asks(WORDS, WORDS)], max_jobs=2)
    next(events)
    engine.add_request("mine", WORDS[0], LONG)
    assert list(events)[-1] == (1, [expected[word] for word in WORDS * 2])
    engine.abort_request("mine")


def test_an_offloaded_function_runs_beside_the_engine_in_another_thread(engine: Engine) -> None:
    begun, other_done = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        assert other_done.wait(60)
        return threading.get_ident()

    def offloads():
        ident = yield Offload(work)
        return ident != threading.get_ident()

    def other():
        yield Submit([Request(WORDS[0], GREEDY)])
        assert begun.wait(60)
        other_done.set()

    assert dict(engine.runner.run([offloads(), other()], max_jobs=2)) == {0: True, 1: None}


def test_what_an_offloaded_function_raises_is_raised_in_the_job(engine: Engine) -> None:
    def offloads():
        try:
            yield Offload(lambda: 1 // 0)
        except ZeroDivisionError:
            return "caught"

    def insists():
        yield Offload(lambda: 1 // 0)

    assert list(engine.runner.run([offloads()], max_jobs=1)) == [(0, "caught")]
    with pytest.raises(ZeroDivisionError):
        list(engine.runner.run([insists(), asks(WORDS)], max_jobs=2))


def test_a_streaming_submit_is_answered_after_every_step(engine: Engine, expected: dict[str, str]) -> None:
    def streams():
        outputs = yield Submit([Request(word, GREEDY) for word in WORDS[:2]], stream=True)
        lengths = [0, 0]
        while not all(output is not None and output.finished for output in outputs):
            for index, output in enumerate(outputs):
                length = 0 if output is None else len(output.outputs[0].token_ids)
                assert lengths[index] <= length <= lengths[index] + 1
                lengths[index] = length
            yield tuple(lengths)
            outputs = yield Wait()
        return [output.outputs[0].text for output in outputs]

    *steps, (_, texts) = engine.runner.run([streams()], max_jobs=1)
    assert texts == [expected[word] for word in WORDS[:2]]
    assert steps[0] == (0, (1, 1))
    assert len(steps) >= 5


def test_a_stream_that_is_read_no_further_is_aborted(engine: Engine) -> None:
    def streams():
        yield Submit([Request(WORDS[0], LONG)], stream=True)
        return "enough"

    assert list(engine.runner.run([streams()], max_jobs=1)) == [(0, "enough")]


def test_many_threads_share_the_batch_and_each_gets_its_own(engine: Engine, expected: dict[str, str]) -> None:
    widths, step = [], engine.core.step

    def counted():
        step()
        widths.append(len(engine.core.took_part))

    engine.core.step = counted

    begun: set[int] = set()

    def asks_beside_others(index: int, words: list[str]):
        """The first eight jobs ask again and again until all eight do, so that some step has a request of each."""
        begun.add(index)
        while len(begun) < 8:
            yield Submit([Request(words[0], GREEDY)])
        return (yield from asks(words[:1], words[1:]))

    def call(index: int) -> list[bool]:
        words = [WORDS[(index + offset) % len(WORDS)] for offset in range(3)]
        *_, (_, texts) = engine.runner.run([asks_beside_others(index, words)], max_jobs=1)
        return [text == expected[word] for word, text in zip(words, texts, strict=True)]

    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(call, range(64))) == [[True] * 3] * 64
    finally:
        del engine.core.step
    assert max(widths) >= 8


def test_a_job_has_ended_for_whoever_has_taken_its_last_event() -> None:
    """Another thread, which drives the engine, posts it, at any moment: the reader must not wait for one more."""
    channels = [Channel() for _ in range(3000)]
    for channel in channels:
        channel.unfinished.add(0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            posting = pool.map(lambda channel: channel.post(0, "the result", last=True), channels)
            for channel in channels:
                while not channel.events:
                    assert not channel.ended
                assert channel.take() == (0, "the result")
                assert channel.ended
            assert len(list(posting)) == len(channels)
    finally:
        sys.setswitchinterval(interval)


def test_a_reader_that_leaves_hands_the_engine_on(engine: Engine, expected: dict[str, str]) -> None:
    """One thread abandons its run in the middle, while another waits for its own."""
    mine = engine.runner.run([tells("one"), asks(*[WORDS] * 20)], max_jobs=2)
    next(mine)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: list(engine.runner.run([asks(WORDS, WORDS)], max_jobs=1)))
        next(mine)
        mine.close()
        assert other.result(120)[-1] == (0, [expected[word] for word in WORDS * 2])


def test_a_run_that_is_garbage_leaves_nothing(engine: Engine) -> None:
    events = engine.runner.run([tells("one"), asks(*[WORDS] * 20)], max_jobs=2)
    next(events)
    del events
    gc.collect()


def test_an_engine_belongs_to_one_thread_while_it_is_in_use(engine: Engine) -> None:
    engine.add_request("mine", WORDS[0], GREEDY)
    with ThreadPoolExecutor(1) as pool:
        for call in (lambda: engine.generate(WORDS[1], GREEDY), engine.step, lambda: engine.abort_request("mine")):
            with pytest.raises(ParameterError, match="belongs to one thread"):
                pool.submit(call).result(60)
        engine.abort_request("mine")
        assert pool.submit(lambda: engine.generate(WORDS[1], GREEDY)).result(60)[0].finished  # nobody else uses it


def test_a_job_cannot_wait_by_calling_the_engine(engine: Engine) -> None:
    def calls():
        yield Submit([Request(WORDS[0], GREEDY)])
        engine.generate(WORDS[1], GREEDY)

    with pytest.raises(RuntimeError, match="by yielding them"):
        list(engine.runner.run([calls()], max_jobs=1))


def test_a_full_queue_refuses_what_comes_and_serves_what_waits(expected: dict[str, str]) -> None:
    checkpoint = Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p"
    engine = Engine(checkpoint, max_num_seqs=1, limits={"max_queue_length": 2, "max_text_characters": 20})
    for name, word in zip("abc", WORDS, strict=False):
        engine.add_request(name, word, GREEDY)
        engine.step()  # the first one runs, so that two wait
    for call in (
        lambda: engine.add_request("d", WORDS[0], GREEDY),
        lambda: engine.generate(WORDS[0], GREEDY),
        lambda: next(engine.runner.run([asks(WORDS)], max_jobs=1)),
    ):
        with pytest.raises(QueueFullError, match="max_queue_length is 2"):
            call()
    texts = {}
    while engine.has_unfinished_requests:
        texts |= {output.request_id: output.outputs[0].text for output in engine.step() if output.finished}
    assert texts == {name: expected[word] for name, word in zip("abc", WORDS, strict=False)}
    with pytest.raises(PromptError, match="max_text_characters"):
        engine.generate("g2p: antidisestablishmentarianism", GREEDY)
    with pytest.raises(ParameterError, match="limits must be Limits"):
        Engine(checkpoint, limits=3)


def test_an_interrupt_in_one_thread_costs_another_one_job_at_most(engine: Engine, expected: dict[str, str]) -> None:
    """Whoever drives the engine advances the jobs of all."""

    def tells_a_word(word: str):
        (output,) = yield Submit([Request(word, GREEDY)])
        yield word
        return output.outputs[0].text

    def works(words: list[str]):
        yield Offload(lambda: None)
        outputs = yield Submit([Request(word, GREEDY) for word in words])
        texts = yield Gather(tells_a_word(word) for word in words)
        return [output.outputs[0].text for output in outputs], texts

    def run(*all_words: list[str]) -> dict[int, object]:
        return dict(engine.runner.run([works(words) for words in all_words], max_jobs=2))

    def right(words: list[str]) -> tuple[list[str], list[str]]:
        return ([expected[word] for word in words],) * 2

    rng = random.Random(2)
    num_lost = 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(25):
            other = pool.submit(run, WORDS[:2], WORDS[2:])
            files = ("jobs/tasks", "jobs/job", "engine_core", "scheduler", "input_processor")
            with suppress(KeyboardInterrupt), interrupted_after(rng.randrange(1, 4000), files) as struck:
                run(WORDS, WORDS[::-1])
            lost = [index for index, result in other.result(120).items() if isinstance(result, RequestFailedError)]
            num_lost += len(lost)
            assert len(lost) <= 1, struck
            for index, words in ((0, WORDS[:2]), (1, WORDS[2:])):
                assert index in lost or other.result()[index] == right(words), struck
            assert run(WORDS) == {0: right(WORDS)}, struck
            assert not engine.has_unfinished_requests
    assert num_lost < 25, "not each time"


def test_an_interrupt_while_a_request_is_added_leaves_nothing_behind(engine: Engine, expected: dict[str, str]) -> None:
    places = set()
    for num_lines in range(1, 100):
        with suppress(KeyboardInterrupt), interrupted_after(num_lines, ("jobs/tasks", "scheduler")) as struck:
            dict(engine.runner.run([tells(WORDS[0])], max_jobs=1))
            engine.generate(WORDS[0], GREEDY)
        places.update(struck)
        assert engine.generate(WORDS[1], GREEDY)[0].outputs[0].text == expected[WORDS[1]]
        assert not engine.has_unfinished_requests, struck
    assert len(places) > 20


def test_an_ended_channel_says_so_and_closing_one_wakes_its_reader(engine: Engine) -> None:
    def endless():
        while True:
            yield Submit([Request(WORDS[0], GREEDY)])

    channel = engine.runner.submit(tells("one"))
    assert [engine.runner.read(channel) for _ in range(2)] == [(0, "one"), (0, ("one",))]
    with pytest.raises(ParameterError, match="have ended"):
        engine.runner.read(channel)
    channel = engine.runner.submit(endless())
    begun = threading.Event()

    def read() -> None:
        begun.set()
        engine.runner.read(channel)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert begun.wait(60)
        engine.generate(WORDS[1], GREEDY)
        engine.runner.close(channel)
        with pytest.raises(ParameterError, match="have ended"):
            reading.result(60)


def test_an_offloaded_function_cannot_wait_for_its_engine(engine: Engine) -> None:
    def job():
        return (yield Offload(lambda: engine.generate(WORDS[0], GREEDY)))

    for count in (1, 5):
        with pytest.raises(RuntimeError, match="offloaded function"):
            list(engine.runner.run([job() for _ in range(count)], max_jobs=count))


def test_what_is_no_job_is_explained(engine: Engine) -> None:
    started = tells("one")
    next(started)

    def submits(requests):
        yield Submit(requests)

    def gathers(jobs):
        yield Gather(jobs)

    for job, message in (
        (5, "a job is a generator"),
        (tells, "a job is a generator"),
        (started, "has been started"),
        (submits(Request("a")), "list of Requests"),
        (submits(["a"]), "list of Requests"),
        (gathers([tells]), "a job is a generator"),
    ):
        try:
            ((_, error),) = engine.runner.run([job], max_jobs=1)
        except ParameterError as refusal:
            error = refusal
        assert message in str(error)
    for max_jobs in (0, -1, 1.5, True, "3"):
        with pytest.raises(ParameterError, match="max_jobs"):
            list(engine.runner.run([tells("one")], max_jobs=max_jobs))


def test_a_process_forked_while_threads_use_the_engine_is_told(tmp_path: Path) -> None:
    script = """
import os, sys, threading
from transept import Engine, ForkedProcessError, SamplingParams
engine = Engine(sys.argv[1])
params = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
begun = threading.Event()
def use():
    begun.set()
    engine.generate(["g2p: engine"] * 8, params)
thread = threading.Thread(target=use)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    try:
        list(engine.runner.run([(each for each in [])], max_jobs=1))
    except ForkedProcessError as error:
        with engine:  # leaving it closes nothing here
            told = "spawn" in str(error)
        os._exit(17 if told else 18)
    os._exit(19)
_, status = os.waitpid(child, 0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    checkpoint = str(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")
    done = subprocess.run([sys.executable, "-c", script, checkpoint], timeout=120, check=False)
    assert done.returncode == 17


def test_the_end_of_a_process_waits_for_what_is_computed_beside_the_engine() -> None:
    """Else the thread would die in native code, and abort the process."""
    script = """
import sys, time, torch
from transept import Engine, Offload
engine = Engine(sys.argv[1])
def spin():
    end = time.monotonic() + 2
    while time.monotonic() < end:
        torch.ones(200, 200) @ torch.ones(200, 200)
def job():
    yield "begun"
    yield Offload(spin)
events = engine.runner.run([job()], max_jobs=1)
next(events)
"""
    checkpoint = str(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")
    assert subprocess.run([sys.executable, "-c", script, checkpoint], timeout=120, check=False).returncode == 0
