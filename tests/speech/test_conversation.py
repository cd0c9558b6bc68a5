"""Jobs that share an engine, on a small real text model: who is answered when, and what is left after failures."""

from pathlib import Path

import pytest

from transept import Engine, SamplingParams
from transept.errors import CapacityError, ParameterError, PromptError, TranseptError
from transept.speech.conversation import MAX_TOGETHER, Ask, Found, Together, converse

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)
WORDS = ["g2p: engine", "g2p: transept", "g2p: window", "g2p: language"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p")


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
    """A job with a question a round, each about some words; it tells of every round and returns all texts."""
    texts = []
    for words in rounds:
        outputs = yield Ask([(word, GREEDY) for word in words])
        texts += [output.outputs[0].text for output in outputs]
        yield Found(progress_seconds=len(texts))
    return texts


def tells(*values, then=()):
    """A job that asks, and then tells each of some values."""
    yield Ask([(WORDS[0], GREEDY), *((word, GREEDY) for word in then)])
    yield from values
    return values


def test_answers_come_in_order_and_events_before_results(engine: Engine, expected: dict[str, str]) -> None:
    events = list(converse(engine, [asks(WORDS[:3], WORDS[3:]), asks(WORDS[::-1])], max_jobs=2))
    first = [event for index, event in events if index == 0]
    second = [event for index, event in events if index == 1]
    assert first == [Found(progress_seconds=3), Found(progress_seconds=4), [expected[word] for word in WORDS]]
    assert second == [Found(progress_seconds=4), [expected[word] for word in reversed(WORDS)]]


def test_jobs_share_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    step, widths = engine.step, []

    def counted():
        outputs = step()
        widths.append(len(outputs))
        return outputs

    monkeypatch.setattr(engine, "step", counted)
    list(converse(engine, [asks([word]) for word in WORDS], max_jobs=4))
    assert widths[0] == len(WORDS)


def test_jobs_are_read_as_there_is_room(engine: Engine) -> None:
    read = []

    def jobs():
        for word in WORDS:
            read.append(word)
            yield asks([word])

    conversation = converse(engine, jobs(), max_jobs=2)
    next(conversation)
    assert read == WORDS[:2]
    list(conversation)
    assert read == WORDS


def test_an_ask_of_nothing_is_answered_at_once(engine: Engine) -> None:
    assert list(converse(engine, [asks([], [])], max_jobs=1))[-1] == (0, [])


def test_together_gives_results_and_findings_in_the_jobs_order(engine: Engine, expected: dict[str, str]) -> None:
    def child(word: str, steps: int):
        for _ in range(steps):  # the earlier the child, the more steps it takes
            yield Ask([(word, SamplingParams(temperature=0.0, max_tokens=1))])
        yield word
        (output,) = yield Ask([(word, GREEDY)])
        return output.outputs[0].text

    def parent():
        texts = yield Together(child(word, 4 - index) for index, word in enumerate(WORDS))
        yield "all"
        return texts

    events = [event for _, event in converse(engine, [parent()], max_jobs=1)]
    assert events == [*WORDS, "all", [expected[word] for word in WORDS]]


def test_together_of_jobs_that_ask_nothing(engine: Engine) -> None:
    def child(value: int):
        yield value
        return value

    def parent():
        return (yield Together(child(value) for value in range(3)))

    assert list(converse(engine, [parent()], max_jobs=1)) == [(0, 0), (0, 1), (0, 2), (0, [0, 1, 2])]


def test_together_has_so_many_jobs_at_work_at_most(engine: Engine) -> None:
    assert engine.config.max_num_seqs > MAX_TOGETHER
    at_work, most = set(), 0

    def child(index: int):
        nonlocal most
        at_work.add(index)
        most = max(most, len(at_work))
        yield Ask([(WORDS[index % len(WORDS)], GREEDY)])
        at_work.remove(index)
        return index

    def parent():
        return (yield Together(child(index) for index in range(2 * MAX_TOGETHER)))

    assert list(converse(engine, [parent()], max_jobs=1)) == [(0, list(range(2 * MAX_TOGETHER)))]
    assert most == MAX_TOGETHER


def test_together_may_be_nested_and_empty(engine: Engine) -> None:
    def inner(name: str):
        yield Together([tells(f"{name}1", then=WORDS), tells(f"{name}2")])
        return name

    def outer():
        nothing = yield Together([])
        names = yield Together([inner("a"), inner("b")])
        return nothing, names

    events = [event for _, event in converse(engine, [outer()], max_jobs=1)]
    assert events == ["a1", "a2", "b1", "b2", ([], ["a", "b"])]


def test_jobs_of_together_start_as_the_engine_has_room(expected: dict[str, str]) -> None:
    engine = Engine(Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p", max_num_seqs=2)
    started = []

    def children():
        for word in WORDS:
            started.append(word)
            yield asks([word])

    def parent():
        return (yield Together(children()))

    conversation = converse(engine, [parent()], max_jobs=1)
    next(conversation)
    assert len(started) <= 3
    rest = list(conversation)
    assert started == WORDS
    assert rest[-1] == (0, [[expected[word]] for word in WORDS])


def test_a_job_that_fails_ends_alone(engine: Engine, expected: dict[str, str]) -> None:
    def fails():
        yield Ask([(WORDS[0], GREEDY)])
        raise TranseptError("no more")

    events = list(converse(engine, [fails(), asks(WORDS)], max_jobs=2))
    (failure,) = [event for index, event in events if index == 0]
    assert isinstance(failure, TranseptError)
    assert str(failure) == "no more"
    assert events[-1] == (1, [expected[word] for word in WORDS])


def test_a_refused_request_is_raised_in_the_job(engine: Engine, expected: dict[str, str]) -> None:
    def tries():
        try:
            yield Ask([(WORDS[0], GREEDY), ({"prompt_tokens": []}, GREEDY)])
        except PromptError:
            (output,) = yield Ask([(WORDS[1], GREEDY)])
            return output.outputs[0].text

    def insists():
        yield Ask([(WORDS[0], SamplingParams(temperature=1.0, n=1000))])

    events = dict(converse(engine, [tries(), insists()], max_jobs=2))
    assert events[0] == expected[WORDS[1]]
    assert isinstance(events[1], CapacityError)


def test_a_failure_among_jobs_of_together_closes_the_others(engine: Engine) -> None:
    closed = []

    def fails():
        yield Ask([(WORDS[0], SamplingParams(temperature=0.0, max_tokens=1))])
        raise TranseptError("no more")

    def sibling():
        try:
            yield Ask([(WORDS[1], SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True))])
        finally:
            closed.append(True)

    def parent():
        try:
            yield Together([sibling(), fails()])
        except TranseptError as error:
            return str(error)

    assert dict(converse(engine, [parent()], max_jobs=1)) == {0: "no more"}
    assert closed == [True]


def test_closing_and_foreign_errors_end_everything(engine: Engine) -> None:
    closed = []

    def long():
        try:
            yield Ask([(word, SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)) for word in WORDS])
        finally:
            closed.append(True)

    conversation = converse(engine, [tells("ready"), long()], max_jobs=2)
    assert next(conversation) == (0, "ready")
    assert engine.has_unfinished_requests
    conversation.close()
    assert closed == [True]

    def crashes():
        yield Ask([(WORDS[0], GREEDY)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(converse(engine, [long(), crashes()], max_jobs=2))
    assert closed == [True, True]


def test_an_engine_holds_one_conversation(engine: Engine) -> None:
    conversation = converse(engine, [tells("one"), asks(WORDS, WORDS)], max_jobs=2)
    next(conversation)
    with pytest.raises(ParameterError, match="unfinished"):
        next(converse(engine, [asks(WORDS)], max_jobs=1))
    conversation.close()
