"""A batch: runs a model on many files with Ray Data, and writes a folder of parts. Used by `transept batch`.

Ray Data distributes rows to the replicas and repeats the rows of a worker or machine that died. Only this process
writes results, so each row is written once. Written rows stay, and the next run skips them.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from transept.cluster.columns import SPEECH_COLUMNS, TEXT_COLUMNS
from transept.cluster.data import OPTIONS, task_options
from transept.cluster.inputs import Input
from transept.cluster.parts import Format, OutputFolder
from transept.cluster.rank_actors import RankActors
from transept.cluster.replica import FAILURE, OF_FILES, TASKS, Replica, failure_of
from transept.cluster.runtime import LOCAL, ClusterError, ClusterSize, cluster, num_ranks
from transept.core.config import EngineConfig
from transept.core.engine import describe
from transept.errors import shown
from transept.options import declared, refusal, written
from transept.speech.vad.options import VadOptions
from transept.system import usable_cores

Task = Literal["transcribe", "summarize", "translate", "read"]

BATCH_ROWS = 16  # rows of a call; the library also holds this many recordings in memory at a time
CALLS_AT_A_TIME = 2  # calls of a replica at a time: its engine stays busy while one call ends
PART_ROWS = 1000
PART_SECONDS = 30.0  # after this time, a part of any size is written; a killed run loses this much work
RETRIES = 4  # for a call whose worker or machine died


@dataclass(frozen=True)
class BatchJob:
    """The task for every row, and the number and size of the replicas.

    task, model, options: as for Transcribe, Summarize, Translate and Read.
    replicas: None: one for each GPU, or for each node.
    threads: CPUs of a replica; None: the CPUs of its node, divided among the replicas there.
    num_gpus: of a replica; None: 1 if the cluster has GPUs and the device is not ``"cpu"``. With several ranks, a
    replica's ranks are Ray actors on as few nodes as possible; they share threads, and num_gpus, 0 or 1, is per rank.
    Raises ParameterError for an invalid value.
    """

    task: Task
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    replicas: int | None = None
    threads: int | None = None
    num_gpus: float | None = None

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise refusal(self, f"the {{task}} must be one of {', '.join(TASKS)}, not {shown(self.task)}")
        for name in ("replicas", "threads"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise refusal(self, f"{{{name}}} must be an integer of at least 1, not {{{name}!}}")
        gpus = self.num_gpus
        if gpus is not None and (
            isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < math.inf
        ):
            raise refusal(self, "{num_gpus} must be a number of at least 0, not {num_gpus!}")
        task_options(self.task, self.model, self.options)

    def engine_config(self) -> EngineConfig:
        """Return the configuration of each replica's engine, without the threads that Ray gives it."""
        return EngineConfig(str(self.model), **task_options(self.task, self.model, self.options)[0])

    def flags(self) -> dict[str, str]:
        """Return the flag of `transept batch` for each option, for the errors of rows."""
        options = [each for kind in (*OPTIONS[self.task], EngineConfig) for each in declared(kind).values()]
        flags = {each.name: f"--{written(each).replace('_', '-')}" for each in options}
        flags |= {f"vad_options.{name}": f"--vad-{name.replace('_', '-')}" for name in declared(VadOptions)}
        return flags | {"task": "--image-task" if self.task == "read" else "task"}

    def record(self) -> dict[str, Any]:
        """Return the settings on which the results depend."""
        return {"task": self.task, "model": self.model, "options": self.options}


@dataclass
class BatchReport:
    """Counts and times of a batch. num_rows: of the whole batch. num_skipped: rows that the output already had.

    failed: row -> its error, also of earlier runs. audio_seconds: of the transcribed recordings. startup_seconds: until
    the first row was distributed. seconds: from then to the last result.
    """

    num_rows: int
    num_skipped: int = 0
    num_done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    audio_seconds: float = 0.0
    seconds: float = 0.0
    startup_seconds: float = 0.0
    replicas: int = 0
    threads: int = 0


