"""The hub: find a repository's checkpoint on this machine, or download it.

Called by `source.locate` and ``transept models``. Copies are in huggingface_hub's cache, or in another folder of the
same layout, so other programs share them.

A copy is complete if it has config.json, all weights and a tokenizer. A file appears when its download is complete, and
weights are downloaded last, so an interrupted download never looks complete.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from transept.core.checkpoints.checkpoint import cause_of, first_line
from transept.errors import CheckpointError

logger = logging.getLogger(__name__)

# Files to download: configs and tokenizers, and one set of weights.
SMALL_FILES = re.compile(r"[^/]+\.(json|jinja|model|tiktoken|txt)")
WEIGHT_SETS = (  # in order of preference; the last is CTranslate2's
    re.compile(r"model\.safetensors"),
    re.compile(r"model-\d+-of-\d+\.safetensors"),
    re.compile(r"pytorch_model\.bin"),
    re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    re.compile(r"model\.bin"),
)
TOKENIZERS = re.compile(r"tokenizer(_config)?\.json|.+\.(model|tiktoken)|vocab.*")
ANSWER_SECONDS = 10.0  # after so long without an answer, the hub counts as unreachable


class UnreachableError(CheckpointError):
    """The hub does not answer, or another server answers."""


def cached_copy(repository: str, folder: Path | None) -> Path | None:
    """Return the local copy of the last known commit of ``main``, complete or not; None without one.

    folder: the folder of copies; None: the hub's cache.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(repository, "config.json", cache_dir=folder)
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def is_complete(copy: Path) -> bool:
    """True if a copy has config.json, every shard of a set of weights, and a tokenizer."""
    return has_weights(copy) and any(TOKENIZERS.fullmatch(file) for file in _files(copy))


def has_weights(copy: Path) -> bool:
    """True if a copy has config.json and every shard of a set of weights. A few checkpoints have no tokenizer."""
    files = _files(copy)
    weights = [file for file in wanted_files(files) if any(pattern.fullmatch(file) for pattern in WEIGHT_SETS)]
    counts = {int(count) for file in weights for count in re.findall(r"-of-(\d+)\.", file)}
    return "config.json" in files and bool(weights) and counts <= {len(weights)}


def num_bytes(copy: Path) -> int:
    """Return the size of a copy's files on disk."""
    return sum((copy / file).stat().st_size for file in _files(copy))


def is_offline() -> bool:
    """True if the environment forbids requests to the hub (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def cache_folder() -> Path:
    """Return the hub's cache on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def download(repository: str, folder: Path | None) -> Path:
    """Download a checkpoint's missing files from one commit of the main branch, and return its copy.

    folder: as above. snapshot_download would wait for a silent hub forever, and would download weights first.
    Raises UnreachableError after ANSWER_SECONDS. Raises CheckpointError if the repository does not exist or has no
    checkpoint, and if the download breaks off.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    api = HfApi()
    try:
        info = api.model_info(repository, timeout=ANSWER_SECONDS)
    except HFValidationError as error:
        raise CheckpointError(f"it is neither a directory nor a name on the hub: {first_line(error)}") from None
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"no such directory, and the hub has no such model or denies access ({first_line(error)}). For a gated or "
            "private model log in with `hf auth login`"
        ) from None
    except Exception as error:  # any error of the hub's HTTP library
        raise UnreachableError(cause_of(error)) from None
    try:
        copy = Path(hf_hub_download(repository, "config.json", cache_dir=folder)).parent  # records main's commit
        if copy.name != info.sha:  # main has moved in between
            info = api.model_info(repository, revision=copy.name, timeout=ANSWER_SECONDS)
        logger.info('"%s": downloading commit %s', repository, copy.name)
        files = wanted_files(sibling.rfilename for sibling in info.siblings or [])
        for file in sorted(files, key=lambda file: SMALL_FILES.fullmatch(file) is None):
            hf_hub_download(repository, file, revision=copy.name, cache_dir=folder)
    except Exception as error:
        raise CheckpointError(f"its download broke off ({cause_of(error.__cause__ or error)})") from None
    return copy


def wanted_files(files: Iterable[str]) -> list[str]:
    """Return the files of a repository that make up a checkpoint: small files, and its first set of weights."""
    files = list(files)
    weights: list[str] = []
    for pattern in WEIGHT_SETS:
        if weights := [file for file in files if pattern.fullmatch(file)]:
            break
    # The index of other shards would name files that are missing here.
    indexes = {re.sub(r"-\d+-of-\d+(\.\w+)", r"\1.index.json", file) for file in weights}
    small = [file for file in files if SMALL_FILES.fullmatch(file)]
    return sorted({*weights, *(file for file in small if not file.endswith(".index.json") or file in indexes)})


def _files(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_file()]  # not dangling links
