"""What an encoder that reads text is given beside the tokens, such as which of them attend globally.

Called by the preprocessor; a family declares its own in ModelSpec.encoder_inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transept.errors import PluginError, PromptError, suggest
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import call_plugin
from transept.registry.spec import ModelSpec


def map_encoder_inputs(
    spec: ModelSpec, view: CheckpointView, given: Mapping[str, Any], token_ids: Sequence[int]
) -> dict[str, Any]:
    """The encoder's further keyword arguments for one text: a tensor for each that the family declares.

    given: by name what the prompt says; of the others the family's function is given None. token_ids: of the text.
    Raises PromptError for a name that the family does not have, and what its functions raise on bad values; PluginError
    where one returns what is no tensor, or raises what is no TranseptError.
    """
    known = spec.encoder_inputs
    for name in given:
        if name not in known:
            raise PromptError(f'encoder_inputs: "{spec.name}" models have no {name!r}.{suggest(str(name), known)}')
    features = {}
    for name, function in known.items():
        what = f'encoder_inputs["{name}"]'
        features[name] = call_plugin(spec, what, function, given.get(name), token_ids, view)
        if not hasattr(features[name], "shape"):
            raise PluginError(f"{what} of {spec.known_as} returned {type(features[name]).__name__}, no tensor")
    return features
