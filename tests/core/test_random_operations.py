"""Scheduler and block manager under long random runs: arrivals, steps, aborts, failures, interruptions, restarts.

After every operation the books must balance; what every sequence reads from the cache, and every token, is checked in
each step by the simulation.
"""

import random
from collections import Counter

import pytest
from simulated_cache import encoded
from simulated_engine import Simulation

from transept.core.scheduling.scheduler import SchedulerOutputs
from transept.errors import CapacityError

OPERATIONS_A_RUN = 250


def begin_step(sim: Simulation) -> SchedulerOutputs:
    """Schedule a step and move its blocks, as an executor does before it computes."""
    running = list(sim.scheduler.running)
    outputs = sim.scheduler.schedule()
    sim.check_step(outputs, running)
    sim.cache.swap_out(outputs.step.blocks_to_swap_out)
    sim.cache.swap_in(outputs.step.blocks_to_swap_in)
    sim.cache.copy(outputs.step.blocks_to_copy)
    return outputs


def step_in_which_some_fail(sim: Simulation, rng: random.Random) -> None:
    """What EngineCore does: a failed group goes, those that share what its encoder did not write start anew."""
    outputs = begin_step(sim)
    failing = {group.request_id for group in outputs.groups if rng.random() < 0.3}
    restarts = {group.request_id: group.num_restarts for group in outputs.groups}
    for group, metadata in zip(outputs.groups, outputs.step.metadata, strict=True):
        if metadata.runs_encoder and group.request_id not in failing:
            for index, value in enumerate(encoded(group)):
                sim.cache.write(metadata.cross_block_table, index, value)
    for index, (group, metadata) in enumerate(zip(outputs.groups, outputs.step.metadata, strict=True)):
        if group.num_restarts != restarts[group.request_id]:
            continue
        if group.request_id in failing:
            if metadata.runs_encoder:
                sim.scheduler.forget_encoded(group)
            sim.scheduler.abort_seq_group(group.request_id)
        else:
            sim.append(group, sim.run(index, outputs))
    sim.finished += [group.request_id for group in sim.scheduler.free_finished_seq_groups()]


def interrupted_step(sim: Simulation) -> None:
    """Nothing is known of what was computed, nor of the books."""
    begin_step(sim)
    sim.scheduler.restart_all()


def random_run(rng: random.Random, done: Counter[str]) -> None:
    sim = Simulation(
        device=rng.randint(6, 24),
        host=rng.choice([0, 6, 12, 40]),
        max_num_seqs=rng.randint(2, 10),
        max_decoder_tokens=rng.randint(20, 150),
        max_encoder_tokens=rng.randint(8, 60),
    )
    for _ in range(OPERATIONS_A_RUN):
        operation = rng.choices(
            ["add", "step", "abort", "fail", "interrupt", "restart swapped"], [40, 60, 2, 3, 3, 1], k=1
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
                )
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


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_operations_keep_every_invariant(count: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(count // OPERATIONS_A_RUN):
        random_run(random.Random(seed), done)
    assert sum(done.values()) >= count
    for kind in ("preempted by swap", "preempted by recompute", "fail", "interrupt"):
        assert done[kind] > count // 500, done
