"""EncoderSlices: limits the encoder layers of a step with decoding requests, which wait for all of them.

The scheduler asks for the number of layers. The engine core reports how long steps take.
"""

from __future__ import annotations

from dataclasses import dataclass

from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import Encode

# Encoder tokens that any step may encode in full: a layer takes about as long for one token as for so many.
WHOLE_TOKENS = 64
NEWEST_SHARE = 0.25  # weight of the newest step in the moving average


@dataclass
class EncodeUnderWay:
    """An encode that takes several steps. Its request holds blocks, and has no rows before the last of these steps.

    num_layers: layers computed so far.
    """

    group: SequenceGroup
    encode: Encode
    num_layers: int

    def writes_for(self, group: SequenceGroup) -> bool:
        """True if another group has the same input, so that it waits for this encode."""
        return group.content_key is not None and group.content_key == self.group.content_key


class EncoderSlices:
    """Sizes of encodes' parts: fixed, or chosen so that a part takes about as long as the rest of the step.

    num_layers: of the model's encoder; 1 if every encode takes one step. layers_per_step: layers of one input in a step
        with decoding requests; None: by measured times.
    """

    def __init__(self, num_layers: int, layers_per_step: int | None = None) -> None:
        self.num_layers = max(num_layers, 1)
        self._layers_per_step = layers_per_step
        self._decode_seconds: float | None = None  # of a step without encodes
        self._work_seconds: float | None = None  # of a layer's work for one token

    def layers(self, num_tokens: int, num_computed: int, work: int) -> int:
        """Return the number of further layers of an input that a step may compute; 0: the input waits.

        num_computed: layers of this input that earlier steps computed. work: of the step's other encodes, in layers
        times tokens.
        """
        remaining = self.num_layers - num_computed
        most = self._most_layers(num_tokens, work)
        return remaining if most >= remaining else 0 if work else max(most, 1)

    def ended(self, work: int, decodes: bool, seconds: float) -> None:
        """Record a step's time. work: of its encodes, in layers times tokens. decodes: True if requests decoded."""
        if work:
            seconds = (seconds - (self._decode_seconds or 0)) / work
            if seconds > 0:
                self._work_seconds = _mean(self._work_seconds, seconds)
        elif decodes:
            self._decode_seconds = _mean(self._decode_seconds, seconds)

    def _most_layers(self, num_tokens: int, work: int) -> int:
        if self._layers_per_step is not None:
            return 0 if work else self._layers_per_step
        room = 0.0
        if self._decode_seconds is not None and self._work_seconds is not None:
            room = self._decode_seconds / self._work_seconds
        return int(max(room, WHOLE_TOKENS * self.num_layers) - work) // max(num_tokens, 1)


def _mean(mean: float | None, newest: float) -> float:
    return newest if mean is None else mean + NEWEST_SHARE * (newest - mean)
