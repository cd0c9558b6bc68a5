"""Text features: further inputs of an encoder of text, such as the tokens with global attention.

The preprocessor calls it. Families declare their features in ModelSpec.encoder_inputs, and a prompt's "encoder_inputs"
has values for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transept.errors import PluginError, PromptError, suggest
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import call_plugin
from transept.registry.spec import ModelSpec


def map_text_features(
    spec: ModelSpec, view: CheckpointView, given: Mapping[str, Any], token_ids: Sequence[int]
) -> dict[str, Any]:
    """Return a tensor for each of the encoder's further keyword arguments that the family declares.

    given: the prompt's values by name; the family's function gets None without one. token_ids: of the text.
    Raises PromptError for an unknown name, and the errors of the family's functions on bad values; PluginError if one
    returns no tensor, or raises an error that is not a TranseptError.
    """
    known = spec.encoder_inputs
    for name in given:
        if name not in known:
            message = f'{{encoder_inputs}}: "{spec.name}" models have no {name!r}.{suggest(str(name), known)}'
            raise PromptError(message, param="encoder_inputs", value=given)
    features = {}
    for name, function in known.items():
        what = f'encoder_inputs["{name}"]'
        features[name] = call_plugin(spec, what, function, given.get(name), token_ids, view)
        if not hasattr(features[name], "shape"):
            raise PluginError(f"{what} of {spec.known_as} returned {type(features[name]).__name__}, no tensor")
    return features
