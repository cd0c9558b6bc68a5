"""Pooling: how an encoder's output becomes the embedding of a request that only encodes. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from transept.options import Option, declares_options, take_options


@declares_options("Pooling has no")
@dataclass(frozen=True)
class Pooling:
    """How the rows of an encoder's output, one for each token, become an embedding.

    The mean, the length of a row and the division by it are computed in float64. Embeddings are float32.

    Raises ParameterError for an unknown pooling.
    """

    pooling: Annotated[
        Literal["mean", "cls", "last", "max", "none"],
        Option(
            "how the encoder's output becomes one vector",
            "mean: over all tokens, with the special ones. cls: the first token's row. last: the last token's row. "
            "max: the largest number of each column. none: all rows.",
            group="embeddings",
        ),
    ] = "mean"
    normalize: Annotated[
        bool,
        Option("divide each vector by its length", group="embeddings", aliases=("normalize_embeddings",)),
    ] = False

    def __post_init__(self) -> None:
        take_options(self)
