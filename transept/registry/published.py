"""Short names of models: which published checkpoint a name such as ``small`` stands for, as the plugins say.

Called where a model's name becomes a directory, and by ``transept models``. Knows no name by itself.
"""

from __future__ import annotations

from transept.errors import CheckpointError
from transept.registry.plugins import Plugins
from transept.registry.spec import PublishedCheckpoint


def published_checkpoints(plugins: Plugins) -> dict[str, tuple[PublishedCheckpoint, ...]]:
    """Short name -> what it stands for, in the order of the plugins; more than one where they disagree."""
    found: dict[str, tuple[PublishedCheckpoint, ...]] = {}
    for report in plugins.reports:
        for spec in report.models:
            for name, published in spec.published.items():
                others = found.get(name, ())
                if all(published.repository != other.repository for other in others):
                    found[name] = (*others, published)
    return found


def repository_of(name: str, plugins: Plugins) -> str | None:
    """The repository that a short name stands for; None where no plugin knows the name.

    Raises CheckpointError where plugins disagree.
    """
    meant = published_checkpoints(plugins).get(name, ())
    if len(meant) > 1:
        repositories = " and ".join(f'"{each.repository}"' for each in meant)
        raise CheckpointError(f'plugins mean {repositories} by "{name}": write which of them you want')
    return meant[0].repository if meant else None