def run_batch(
    rows: Sequence[Input],
    job: BatchJob,
    output: str,
    *,
    format: Format = "jsonl",
    address: str = LOCAL,
    retry_failed: bool = False,
    on_result: Callable[[dict[str, Any]], None] | None = None,
    part_seconds: float = PART_SECONDS,
) -> BatchReport:
    """Process all rows that the output does not have yet, and write them there.

    output: a folder, by path or URI. address: of a Ray cluster; `LOCAL` starts Ray here and ends it.
    retry_failed: also repeat the output's rows with errors. on_result: called with each new row, without its segments.
    part_seconds: see PART_SECONDS.
    Raises OutputError, ClusterError, and as the model's constructor; rows done before are written.
    """
    report = BatchReport(len(rows))
    with OutputFolder(output, format, job.record()) as folder:
        if retry_failed:
            folder.forget_failed()
        to_do = [row for row in rows if row.file not in folder.done]
        report.num_skipped = len(rows) - len(to_do)
        report.failed = {row.file: error for row in rows if (error := folder.done.get(row.file)) is not None}
        if to_do:
            _run(to_do, job, folder, address, report, on_result, part_seconds)
    return report


def _run(
    rows: Sequence[Input],
    job: BatchJob,
    folder: OutputFolder,
    address: str,
    report: BatchReport,
    on_result: Callable[[dict[str, Any]], None] | None,
    part_seconds: float,
) -> None:
    begin = time.monotonic()
    if address == LOCAL:
        describe(job.engine_config())  # raises a replica's errors before Ray starts
    ranks = (job.replicas or 1) * num_ranks(job.options)
    wanted = None if job.threads is None else (job.replicas or 1) * job.threads
    part = _Part(folder, part_seconds)
    with cluster(address, num_cpus=max(wanted or 1, ranks)) as size:
        resources = _resources(job, size, len(rows))
        report.replicas, report.threads = resources.replicas, resources.ranks * resources.threads
        started = time.monotonic()
        report.startup_seconds = started - begin
        try:
            for table in _results(rows, job, resources):
                part.add(table)
                for row in table.select([name for name in table.column_names if name != "segments"]).to_pylist():
                    _count(row, report)
                    if on_result is not None:
                        on_result(row)
        finally:
            part.write()
            report.seconds = time.monotonic() - started


