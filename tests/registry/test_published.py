"""Short names of models, where several plugins have some."""

from __future__ import annotations

import pytest

from transept.errors import CheckpointError
from transept.registry.plugins import PluginReport, Plugins
from transept.registry.published import published_checkpoints, repository_of
from transept.registry.spec import ModelSpec, PublishedCheckpoint

SMALL, OTHER = PublishedCheckpoint("org/small", 5), PublishedCheckpoint("other/small", 6)


def plugins(*published: dict[str, PublishedCheckpoint]) -> Plugins:
    specs = [ModelSpec("x", ("X",), "x:X", published=each) for each in published]
    return Plugins(tuple(PluginReport(str(n), f"d{n}", "1", "ok", models=(spec,)) for n, spec in enumerate(specs)))


def test_names_of_all_plugins_are_known() -> None:
    found = published_checkpoints(plugins({"small": SMALL, "tiny": OTHER}, {"small": SMALL, "mine": OTHER}, {}))
    assert found == {"small": (SMALL,), "tiny": (OTHER,), "mine": (OTHER,)}


def test_a_name_of_which_plugins_disagree_is_refused() -> None:
    both = plugins({"small": SMALL, "tiny": SMALL}, {"small": OTHER})
    assert repository_of("tiny", both) == "org/small"
    assert repository_of("base", both) is None
    with pytest.raises(CheckpointError, match='plugins mean "org/small" and "other/small" by "small"'):
        repository_of("small", both)
