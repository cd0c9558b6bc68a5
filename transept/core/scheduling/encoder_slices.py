"""EncoderSlices: how many encoder layers a step computes beside requests that decode, for which all of them wait.

Asked by the scheduler. The engine core reports how long steps take.
"""

from __future__ import annotations

from dataclasses import dataclass

from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import Encode

# Encoder tokens that any step may encode whole: reading the weights takes about as long for one token as for so many.
WHOLE_TOKENS = 64
NEWEST_SHARE = 0.25  # of a step in the mean of those before it


@dataclass
class EncodeUnderWay:
    """An encode that takes several steps. Its request holds blocks, and has no rows until the last of them.

    num_layers: computed so far.
    """

    group: SequenceGroup
    encode: Encode
    num_layers: int

    def writes_for(self, group: SequenceGroup) -> bool:
        """True if another group has the same input, so that it waits for what this encode writes."""
        return group.content_key is not None and group.content_key == self.group.content_key


class EncoderSlices:
    """Sizes of slices: fixed, or such that a slice takes about as long as the step would without it.

    num_layers: of the model's encoder; 1 if an executor computes them all at once. layers_per_step: of one input in a
        step in which requests decode; None: by measured times.
    """

    def __init__(self, num_layers: int, layers_per_step: int | None = None) -> None:
        self.num_layers = max(num_layers, 1)
        self._layers_per_step = layers_per_step
        self._decode_seconds: float | None = None  # of a step without encodes
        self._work_seconds: float | None = None  # of a layer's work for one token

    def layers(self, num_tokens: int, num_computed: int, work: int) -> int:
        """Return how many further layers of an input a step may compute; 0: the input waits for another step.

        num_computed: layers of this input that earlier steps computed. work: of encoders in the step so far, in layers
        times tokens.
        """
        left = self.num_layers - num_computed
        most = self._most_layers(num_tokens, work)
        if most >= left:
            return left
        return 0 if work else max(most, 1)

    def ended(self, work: int, decodes: bool, seconds: float) -> None:
        """Note the time of a step. work: of its encoders, in layers times tokens. decodes: whether requests decoded."""
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