class _Part:
    """Rows of the next part."""

    def __init__(self, folder: OutputFolder, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.tables: list[pa.Table] = []
        self.begin = 0.0

    def add(self, table: pa.Table) -> None:
        """Add rows. Writes the part once it is large or old enough."""
        if not self.tables:
            self.begin = time.monotonic()
        self.tables.append(table)
        if sum(map(len, self.tables)) >= PART_ROWS or time.monotonic() - self.begin >= self.seconds:
            self.write()

    def write(self) -> None:
        """Write the part."""
        if self.tables:
            self.folder.write(pa.concat_tables(self.tables))
            self.tables = []


def _count(row: dict[str, Any], report: BatchReport) -> None:
    if row["error"] is None:
        report.num_done += 1
        report.audio_seconds += row.get("duration") or 0.0
    else:
        report.failed[row["file"]] = row["error"]


@dataclass(frozen=True)
class _Resources:
    """Replicas, the ranks of each, and the CPUs and GPUs of each rank."""

    replicas: int
    ranks: int
    threads: int
    num_gpus: float


def _resources(job: BatchJob, size: ClusterSize, num_rows: int) -> _Resources:
    """Return the resources to request of a cluster. Raises ClusterError if they exceed the cluster's."""
    device = job.options.get("device", "auto")
    uses_gpu = str(device).startswith("cuda") or (device == "auto" and size.num_gpus > 0)
    num_gpus = float(uses_gpu) if job.num_gpus is None else job.num_gpus
    ranks = num_ranks(job.options)
    replicas = job.replicas or (size.num_gpus if uses_gpu else size.num_nodes) // ranks or 1
    replicas = min(replicas, -(-num_rows // BATCH_ROWS)) if job.replicas is None else min(replicas, num_rows)
    node_cpus = min(size.node_cpus, usable_cores()) if size.num_nodes == 1 else size.node_cpus
    a_node = -(-replicas * ranks // size.num_nodes)
    threads = max(1, job.threads // ranks if job.threads else node_cpus // a_node)
    what = "a replica" if ranks == 1 else "a rank"
    if threads > size.node_cpus:
        raise ClusterError(
            f"{what} needs {threads} threads, but the smallest node has {size.node_cpus} CPUs: lower threads"
        )
    if num_gpus * ranks > size.num_gpus:
        raise ClusterError(
            f"a replica needs {num_gpus * ranks:g} GPUs, but the cluster has {size.num_gpus}: lower the number of GPUs"
        )
    if ranks > 1 and num_gpus not in (0, 1):
        raise ClusterError(f"each of {ranks} ranks can have 0 GPUs or 1, not {num_gpus:g}")
    if ranks > 1 and replicas * ranks * threads > size.num_cpus:
        raise ClusterError(
            f"{replicas} replica{'s' * (replicas > 1)} of {ranks} ranks need {replicas * ranks * threads} CPUs, but "
            f"the cluster has {size.num_cpus}: lower replicas or threads"
        )
    return _Resources(replicas, ranks, threads, num_gpus)


def _results(rows: Sequence[Input], job: BatchJob, resources: _Resources) -> Iterator[pa.Table]:
    """Yield tables of results, with `file` and the columns of the task, as they arrive.

    Rows whose worker died on every attempt are repeated one by one at the end; those whose worker dies again get an
    error.
    """
    missing = {row.file: row for row in rows}
    for batch_rows in (BATCH_ROWS, 1):
        if not missing:
            return
        for table in _mapped(list(missing.values()), job, resources, batch_rows):
            for file in table["file"].to_pylist():
                del missing[file]
            yield table
    if missing:
        types = SPEECH_COLUMNS if job.task == "transcribe" else TEXT_COLUMNS
        error = f"the worker died in each of {RETRIES + 1} attempts at this row"
        lost = [{"file": file, "segments": [], "error": error} for file in missing]
        yield pa.Table.from_pylist(lost, pa.schema({"file": pa.string(), **types}))


def _mapped(rows: Sequence[Input], job: BatchJob, resources: _Resources, batch_rows: int) -> Iterator[pa.Table]:
    """Yield the results of Ray Data, without blocks whose workers died. Raises the error of a replica's start."""
    import ray.data

    context = ray.data.DataContext.get_current().copy()  # the program's own context stays unchanged
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_errored_blocks = -1  # `_results` finds the missing rows
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    calls = CALLS_AT_A_TIME if batch_rows > 1 else 1  # one at a time, so that a row cannot end the calls of others
    engine: dict[str, Any] = {"threads": resources.ranks * resources.threads, **job.options}
    own: dict[str, Any] = {"num_cpus": resources.threads, "num_gpus": resources.num_gpus}
    if resources.ranks > 1:  # a replica's actor computes little; its ranks request resources
        engine |= {"launcher": RankActors(), "device": "cuda" if resources.num_gpus else "cpu"}
        own = {"num_cpus": 0}
    blocks = [_block(rows[begin : begin + batch_rows], job) for begin in range(0, len(rows), batch_rows)]
    with ray.data.DataContext.current(context), warnings.catch_warnings():
        # Ray has no other option for the number of retries.
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        dataset = ray.data.from_arrow(blocks).map_batches(
            Replica,
            fn_constructor_args=(job.task, _absolute(job.model), engine, job.flags()),
            compute=ray.data.ActorPoolStrategy(
                size=min(resources.replicas, len(blocks)),
                max_tasks_in_flight_per_actor=2 * calls if batch_rows > 1 else 1,
                max_concurrent_calls_per_actor=calls,
                enable_true_multi_threading=True,
            ),
            batch_size=None,
            batch_format="pyarrow",
            **own,
            ray_remote_args_fn=lambda: {"max_task_retries": RETRIES},
        )
    batches: Iterable[Any] = dataset.iter_batches(batch_size=None, batch_format="pyarrow")
    for table in batches:
        if FAILURE in table.column_names:
            raise failure_of(table)
        yield table


def _block(rows: Sequence[Input], job: BatchJob) -> pa.Table:
    columns = {"file": [row.file for row in rows], "path": [row.path for row in rows]}
    if job.task not in OF_FILES:
        columns["text"] = [row.text for row in rows]
    return pa.table(columns, pa.schema({name: pa.string() for name in columns}))


def _absolute(model: str) -> str:
    """Return the absolute path of a model in a local folder, because workers run in other folders."""
    return str(Path(model).absolute()) if Path(model).exists() else model
