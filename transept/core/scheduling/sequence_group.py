"""SequenceGroup: a request as the scheduler sees it. Made by the engine core from prepared requests."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transept.core.request.generation_defaults import num_forced_tokens
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompt_probe import ProbeResult
from transept.core.scheduling.beam_groups import BeamGroups
from transept.core.scheduling.beam_sampling import BeamSampling
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.drafter import text_of_drafts
from transept.core.scheduling.keyword_search import MOST_SEQS, ContinuesWord, KeywordSearch, follows_keywords, never
from transept.core.scheduling.sequence import Sequence, SequenceStatus
from transept.core.scheduling.step import BlockTable, SequenceData, SequenceGroupMetadata
from transept.errors import RequestFailedError, TranseptError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


NOT_FINITE = (
    "the embedding is not finite. Check that weights and input are finite, and that the model does not overflow (in "
    "float16, the largest number is 65,504: try float32 or bfloat16)"
)


class SequenceGroup:
    """One request: its static encoder sequence and its decoder sequences.

    A request that only encodes has `pooling`. Its one decoder sequence has no token, and stands for its state: it takes
    part in no decode, and ends when its encode does. It holds no blocks.

    seq_ids: ids for its sequences. arrival: the scheduler serves lower numbers first. most_seqs, continues_word: of a
    KeywordSearch.
    """

    def __init__(
        self,
        request_id: str,
        request: PreparedRequest,
        seq_ids: Iterator[int],
        arrival: int,
        most_seqs: int = MOST_SEQS,
        continues_word: ContinuesWord = never,
    ) -> None:
        inputs, params = request.inputs, request.sampling_params
        self.request_id = request_id
        self.seqs = [Sequence(next(seq_ids), inputs)]  # the engine core forks samples, and forks and drops beams
        self.encoder_seq = Sequence(next(seq_ids), inputs, from_decoder_prompt=False)
        self.sampling_params = params
        self.pooling = request.pooling
        self.adapter = request.adapter
        self.adapter_slot: int | None = None  # set by the scheduler while it runs, if it has an adapter
        self.arrival = arrival
        self.deadline = math.inf if params.max_time is None else time.monotonic() + params.max_time
        self.beam_search: BeamSearch | None = None
        num_forced = num_forced_tokens(inputs.decoder.token_ids, params.forced_bos_token_id)
        if follows_keywords(params):
            self.beam_search = KeywordSearch(params, num_forced, most_seqs, continues_word)
        elif params.beam_search:
            kind = BeamSampling if params.draws_beams else BeamGroups if params.diverse_beams else BeamSearch
            self.beam_search = kind(params, num_forced)
        self.draft_text = None if self.beam_search is not None else text_of_drafts(params, inputs.encoder)
        self.probe_result: ProbeResult | None = None  # set by EngineCore if the request asks for one
        self.embedding: npt.NDArray[np.float32] | None = None  # set by EngineCore if the request only encodes
        self.error: TranseptError | None = None  # set by EngineCore if the request fails
        self.num_restarts = 0  # set by the scheduler: times it returned to the queue, which voids its steps in flight
        self.metadata: SequenceGroupMetadata | None = None  # of its last step, set by the scheduler; None if requeued

    @property
    def unfinished_seqs(self) -> list[Sequence]:
        """The decoder sequences that still get tokens. They and the cross table hold blocks."""
        return [seq for seq in self.seqs if not seq.finished]

    @property
    def is_urgent(self) -> bool:
        """True if the request goes before all that are not urgent; see EngineCore.add."""
        return self.arrival < 0

    @property
    def content_key(self) -> bytes | None:
        """Key of the encoder's input, see EncoderInputs; None for a request that only encodes: it shares no blocks."""
        return None if self.pooling is not None else self.encoder_seq.inputs.encoder.content_key

    @property
    def num_cross_tokens(self) -> int:
        """Number of tokens in the cross table: the length of the encoder's output, unless the request only encodes."""
        return 0 if self.pooling is not None else self.encoder_seq.num_tokens

    @property
    def finished(self) -> bool:
        """True if no sequence of the request gets more tokens."""
        return all(seq.finished for seq in self.seqs)

    @property
    def max_num_seqs(self) -> int:
        """Maximum number of sequences that the group may have in a decode."""
        if self.pooling is not None:
            return 0
        width = self.beam_search.width if isinstance(self.beam_search, KeywordSearch) else 1
        return max(self.sampling_params.n, self.sampling_params.num_beams or 1, width, len(self.seqs))

    @property
    def num_samples(self) -> int:
        """Number of tokens to choose from each sequence's logits in the next step."""
        if self.beam_search is not None:
            return self.beam_search.num_candidates
        unforked = len(self.seqs) == 1 and not self.seqs[0].output_token_ids
        return self.sampling_params.n if unforked else 1

    def end_encode(self, embedding: npt.NDArray[np.float32]) -> None:
        """End a request that only encodes. Raises RequestFailedError if its embedding is not finite."""
        if not math.isfinite(abs(embedding).max(initial=0.0)):
            raise RequestFailedError(NOT_FINITE)
        self.embedding = embedding
        for seq in self.unfinished_seqs:
            seq.status = SequenceStatus.STOPPED

    def described(
        self, is_prefill: bool, encode_id: int | None, block_tables: dict[int, BlockTable], cross_table: BlockTable
    ) -> SequenceGroupMetadata:
        """Return the group's part of a step. block_tables: of the unfinished sequences."""
        inputs, params = self.encoder_seq.inputs.encoder, self.sampling_params
        encoder_tokens = inputs.token_ids if params.reads_encoder_tokens else ()
        return SequenceGroupMetadata(
            request_id=self.request_id,
            is_prefill=is_prefill,
            encode_id=encode_id,
            num_encoder_tokens=inputs.num_tokens,
            seq_data={
                seq.seq_id: SequenceData(
                    seq.prompt_token_ids, seq.output_token_ids, seq.sample_index, encoder_tokens, seq.draft_token_ids
                )
                for seq in self.unfinished_seqs
            },
            sampling_params=params,
            num_samples=self.num_samples,
            block_tables=block_tables,
            cross_block_table=cross_table,
            adapter=self.adapter_slot,
        )
