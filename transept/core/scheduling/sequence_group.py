"""SequenceGroup: a request as the scheduler sees it. Made by the engine core from prepared requests."""

from __future__ import annotations

from collections.abc import Iterator

from transept.core.request.generation_defaults import num_forced_tokens
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompt_probe import ProbeResult
from transept.core.scheduling.beam_groups import BeamGroups
from transept.core.scheduling.beam_sampling import BeamSampling
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.drafter import text_of_drafts
from transept.core.scheduling.keyword_search import MOST_SEQS, ContinuesWord, KeywordSearch, follows_keywords, never
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.step import BlockTable, SequenceData, SequenceGroupMetadata
from transept.errors import TranseptError


class SequenceGroup:
    """One request: its static encoder sequence and its decoder sequences.

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
        self.arrival = arrival
        self.beam_search: BeamSearch | None = None
        num_forced = num_forced_tokens(inputs.decoder.token_ids, params.forced_bos_token_id)
        if follows_keywords(params):
            self.beam_search = KeywordSearch(params, num_forced, most_seqs, continues_word)
        elif params.beam_search:
            kind = BeamSampling if params.draws_beams else BeamGroups if params.diverse_beams else BeamSearch
            self.beam_search = kind(params, num_forced)
        self.draft_text = None if self.beam_search is not None else text_of_drafts(params, inputs.encoder)
        self.probe_result: ProbeResult | None = None  # set by EngineCore if the request asks for one
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
        """Key of the encoder's input, see EncoderInputs."""
        return self.encoder_seq.inputs.encoder.content_key

    @property
    def finished(self) -> bool:
        """True if no sequence of the request gets more tokens."""
        return all(seq.finished for seq in self.seqs)

    @property
    def max_num_seqs(self) -> int:
        """Maximum number of sequences that the group may have."""
        width = self.beam_search.width if isinstance(self.beam_search, KeywordSearch) else 1
        return max(self.sampling_params.n, self.sampling_params.num_beams or 1, width, len(self.seqs))

    @property
    def num_samples(self) -> int:
        """Number of tokens to choose from each sequence's logits in the next step."""
        if self.beam_search is not None:
            return self.beam_search.num_candidates
        unforked = len(self.seqs) == 1 and not self.seqs[0].output_token_ids
        return self.sampling_params.n if unforked else 1

    def described(
        self, is_prefill: bool, encode_id: int | None, block_tables: dict[int, BlockTable], cross_table: BlockTable
    ) -> SequenceGroupMetadata:
        """Return the group's part of a step. block_tables: of the unfinished sequences."""
        inputs, params = self.encoder_seq.inputs.encoder, self.sampling_params
        not_repeated = inputs.token_ids if params.encoder_no_repeat_ngram_size else ()
        return SequenceGroupMetadata(
            request_id=self.request_id,
            is_prefill=is_prefill,
            encode_id=encode_id,
            num_encoder_tokens=inputs.num_tokens,
            seq_data={
                seq.seq_id: SequenceData(
                    seq.prompt_token_ids, seq.output_token_ids, seq.sample_index, not_repeated, seq.draft_token_ids
                )
                for seq in self.unfinished_seqs
            },
            sampling_params=params,
            num_samples=self.num_samples,
            block_tables=block_tables,
            cross_block_table=cross_table,
        )
