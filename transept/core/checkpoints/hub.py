"""The hub: the copy of a repository's checkpoint that is on this machine, or a new one.

Called by `source.locate` and ``transept models``. Copies lie as huggingface_hub keeps them, in its cache or in another
folder of that form, so they are shared with all that uses it.

A copy is complete when config.json, all weights and a tokenizer are there. Each file appears only once all of it has
come, and the weights are fetched last: what was interrupted never looks complete.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from transept.errors import CheckpointError

logger = logging.getLogger(__name__)

# What a repository is downloaded for: configs and tokenizers beside the weights, and one set of weights.
SMALL_FILES = re.compile(r"[^/]+\.(json|jinja|model|tiktoken|txt)")
WEIGHT_SETS = (  # in order of preference; the last is CTranslate2's
    re.compile(r"model\.safetensors"),
    re.compile(r"model-\d+-of-\d+\.safetensors"),
    re.compile(r"pytorch_model\.bin"),
    re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    re.compile(r"model\.bin"),
)
TOKENIZERS = re.compile(r"tokenizer(_config)?\.json|.+\.(model|tiktoken)|vocab.*")
ANSWER_SECONDS = 10.0  # for the hub's first answer, after which it counts as unreachable


class UnreachableError(CheckpointError):
    """The hub does not answer, or what answers is not the hub."""


def cached_copy(repository: str, folder: Path | None) -> Path | None:
    """The copy of the commit that ``main`` last stood for here, complete or not; None: there is none.

    folder: that copies are kept in; None: the hub's cache.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(repository, "config.json", cache_dir=folder)
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def is_complete(copy: Path) -> bool:
    """Whether config.json, every shard of a set of weights and a tokenizer are there."""
    return has_weights(copy) and any(TOKENIZERS.fullmatch(file) for file in _files(copy))


def has_weights(copy: Path) -> bool:
    """Whether config.json and every shard of a set of weights are there: a few checkpoints have no tokenizer."""
    files = _files(copy)
    weights = [file for file in wanted_files(files) if any(pattern.fullmatch(file) for pattern in WEIGHT_SETS)]
    counts = {int(count) for file in weights for count in re.findall(r"-of-(\d+)\.", file)}
    return "config.json" in files and bool(weights) and counts <= {len(weights)}


def num_bytes(copy: Path) -> int:
    """Of a copy's files on disk."""
    return sum((copy / file).stat().st_size for file in _files(copy))


def is_offline() -> bool:
    """Whether the environment forbids to ask the hub (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def cache_folder() -> Path:
    """The hub's cache on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def download(repository: str, folder: Path | None) -> Path:
    """What the hub's main branch holds of a checkpoint, all of it from one commit, but for what is here already.

    folder: as above. Not snapshot_download, which waits for a silent hub without end and fetches weights first.
    Raises UnreachableError after ANSWER_SECONDS, CheckpointError where there is no such repository, where it holds no
    checkpoint, and where the download breaks off.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    api = HfApi()
    try:
        info = api.model_info(repository, timeout=ANSWER_SECONDS)
    except HFValidationError as error:
        raise CheckpointError(f"it is neither a directory nor a name on the hub: {_first_line(error)}") from None
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"no such directory, and the hub has no such model, or not for you ({_first_line(error)}). For a gated or "
            "private model log in with `hf auth login`"
        ) from None
    except Exception as error:  # whatever the hub's HTTP library raises when it cannot be reached
        raise UnreachableError(f"{type(error).__name__}: {_first_line(error)}") from None
    try:
        copy = Path(hf_hub_download(repository, "config.json", cache_dir=folder)).parent  # notes what main is
        if copy.name != info.sha:  # a commit came in between
            info = api.model_info(repository, revision=copy.name, timeout=ANSWER_SECONDS)
        logger.info('"%s": downloading commit %s', repository, copy.name)
        files = wanted_files(sibling.rfilename for sibling in info.siblings or [])
        for file in sorted(files, key=lambda file: SMALL_FILES.fullmatch(file) is None):
            hf_hub_download(repository, file, revision=copy.name, cache_dir=folder)
    except Exception as error:
        cause = error.__cause__ or error
        raise CheckpointError(f"its download broke off ({type(cause).__name__}: {_first_line(cause)})") from None
    return copy


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


def _files(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_file()]  # not links to what is gone


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
