"""TextEmbedding: a document as a vector, from the output of a text model's encoder. Its job runs one encode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit
from transept.core.request.inputs import PreparedRequest
from transept.core.request.pooling import Pooling
from transept.core.request.prompts import Request
from transept.errors import TranseptError
from transept.text.job import TextJob, make_job
from transept.text.options import EmbeddingOptions
from transept.text.scoring import ONE_TOKEN


@dataclass(frozen=True, eq=False)
class TextEmbedding:
    """A document's embedding.

    embedding: float32 [hidden size]; with pooling="none" [tokens, hidden size].
    token_ids: the tokens that the encoder read, with the special ones.
    truncated: True if the document's end was cut off.
    error: the error of a document that failed; its embedding is then empty. Else None.
    """

    embedding: npt.NDArray[np.float32]
    token_ids: list[int]
    truncated: bool = False
    error: TranseptError | None = None

    @classmethod
    def failed(cls, error: TranseptError) -> TextEmbedding:
        """Return the embedding of a document that failed."""
        return cls(np.empty(0, np.float32), [], error=error)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict, ready for JSON, with the error as a string, ``"PromptError: ..."``."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return {**vars(self), "embedding": self.embedding.tolist(), "error": error}


class Embedder:
    """Embeds documents.

    options: of EmbeddingOptions. Raises ParameterError for a bad one.
    """

    def __init__(self, engine: Engine, options: Mapping[str, Any]) -> None:
        self.engine = engine
        given = {**vars(EmbeddingOptions(**options))}
        self.pooling = Pooling(given.pop("pooling"), given.pop("normalize"))
        self.job: TextJob = make_job(engine, given.pop("task"), {**given, **ONE_TOKEN}, can_chunk=False)

    def embed_for(self, document: str | list[int]) -> Job:
        """A job whose result is a TextEmbedding. document: a text, or the encoder's tokens.

        Raises PromptError for a bad document, CapacityError.
        """
        truncated, request = yield Offload(partial(self._prepared, document))
        (output,) = yield Submit([request])
        return TextEmbedding(output.embedding, output.encoder_prompt_token_ids, truncated)

    def _prepared(self, document: str | list[int]) -> tuple[bool, PreparedRequest]:
        """Return whether the document was truncated, and the request that encodes it."""
        encoder = self.job.encoder
        encoded = encoder.of_tokens(document) if isinstance(document, list) else encoder(document)
        prompt: Any = {"prompt_tokens": encoded.prompts[0], "encoder_inputs": self.job.encoder_inputs}
        return encoded.truncated, self.engine.inputs(Request(prompt, pooling=self.pooling, lora=self.job.lora))
