"""open_checkpoint: open a directory in the format of its files."""

from __future__ import annotations

from pathlib import Path

from transept.core.checkpoints import ctranslate2, huggingface
from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.other_formats import about_folder
from transept.errors import CheckpointError


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint directory in the format of its files; if it has both formats, in Hugging Face's.

    Reads config.json and, for CTranslate2, the table of variables, but no weights.
    Raises CheckpointError if the directory has neither format, or if these files are corrupt.
    """
    try:
        if huggingface.find_weights(path) is not None:
            return huggingface.HuggingFaceCheckpoint(path)
        if (path / ctranslate2.MODEL_BIN).is_file():
            return ctranslate2.CTranslate2Checkpoint(path)
        if not path.is_dir():
            raise CheckpointError(f'no checkpoint in "{path}": no such directory')
        if answer := about_folder(path):
            raise CheckpointError(answer)
        found = ", ".join(sorted(entry.name for entry in path.iterdir())) or "nothing"
    except OSError as error:
        raise CheckpointError(f'cannot read "{path}": {error}') from None
    wanted = ", ".join((*huggingface.WEIGHTS, f"{ctranslate2.MODEL_BIN} (CTranslate2)"))
    raise CheckpointError(f'no checkpoint in "{path}": it has {found}. It must have one of {wanted}')
