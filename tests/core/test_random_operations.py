"""Scheduler and block manager under long random runs: arrivals, steps, aborts, failures, interruptions, restarts.

After every operation the books must balance; what every sequence reads from the cache, and every token, is checked in
each step by the simulation.
"""

import random
from collections import Counter, deque
from collections.abc import Callable

import pytest
from simulated_engine import Simulation

from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import CapacityError

OPERATIONS_A_RUN = 250


def begin_step(sim: Simulation) -> SchedulerOutputs:
    """Schedule a step and move its blocks, as an executor does before it computes."""
    running = list(sim.scheduler.running)
    outputs = sim.scheduler.schedule()
    sim.check_step(outputs, running)
    sim.cache.swap_out(outputs.step.moves.swap_out)
    sim.cache.swap_in(outputs.step.moves.swap_in)
    sim.cache.copy(outputs.step.moves.copy)
    return outputs


def step_in_which_some_fail(sim: Simulation, rng: random.Random) -> None:
    """What EngineCore does: a failed group goes, those that share what its encoder did not write start anew."""
    outputs = begin_step(sim)
    failing = {group.request_id for group in outputs.groups if rng.random() < 0.3}
    sim.encode(outputs, failing)
    for group, *_ in outputs.encodes:
        if group.request_id in failing:
            sim.scheduler.forget_encoded(group, sim.manager.cross_block_tables[group.request_id])
    for index, each in enumerate(outputs.waiting):
        group = each.group
        if not each.waits:
            continue
        if group.request_id in failing:
            sim.scheduler.abort_seq_group(group.request_id)
        else:
            sim.append(group, sim.run(index, outputs))
    for group, encode, _ in outputs.encodes:
        if group.pooling is not None and encode.num_layers is None and rng.random() < 0.3:
            sim.scheduler.abort_seq_group(group.request_id)
            failing.add(group.request_id)
    sim.end_encodes(outputs, failing)
    sim.finished += [group.request_id for group in sim.scheduler.free_finished_seq_groups()]


def interrupted_step(sim: Simulation) -> None:
    """Nothing is known of what was computed, nor of the books."""
    begin_step(sim)
    sim.scheduler.restart_all()


def random_run(rng: random.Random, done: Counter[str], make: Callable[..., Simulation] = Simulation) -> None:
    sim = make(
        device=rng.randint(6, 24),
        host=rng.choice([0, 6, 12, 40]),
        max_num_seqs=rng.randint(2, 10),
        max_decoder_tokens=rng.randint(20, 150),
        max_encoder_tokens=rng.randint(8, 60),
        layers_per_step=rng.choice([None, 1, 3]),
    )
    for _ in range(OPERATIONS_A_RUN):
        operation = rng.choices(
            ["add", "encode", "step", "abort", "fail", "interrupt", "restart swapped"], [40, 2, 60, 2, 3, 3, 1], k=1
        )[0]
        done[operation] += 1
        if operation == "add":
            try:
                sim.add(
                    encoder=rng.randint(0, 20),
                    prompt=rng.randint(1, 6),
                    n=rng.choice([1, 1, 1, 2, 3]),
                    max_tokens=rng.randint(1, 14),
                    content=rng.random() < 0.5,
                    urgent=rng.random() < 0.2,
                )
            except CapacityError:
                sim.arrivals += 1
        elif operation == "encode":
            try:
                sim.add_encode(rng.randint(1, 20))
            except CapacityError:
                sim.arrivals += 1
        elif operation == "abort":
            sim.scheduler.abort_seq_group(f"r{rng.randint(0, sim.arrivals)}")
        elif operation == "restart swapped":
            sim.scheduler.restart_swapped()
        elif not sim.scheduler.has_unfinished:
            pass
        elif operation == "step":
            sim.step()
        elif operation == "fail":
            step_in_which_some_fail(sim, rng)
        else:
            interrupted_step(sim)
        sim.manager.check_integrity()
    done["preempted by swap"] += sim.preempted_by_swap
    done["preempted by recompute"] += sim.preempted_by_recompute
    sim.finish()
    done["embeddings"] += sim.num_embedded
    done["encoders that took several steps"] += sim.num_sliced


