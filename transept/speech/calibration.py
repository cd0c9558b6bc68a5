"""Results of `transept calibrate`: the margin of each model that ``encoder_context="auto"`` uses, in a JSON file.

A model is identified by the content of its weights, so a copy elsewhere or under another name has the same margin.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from transept.errors import CheckpointError, ParameterError
from transept.json_files import read_json

FILE = Path("transept", "encoder-context.json")  # within the user's data folder
WEIGHTS = (".safetensors", ".bin", ".pt")  # suffixes
PIECES, PIECE_BYTES = 64, 1 << 16  # of each file of weights; training changes every weight


@dataclass(frozen=True)
class Calibration:
    """The calibration of a model.

    model: the user's name for it. margin: seconds; None if every margin lost words. whole_error_rate: word error rate
    with whole windows. error_rates: word error rate by margin, in seconds as text.
    """

    model: str
    margin: float | None
    whole_error_rate: float
    error_rates: dict[str, float]


def data_file() -> Path:
    """Return the file of calibrations, in ``$XDG_DATA_HOME``, or otherwise in ``~/.local/share``."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / FILE


def content_hash(checkpoint: Path) -> str:
    """Hash a checkpoint's config.json and weights; of a large file, only its size and pieces spread over it.

    Raises CheckpointError for files that cannot be read.
    """
    digest = hashlib.sha256()
    try:
        files = [each for each in checkpoint.iterdir() if each.name == "config.json" or each.suffix in WEIGHTS]
        for file in sorted(files, key=lambda each: each.name):
            size = file.stat().st_size
            digest.update(f"{file.name} {size}\n".encode())
            with file.open("rb") as opened:
                for piece in range(PIECES):
                    opened.seek(piece * max(PIECE_BYTES, (size - PIECE_BYTES) // (PIECES - 1)))
                    digest.update(opened.read(PIECE_BYTES))
    except OSError as error:
        raise CheckpointError(f'cannot read "{checkpoint}": {error}') from None
    return digest.hexdigest()


def found_for(checkpoint: Path) -> Calibration | None:
    """Return the calibration of a model, if there is one. Raises CheckpointError for files that cannot be read."""
    entry = _read().get(content_hash(checkpoint))
    if not isinstance(entry, dict) or set(entry) != set(Calibration.__dataclass_fields__):
        return None  # none, or one of another form
    found = Calibration(**entry)
    numbers = isinstance(found.margin, Real | None) and isinstance(found.whole_error_rate, Real)
    return found if numbers and isinstance(found.error_rates, dict) and isinstance(found.model, str) else None


def keep(checkpoint: Path, found: Calibration) -> Path:
    """Save the calibration of a model in place of an earlier one. Returns the file. Raises OSError."""
    file = data_file()
    content = {**_read(), content_hash(checkpoint): asdict(found)}
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.stem}.{os.getpid()}.part{file.suffix}")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(unfinished, file)
    return file


def calibrated_margin(checkpoint: Path, name: str) -> float:
    """Return the seconds of a model's ``encoder_context="auto"``. name: the user's name for it.

    Raises ParameterError if the model is not calibrated, or loses words with every margin.
    """
    found = found_for(checkpoint)
    if found is None:
        raise ParameterError(
            f'{{encoder_context=}} needs a calibration, and "{name}" has none: run `transept calibrate {name} '
            "RECORDINGS` once, or give seconds",
            param="encoder_context",
            value="auto",
        )
    if found.margin is None:
        raise ParameterError(
            f'{{encoder_context=}}: according to `transept calibrate`, "{name}" loses words if its encoder reads less '
            "than the whole window; leave {encoder_context} out",
            param="encoder_context",
            value="auto",
        )
    return found.margin


def _read() -> dict[str, Any]:
    try:
        return read_json(data_file()) if data_file().is_file() else {}
    except CheckpointError as error:
        raise CheckpointError(f"{error}; delete the file, and run `transept calibrate` again") from None
