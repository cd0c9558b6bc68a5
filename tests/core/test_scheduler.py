"""Scheduler: budgets, order, preemption, refusals; a simulated engine shows progress and that the cache reads right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cache import make_group
from simulated_engine import BLOCK_SIZE, NUM_LAYERS, Simulation

from transept.core.config import SchedulerConfig
from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.scheduler import URGENT_STEPS
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import CapacityError, ParameterError


def status(group: SequenceGroup) -> SequenceStatus:
    (found,) = {seq.status for seq in group.unfinished_seqs}
    return found


def encoding(outputs: SchedulerOutputs) -> list[SequenceGroup]:
    return [group for group, *_ in outputs.encodes]


def never_ending(sim: Simulation) -> None:
    """Let no sequence of the simulation end early, for tests that count steps."""
    sim.append = lambda group, drawn: [  # type: ignore[method-assign]
        seq.append_token(SampledToken(1, 0.0, None)) for seq in group.unfinished_seqs
    ]


requests = st.fixed_dictionaries(
    {
        "encoder": st.integers(0, 20),
        "prompt": st.integers(1, 6),
        "n": st.sampled_from([1, 1, 1, 2, 3]),
        "max_tokens": st.integers(1, 14),
        "content": st.booleans(),
        "urgent": st.sampled_from([False, False, True]),
    }
)


@settings(max_examples=600)
@given(
    actions=st.lists(st.one_of(requests, st.just("step"), st.integers(0, 20)), max_size=40),
    device=st.integers(1, 30),
    host=st.sampled_from([0, 0, 6, 12, 40]),
    max_num_seqs=st.integers(1, 8),
    max_decoder_tokens=st.integers(8, 60),
    max_encoder_tokens=st.integers(1, 40),
    layers_per_step=st.sampled_from([None, 1, 3]),
)
def test_random_arrivals_and_aborts(
    actions: list[object],
    device: int,
    host: int,
    max_num_seqs: int,
    max_decoder_tokens: int,
    max_encoder_tokens: int,
    layers_per_step: int | None,
) -> None:
    sim = Simulation(device, host, max_num_seqs, max_decoder_tokens, max_encoder_tokens, layers_per_step)
    for action in actions:
        if isinstance(action, dict):
            try:
                sim.add(**action)
            except CapacityError:
                sim.arrivals += 1
        elif isinstance(action, int):
            name = f"r{action}"
            group = sim.scheduler.abort_seq_group(name)
            assert group is sim.groups.get(name) or name in sim.finished or group is None
            assert sim.scheduler.abort_seq_group(name) is None
            sim.manager.check_integrity()
        elif sim.scheduler.has_unfinished:
            sim.step()
    sim.finish()


@settings(max_examples=300)
@given(request=requests, host=st.sampled_from([0, 1, 3, 100]), rival=st.booleans())
def test_what_is_not_refused_finishes_in_a_pool_of_just_its_size(
    request: dict[str, int], host: int, rival: bool
) -> None:
    n, length = request["n"], request["prompt"] + request["max_tokens"]
    needed = -(-request["encoder"] // BLOCK_SIZE) + n * -(-length // BLOCK_SIZE)
    budgets = {"max_num_seqs": n, "max_decoder_tokens": n * length, "max_encoder_tokens": max(1, request["encoder"])}
    with pytest.raises(CapacityError, match=f"{needed} cache blocks.*has {needed - 1}"):
        Simulation(needed - 1, host, **budgets).add(**request)
    sim = Simulation(needed, host, **budgets)
    sim.add(**request)
    if rival:
        sim.add(**request)
    sim.finish()


def test_equal_contents_are_encoded_once_and_evicted_only_when_blocks_are_needed() -> None:
    sim = Simulation(device=10)  # blocks of 4
    for _ in range(3):
        sim.add(encoder=8, max_tokens=2, content=True)
    sim.add(encoder=4, max_tokens=2)  # of no content that anyone may share
    sim.finish()
    assert (sim.encoder_runs, sim.encoder_hits) == (2, 2)
    sim.add(encoder=12, max_tokens=2, content=True)
    sim.finish()
    sim.add(encoder=8, max_tokens=2, content=True)  # long after the first
    sim.finish()
    assert (sim.encoder_runs, sim.encoder_hits) == (3, 3)
    sim.add(encoder=24, max_tokens=2, content=True)  # 6 blocks and 1: the older unused table goes, of 12 tokens
    sim.finish()
    sim.add(encoder=8, max_tokens=2, content=True)
    sim.finish()
    assert (sim.encoder_runs, sim.encoder_hits) == (4, 4)
    sim.add(encoder=12, max_tokens=2, content=True)
    sim.finish()
    assert (sim.encoder_runs, sim.encoder_hits) == (5, 4)
    assert (sim.manager.num_encoder_runs, sim.manager.num_encoder_hits) == (5, 4)


def test_what_shares_an_encoder_run_that_failed_starts_anew_and_runs_its_own() -> None:
    sim = Simulation()
    other = sim.add(encoder=5)
    failing, sharing = sim.add(encoder=8, content=True), sim.add(encoder=8, content=True)
    outputs = sim.scheduler.schedule()
    assert encoding(outputs) == [other, failing]
    assert [metadata.encode_id for metadata in outputs.step.decodes] == [0, 1, 1]
    sim.scheduler.forget_encoded(failing, sim.manager.cross_block_tables[failing.request_id])
    sim.scheduler.abort_seq_group(failing.request_id)
    sim.manager.check_integrity()
    assert sim.scheduler.running == [other]
    assert sim.scheduler.queue == [sharing]
    again = sim.scheduler.schedule()
    assert encoding(again) == again.groups[1:] == [sharing]
    assert again.step.decodes[-1].is_prefill


def test_what_was_swapped_out_can_be_computed_anew_instead() -> None:
    sim = Simulation(device=9, host=4)
    never_ending(sim)
    old, young = sim.add(encoder=8, prompt=5), sim.add(encoder=8, prompt=5)
    for _ in range(5):
        sim.step()
    assert status(young) is SequenceStatus.SWAPPED
    sim.scheduler.restart_swapped()
    assert status(young) is SequenceStatus.WAITING
    assert sim.manager.num_free_host_blocks == 4
    sim.manager.check_integrity()
    sim.scheduler.abort_seq_group(old.request_id)
    outputs = sim.scheduler.schedule()
    assert outputs.step.decodes[0].is_prefill
    assert outputs.step.decodes[0].seq_data[young.seqs[0].seq_id].num_tokens == 9


def test_simulation_meets_every_kind_of_preemption() -> None:
    for host in (0, 8, 100):
        sim = Simulation(device=18, host=host, max_num_seqs=8, max_decoder_tokens=150)
        for n in (1, 3, 2, 1, 3, 1):
            sim.add(encoder=8, prompt=3, n=n, max_tokens=14)
        sim.finish()
        assert sim.copied
        assert (sim.preempted_by_recompute > 0) == (host < 100)
        assert (sim.preempted_by_swap > 0) == (host > 0)


def test_prefills_and_running_sequences_share_a_step() -> None:
    sim = Simulation()
    first = sim.add(encoder=8, prompt=3)
    outputs = sim.step()
    assert [m.is_prefill for m in outputs.step.decodes] == [True]
    second = sim.add(encoder=5, prompt=2, n=2)
    outputs = sim.step()
    assert outputs.groups == [first, second]
    assert [m.is_prefill for m in outputs.step.decodes] == [False, True]
    assert [m.num_samples for m in outputs.step.decodes] == [1, 2]
    prefill = outputs.step.decodes[1]
    assert prefill.num_encoder_tokens == 5
    assert prefill.cross_block_table == sim.manager.cross_block_tables[second.request_id]
    assert [m.num_samples for m in sim.step().step.decodes] == [1, 1]
    assert len(second.seqs) == 2


@pytest.mark.parametrize(
    ("budget", "admitted"),
    [({"max_num_seqs": 3}, 1), ({"max_encoder_tokens": 20}, 2), ({"max_decoder_tokens": 28}, 2), ({"device": 16}, 2)],
)
def test_each_budget_stops_admission_strictly_in_order(budget: dict[str, int], admitted: int) -> None:
    sim = Simulation(**budget)
    groups = [
        sim.add(encoder=8, prompt=12, n=2, max_tokens=2),
        sim.add(encoder=8, prompt=12, n=2, max_tokens=2),
        sim.add(encoder=8, prompt=12, n=2, max_tokens=2),
        sim.add(encoder=1, prompt=1, n=1, max_tokens=1),  # would fit, but is not first
    ]
    outputs = sim.scheduler.schedule()
    assert outputs.groups == groups[:admitted]
    assert sim.scheduler.queue == groups[admitted:]
    assert [status(group) for group in sim.scheduler.queue] == [SequenceStatus.WAITING] * (4 - admitted)


def test_an_encoder_takes_several_steps_beside_requests_that_decode() -> None:
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    first, second, third = (sim.add(encoder=12, max_tokens=30) for _ in range(3))
    assert sim.step().groups == [first, second, third]  # nobody waits for their encoders
    fourth, fifth = (sim.add(encoder=12, max_tokens=30) for _ in range(2))
    others = [first, second, third]
    for expected in (others, others, others, [*others, fourth]):
        outputs = sim.step()
        assert encoding(outputs) == [fourth]
        assert outputs.groups == expected
    assert encoding(sim.step()) == [fifth]


def test_an_encoder_is_completed_at_once_if_no_request_decodes_any_more() -> None:
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    first = sim.add()
    sim.step()
    second = sim.add()
    assert sim.step().groups == [first]
    sim.scheduler.abort_seq_group(first.request_id)
    assert sim.step().groups == [second]


def test_an_equal_input_waits_for_the_encoder_that_is_under_way() -> None:
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    first = sim.add(encoder=4)
    sim.step()
    second, equal = (sim.add(encoder=8, content=True) for _ in range(2))
    for _ in range(3):
        assert sim.step().groups == [first]
    assert sim.step().groups == [first, second, equal]
    assert (sim.encoder_runs, sim.encoder_hits) == (2, 1)


@pytest.mark.parametrize("gone", ["aborted", "restarted"])
def test_an_encoder_that_is_under_way_leaves_nothing_that_others_could_share(gone: str) -> None:
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    sim.add(encoder=4)
    sim.step()
    second, equal = (sim.add(encoder=8, content=True) for _ in range(2))
    free = sim.manager.num_free_device_blocks
    sim.step()
    if gone == "aborted":
        sim.scheduler.abort_seq_group(second.request_id)
    else:
        sim.scheduler.restart(second)
    sim.manager.check_integrity()
    assert sim.manager.num_free_device_blocks == free
    outputs = sim.step()
    assert encoding(outputs) == [equal if gone == "aborted" else second]
    assert outputs.step.encodes[0].num_layers == 1


def test_other_requests_and_their_encoder_pause_while_an_urgent_one_runs() -> None:
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    first = sim.add(encoder=12)
    sim.step()
    second = sim.add(encoder=12)
    sim.step()
    urgent = sim.add(urgent=True)
    outputs = sim.step()  # its encoder takes one step, though the second one's waits
    assert [(group, encode.num_layers) for group, encode, _ in outputs.encodes] == [(urgent, None), (second, 1)]
    assert outputs.groups == [first, urgent]
    third = sim.add()
    for _ in range(3):
        outputs = sim.step()
        assert outputs.groups == [urgent]
        assert [(group, encode.num_layers) for group, encode, _ in outputs.encodes] == [(second, 1)]
    sim.scheduler.abort_seq_group(urgent.request_id)
    for layers, groups in ((2, [first]), (3, [first]), (None, [first, second])):
        outputs = sim.step()
        assert outputs.groups == groups
        assert [(group, encode.num_layers) for group, encode, _ in outputs.encodes] == [(second, layers)]
    assert encoding(sim.step()) == [third]


def test_urgent_requests_decode_with_all_others_if_encoders_take_one_step() -> None:
    """As on a GPU."""
    sim = Simulation()
    never_ending(sim)
    first = sim.add()
    sim.step()
    urgent, second = sim.add(urgent=True), sim.add()
    for _ in range(3):
        assert {*sim.step().groups} == {first, urgent, second}


def test_encoders_take_several_steps_for_a_while_after_an_urgent_request() -> None:
    """Another urgent request may follow, as in live speech, and would wait for a whole encoder."""
    sim = Simulation(layers_per_step=1)
    never_ending(sim)
    urgent = sim.add(urgent=True)
    sim.step()
    sim.scheduler.abort_seq_group(urgent.request_id)
    first = sim.add()
    assert [sim.step().groups for _ in range(NUM_LAYERS)] == [[]] * (NUM_LAYERS - 1) + [[first]]
    for _ in range(URGENT_STEPS):
        sim.step()
    sim.scheduler.abort_seq_group(first.request_id)
    second = sim.add()
    assert sim.step().groups == [second]


def test_an_upload_ends_although_streams_make_urgent_requests_again_and_again() -> None:
    sim = Simulation(layers_per_step=1)
    uploaded = [sim.add(encoder=12, max_tokens=14) for _ in range(8)]
    for _ in range(100):
        sim.add(encoder=4, max_tokens=3, urgent=True)
        for _ in range(6):  # an urgent request takes at most three of them
            if sim.scheduler.has_unfinished:
                sim.step()
    assert all(group.finished for group in uploaded)
    sim.finish()


def test_order_is_by_arrival_even_when_added_out_of_order() -> None:
    sim = Simulation(max_num_seqs=1)
    late, early = make_group("late", 4, [1], arrival=2), make_group("early", 4, [1], arrival=1)
    sim.scheduler.add_seq_group(late)
    sim.scheduler.add_seq_group(early)
    assert sim.scheduler.schedule().groups == [early]


@pytest.mark.parametrize(("device", "admitted"), [(8, 1), (9, 2)])
def test_watermark_leaves_a_free_block_for_each_running_sequence(device: int, admitted: int) -> None:
    sim = Simulation(device=device)
    first = sim.add(encoder=8, prompt=5)  # 2 + 2 blocks; one to be left free
    second = sim.add(encoder=8, prompt=5)
    assert sim.scheduler.schedule().groups == [first, second][:admitted]


def test_watermark_does_not_hold_back_a_lone_group() -> None:
    sim = Simulation(device=4)
    group = sim.add(encoder=8, prompt=2, max_tokens=6)
    assert sim.scheduler.schedule().groups == [group]
    assert sim.manager.num_free_device_blocks == 1


@pytest.mark.parametrize(("host", "kind"), [(4, SequenceStatus.SWAPPED), (3, SequenceStatus.WAITING)])
def test_the_youngest_is_preempted_to_the_host_or_recomputed(host: int, kind: SequenceStatus) -> None:
    sim = Simulation(device=9, host=host)
    never_ending(sim)
    old, young = sim.add(encoder=8, prompt=5), sim.add(encoder=8, prompt=5)  # 4 blocks each, one is free
    for _ in range(4):
        assert sim.step().groups == [old, young]  # up to 8 tokens each
    third = sim.add(encoder=4, prompt=1, max_tokens=1)
    outputs = sim.step()  # both need a block
    assert outputs.groups == [old]
    assert status(young) is kind
    assert len(outputs.step.moves.swap_out) == (4 if kind is SequenceStatus.SWAPPED else 0)
    assert sim.scheduler.queue == [young, third]  # back at its place; the third, though it would fit, comes after it
    assert len(young.seqs[0].output_token_ids) == 4
    for _ in range(3):
        assert sim.step().groups == [old]
    old.seqs[0].status = SequenceStatus.STOPPED
    sim.scheduler.free_finished_seq_groups()
    outputs = sim.scheduler.schedule()
    assert outputs.groups == [young, third]
    assert outputs.step.decodes[0].is_prefill == (kind is SequenceStatus.WAITING)
    assert outputs.step.decodes[0].seq_data[young.seqs[0].seq_id].num_tokens == 9
    assert len(outputs.step.moves.swap_in) == (4 if kind is SequenceStatus.SWAPPED else 0)
    assert sim.manager.num_free_host_blocks == host


@pytest.mark.parametrize("host", [4, 0])
def test_abort_in_every_state_frees_both_tables(host: int) -> None:
    sim = Simulation(device=9, host=host)
    never_ending(sim)
    running, preempted = sim.add(encoder=8, prompt=5), sim.add(encoder=8, prompt=5)
    for _ in range(5):
        sim.step()
    waiting = sim.add()
    assert status(preempted) is (SequenceStatus.SWAPPED if host else SequenceStatus.WAITING)
    for group in (preempted, running, waiting):
        assert sim.scheduler.abort_seq_group(group.request_id) is group
        assert {seq.status for seq in group.seqs} == {SequenceStatus.ABORTED}
        assert sim.scheduler.abort_seq_group(group.request_id) is None
        sim.manager.check_integrity()
    sim.check_empty()
    assert not sim.scheduler.has_unfinished


def test_a_finished_sample_gives_its_blocks_back_while_its_group_goes_on() -> None:
    sim = Simulation()
    group = sim.add(encoder=8, prompt=4, n=2)
    sim.step()
    sim.step()
    free = sim.manager.num_free_device_blocks
    assert len(group.unfinished_seqs) == 2
    ended: Sequence = group.seqs[0]
    ended.status = SequenceStatus.STOPPED
    assert sim.scheduler.free_finished_seq_groups() == []
    assert sim.manager.num_free_device_blocks == free + 1  # the prompt's block is still shared
    (metadata,) = sim.step().step.decodes
    assert list(metadata.seq_data) == [group.seqs[1].seq_id]
    assert metadata.num_samples == 1


@pytest.mark.parametrize(
    ("budget", "request_", "numbers"),
    [
        ({"max_num_seqs": 2}, {"n": 3}, "needs 3 sequences.*max_num_seqs is 2.*Lower n, or raise max_num_seqs to 3"),
        ({"max_encoder_tokens": 9}, {"encoder": 10}, "10 encoder tokens.*is 9.*raise max_encoder_tokens to 10"),
        ({"max_decoder_tokens": 19}, {"n": 2}, "20 decoder tokens.*2 prompt \\+ 8 new.*is 19.*raise max_dec.* to 20"),
        ({"device": 7}, {"n": 2}, "8 cache blocks of 4 tokens \\(2 for 8 encoder.*6 for 2 seq.*has 7.*kv_cache_bytes"),
        ({"device": 0}, {}, "has 0.*kv_cache_bytes"),
    ],
)
def test_what_could_never_run_is_refused_with_the_numbers(
    budget: dict[str, int], request_: dict[str, int], numbers: str
) -> None:
    sim = Simulation(**budget)
    with pytest.raises(CapacityError, match=numbers):
        sim.add(**request_)
    assert not sim.scheduler.has_unfinished


def test_a_request_id_in_use_is_refused() -> None:
    sim = Simulation()
    sim.scheduler.add_seq_group(make_group("same", 4, [1]))
    with pytest.raises(ParameterError, match="'same' is in use"):
        sim.scheduler.add_seq_group(make_group("same", 4, [1]))


@pytest.mark.parametrize("values", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (True, 1, 1), (9, 8, 1)])
def test_budgets_are_validated(values: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="max_"):
        SchedulerConfig(*values)
