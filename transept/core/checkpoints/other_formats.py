"""Advice for weight files in unsupported formats: whisper.cpp's, openai-whisper's, PEFT's adapters.

Called when a model is located and when a folder is opened, so that the error says what would work.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from transept.registry.plugins import discover
from transept.registry.published import repository_of

GGML = re.compile(r"ggml-(.+?)(?:-q\d_\w+)?\.bin")  # names of whisper.cpp's models: ggml-base.en-q5_1.bin
OPENAI = re.compile(r"(.+)\.pt")  # of openai-whisper's: base.en.pt
OPENAI_KEYS = (b"dims", b"model_state_dict")  # in each of its files
MOST_PICKLE_BYTES = 1 << 20  # of a file's pickle to search for OPENAI_KEYS
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
CONVERT = (
    "convert_openai_to_hf.py, in src/transformers/models/whisper of transformers' repository, makes a folder that is: "
    "--checkpoint_path FILE --pytorch_dump_folder_path FOLDER --convert_preprocessor True"
)


def about_file(file: Path, name: str) -> str:
    """Return why a file is not supported, and what would work; empty for an unknown format. The file need not exist.

    name: the user's name for it.
    """
    if ggml := GGML.fullmatch(file.name):
        same = _same(ggml[1])
        return f'"{name}" is a file of whisper.cpp, a format that is not supported{same}'
    if openai := OPENAI.fullmatch(file.name):
        same = _same(openai[1])
        if same or _is_openai_whisper(file):
            return f'"{name}" is a file of openai-whisper, a format that is not supported{same or f". {CONVERT}"}'
    return ""


def about_folder(folder: Path) -> str:
    """Return the advice for a folder without a checkpoint, from its first file in a known format."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    if adapter := next((file for file in files if file.name in ADAPTERS), None):
        return (
            f'"{folder}" holds a PEFT adapter alone, {adapter.name}. Load its base model, and give this '
            "folder as {merge_adapter}, or in {adapters}"
        )
    return next((answer for file in files if (answer := about_file(file, str(file)))), "")


def _same(short_name: str) -> str:
    return f"; the same weights are '{short_name}'" if repository_of(short_name, discover()) else ""


def _is_openai_whisper(file: Path) -> bool:
    """True if a file is a pickle with openai-whisper's keys. The pickle is searched, not executed."""
    try:
        with zipfile.ZipFile(file) as archive:
            pickles = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
            content = archive.open(pickles[0]).read(MOST_PICKLE_BYTES) if pickles else b""
    except (OSError, zipfile.BadZipFile):
        return False
    return all(key in content for key in OPENAI_KEYS)
