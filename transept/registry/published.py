"""Short names of models: the published checkpoint of a name such as ``small``, as plugins declare them.

Called when a model's name is resolved to a directory, and by ``transept models``.
"""

from __future__ import annotations

from transept.errors import CheckpointError
from transept.registry.plugins import Plugins
from transept.registry.spec import PublishedCheckpoint


def published_checkpoints(plugins: Plugins) -> dict[str, tuple[PublishedCheckpoint, ...]]:
    """Return short name -> its checkpoint, in the order of the plugins; several if plugins disagree."""
    found: dict[str, tuple[PublishedCheckpoint, ...]] = {}
    for report in plugins.reports:
        for spec in report.models:
            for name, published in spec.published.items():
                others = found.get(name, ())
                if all(published.repository != other.repository for other in others):
                    found[name] = (*others, published)
    return found


def repository_of(name: str, plugins: Plugins) -> str | None:
    """Return the repository of a short name; None if no plugin declares the name.

    Raises CheckpointError if plugins disagree.
    """
    meant = published_checkpoints(plugins).get(name, ())
    if len(meant) > 1:
        repositories = " and ".join(f'"{each.repository}"' for each in meant)
        raise CheckpointError(f'plugins mean {repositories} by "{name}"; pass one of these names')
    return meant[0].repository if meant else None
