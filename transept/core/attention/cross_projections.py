"""CrossProjections: how a decoder's layers make keys and values of an encoder's output, learnt from watching a step.

With it they can be written without the decoder, whose layers then take new requests as they take those that decode.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Project = Callable[[Tensor], tuple[Tensor, Tensor]]  # encoder's output -> keys and values, of one layer


class CrossProjections:
    """What the layers do in one call of the decoder. encoder_hidden: what it is called with."""

    def __init__(self, encoder_hidden: Tensor) -> None:
        self._encoder_hidden = encoder_hidden
        self._calls: list[tuple[Project, Tensor]] = []
        self._is_same = True

    def add(self, encoder_hidden: Tensor, project: Project, kv_cache: Tensor) -> None:
        """A layer makes keys and values of this, for its cache."""
        self._is_same &= encoder_hidden is self._encoder_hidden
        self._calls.append((project, kv_cache))

    def of_layers(self, kv_caches: list[Tensor]) -> list[tuple[Project, Tensor]]:
        """Each layer's projection and cache; none where a layer was not seen, or made them of something else."""
        written = [kv_cache.data_ptr() for _, kv_cache in self._calls]
        if self._is_same and sorted(written) == sorted(kv_cache.data_ptr() for kv_cache in kv_caches):
            return self._calls
        return []