class Pipeline:
    """Steps under way at a time, of different groups. Each is computed when it is issued, as stages compute in order.

    What has failed, been aborted or started anew meanwhile gets no token of a step that is collected afterwards.
    """

    def __init__(self, sim: Simulation, num_stages: int) -> None:
        self.sim, self.num_stages = sim, num_stages
        self.under_way: deque[list[tuple[SequenceGroup, int, dict[int, list[int]]]]] = deque()
        self.most_under_way = 0

    def waiting(self) -> list[SequenceGroup]:
        """Groups that wait for a step's tokens."""
        steps = (each for step in self.under_way for each in step)
        return [group for group, restarts, _ in steps if not group.finished and group.num_restarts == restarts]

    def fill(self) -> None:
        sim = self.sim
        while len(self.under_way) < self.num_stages:
            waiting = self.waiting()
            outputs = sim.scheduler.schedule(waiting, self.num_stages)
            assert not {*outputs.groups} & {*waiting}
            assert {*waiting} <= {*sim.scheduler.running}  # they were not preempted
            if outputs.step.is_empty:
                break
            sim.cache.swap_out(outputs.step.moves.swap_out)
            sim.cache.swap_in(outputs.step.moves.swap_in)
            sim.cache.copy(outputs.step.moves.copy)
            sim.encode(outputs)
            drawn = [sim.run(index, outputs) for index in range(len(outputs.groups))]
            restarts = [group.num_restarts for group in outputs.groups]
            self.under_way.append([*zip(outputs.groups, restarts, drawn, strict=True)])
        assert self.under_way or not sim.scheduler.has_unfinished, "no group makes progress"
        self.most_under_way = max(self.most_under_way, len(self.under_way))

    def step(self) -> None:
        self.fill()
        for group, restarts, drawn in self.under_way.popleft():
            if not group.finished and group.num_restarts == restarts:
                self.sim.append(group, drawn)
        self.sim.finished += [group.request_id for group in self.sim.scheduler.free_finished_seq_groups()]
        self.sim.manager.check_integrity()


def random_run_of_a_pipeline(rng: random.Random, make: Callable[..., Simulation] = Simulation) -> int:
    """Returns how many steps were under way at most."""
    sim = make(rng.randint(6, 24), rng.choice([0, 6, 40]), rng.randint(2, 10), rng.randint(20, 150), 60)
    pipeline = Pipeline(sim, rng.randint(2, 4))
    for _ in range(OPERATIONS_A_RUN):
        operation = rng.choices(["add", "step", "abort", "interrupt"], [40, 60, 3, 2], k=1)[0]
        if operation == "add":
            try:
                sim.add(rng.randint(0, 20), rng.randint(1, 6), rng.choice([1, 1, 2, 3]), rng.randint(1, 14), True)
            except CapacityError:
                sim.arrivals += 1
        elif operation == "abort":
            sim.scheduler.abort_seq_group(f"r{rng.randint(0, sim.arrivals)}")
        elif sim.scheduler.has_unfinished and operation == "step":
            pipeline.step()
        elif operation == "interrupt":
            pipeline.under_way.clear()
            sim.scheduler.restart_all()
        sim.manager.check_integrity()
    while sim.scheduler.has_unfinished:
        pipeline.step()
    sim.finish()
    return pipeline.most_under_way


def test_random_operations_with_several_steps_under_way() -> None:
    depths = Counter(random_run_of_a_pipeline(random.Random(seed)) for seed in range(30))
    assert {2, 3, 4} <= {*depths}


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_operations_keep_every_invariant(count: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(count // OPERATIONS_A_RUN):
        random_run(random.Random(seed), done)
    assert sum(done.values()) >= count
    for kind in (
        "preempted by swap",
        "preempted by recompute",
        "fail",
        "interrupt",
        "encoders that took several steps",
        "embeddings",
    ):
        assert done[kind] > count // 500, done
