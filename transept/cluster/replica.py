"""Replica: the actor's side of a batch, which turns every way in which its model can fail into rows.

Called by Ray Data for `batch`, in processes of its own.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import pyarrow as pa

from transept import errors
from transept.cluster.columns import SPEECH_COLUMNS, TEXT_COLUMNS
from transept.cluster.data import Read, Summarize, Transcribe, Translate
from transept.cluster.runtime import ClusterError
from transept.errors import CheckpointError, EngineClosedError, TranseptError

TASKS: dict[str, Any] = {"transcribe": Transcribe, "summarize": Summarize, "translate": Translate, "read": Read}
OF_FILES = ("transcribe", "read")  # whose rows are files, and no documents
logger = logging.getLogger(__name__)
FAILURE = "failure"  # column of what a replica without a model answers: an error's class, and what it says


class Replica:
    """A task of `TASKS` over tables with a column ``path`` of files, for text one ``text``, too, and one ``file``.

    A model that cannot be loaded is told with the first batch, and a batch that fails as a whole is done row by row.
    Where an engine has closed, since a rank of it died, say, this process ends, so that Ray does its calls again.
    """

    def __init__(self, task: str, model: str, options: dict[str, Any]) -> None:
        self.columns = SPEECH_COLUMNS if task == "transcribe" else TEXT_COLUMNS
        columns = {"column": "path"} if task in OF_FILES else {"file_column": "path"}
        self.failure: Exception | None = None
        try:
            self.task = TASKS[task](model, **columns, **options)
        except Exception as error:
            self.failure = error

    def __call__(self, batch: pa.Table) -> pa.Table:
        """`file` and the results of each row."""
        if self.failure is not None:
            kind, message = type(self.failure).__name__, str(self.failure)
            return pa.table({"file": batch["file"].slice(0, 1), FAILURE: [[kind, message]]})
        try:
            done = self.task(batch).select(["file", *self.columns])
            self.task.engine.executor.check_open()
            return done
        except EngineClosedError as error:
            logger.error("%s", error)
            self.task.engine.executor.close()  # returns once what was taken for ranks is given back
            os._exit(1)
        except Exception as error:
            if len(batch) > 1:
                return pa.concat_tables([self(batch.slice(row, 1)) for row in range(len(batch))])
            row = {"file": batch["file"][0].as_py(), "segments": [], "error": f"{type(error).__name__}: {error}"}
            return pa.Table.from_pylist([row], pa.schema({"file": pa.string(), **self.columns}))


def failure_of(table: pa.Table) -> TranseptError:
    """The error that kept a replica from loading its model."""
    kind, message = table[FAILURE][0].as_py()
    found = ClusterError if kind == ClusterError.__name__ else getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, TranseptError):
        return found(message)
    return CheckpointError(f"a replica cannot load the model: {kind}: {message}")
