"""Replica: runs a task of a batch in a Ray actor, and turns every failure of its model into rows.

Called by Ray Data for `batch`.
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
OF_FILES = ("transcribe", "read")  # tasks whose rows are files, not documents
logger = logging.getLogger(__name__)
FAILURE = "failure"  # the column with the error's class and message if the replica could not load its model


class Replica:
    """A task of `TASKS` on tables with the columns ``path`` and ``file``, and for text also ``text``.

    The first batch reports a model that cannot be loaded. A batch that fails as a whole is repeated row by row. If the
    engine has closed, for example because a rank died, this process ends, so that Ray repeats its calls.

    names: option -> its name in errors of rows.
    """

    def __init__(self, task: str, model: str, options: dict[str, Any], names: dict[str, str]) -> None:
        self.columns = SPEECH_COLUMNS if task == "transcribe" else TEXT_COLUMNS
        columns = {"column": "path"} if task in OF_FILES else {"file_column": "path"}
        self.failure: Exception | None = None
        try:
            self.task = TASKS[task](model, **columns, **options)
            self.task.names = names
        except Exception as error:
            self.failure = error

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return `file` and the results of each row."""
        if self.failure is not None:
            kind, message = type(self.failure).__name__, str(self.failure)
            return pa.table({"file": batch["file"].slice(0, 1), FAILURE: [[kind, message]]})
        try:
            done = self.task(batch).select(["file", *self.columns])
            self.task.engine.executor.check_open()
            return done
        except EngineClosedError as error:
            logger.error("%s", error)
            self.task.engine.executor.close()  # returns once the ranks' resources are released
            os._exit(1)
        except Exception as error:
            if len(batch) > 1:
                return pa.concat_tables([self(batch.slice(row, 1)) for row in range(len(batch))])
            row = {"file": batch["file"][0].as_py(), "segments": [], "error": f"{type(error).__name__}: {error}"}
            return pa.Table.from_pylist([row], pa.schema({"file": pa.string(), **self.columns}))


def failure_of(table: pa.Table) -> TranseptError:
    """Return the error because of which a replica could not load its model."""
    kind, message = table[FAILURE][0].as_py()
    found = ClusterError if kind == ClusterError.__name__ else getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, TranseptError):
        return found(message)
    return CheckpointError(f"a replica cannot load the model: {kind}: {message}")
