"""The pluggy hook specifications: what Transept asks of a plugin."""

from __future__ import annotations

import pluggy

from transept.registry.spec import ModelSpec

PROJECT_NAME = "transept"  # pluggy's project name
ENTRY_POINT_GROUP = "transept.plugins"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)


@hookspec
def register_models() -> list[ModelSpec]:  # type: ignore[empty-body]
    """The model families that this plugin runs. Called once; keep heavy imports out of it."""
