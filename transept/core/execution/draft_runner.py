"""DraftRunner: a smaller model of the same vocabulary, whose tokens are the drafts of a step.

The model runner calls it in each step, before the target decodes. The draft model has its own cache, with as many
blocks as the target's. Both use the same block tables, so each token has the same slot in both, and scheduling, forks,
swaps and preemption of the target serve the draft model, too. A draft changes no result, so a wrong one costs only
time.

In a step, the scheduling side leaves PENDING in place of the tokens of a draft, and this class replaces them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from transept.core.execution.checked_model import CheckedModel
from transept.core.execution.decoder_runner import DecoderRunner
from transept.core.execution.drawn import SamplingRow
from transept.core.execution.encoder_runner import EncoderRunner
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.model_adapters import ModelAdapters
from transept.core.execution.rows import DecodeRows
from transept.core.execution.sampler import Sampler
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.scheduling.step import PENDING, BlockMoves, BlockTable, Encode, SequenceData, SequenceGroupMetadata
from transept.registry.spec import ModelSpec

MOST_KNOWN = 4096  # sequences whose cached tokens are remembered; any other is computed from its first token

logger = logging.getLogger(__name__)


@dataclass
class _Proposal:
    """A draft in the making. count: of its tokens. tokens: of the sequence, then of the draft."""

    group: SequenceGroupMetadata
    seq_id: int
    data: SequenceData
    table: BlockTable
    count: int
    tokens: list[int]
    drafted: list[int] = field(default_factory=list)


class DraftRunner:
    """Runs a draft model on one device.

    cache: of its layers, with as many blocks as the target's. sampler: not the target's, since a sampler keeps the
    state of its last call. cross_attentions: see EncoderRunner. encodes: True if it has its own encoder; else the
    target's encoder runner also writes this model's keys and values.
    """

    def __init__(
        self,
        spec: ModelSpec,
        model: ForConditionalGeneration,
        cache: KVCache,
        block_size: int,
        sampler: Sampler,
        cross_attentions: Sequence[MakesKeysAndValues | None],
        encodes: bool,
    ) -> None:
        checked, adapters = CheckedModel(spec, model), ModelAdapters(model, 1)
        self.cache, self.cross_attentions = cache, cross_attentions
        self.decoder = DecoderRunner(checked, cache, block_size, adapters)
        self.encoder = EncoderRunner(checked, cross_attentions, cache, block_size, adapters) if encodes else None
        self.shape = self.decoder.shape
        self._block_size, self._sampler = block_size, sampler
        # Tokens whose keys and values are in the cache: the sequence's tokens, then the tokens of its last draft.
        self._cached: dict[int, tuple[int, list[int]]] = {}
        self._has_failed = False

    def move(self, moves: BlockMoves) -> None:
        """Move blocks as in the target's cache."""
        self.cache.move(moves)
        self.cache.wait()  # the target's encoder runner may write here

    def encode(self, encodes: Sequence[Encode]) -> None:
        """Encode the inputs that the target has encoded, unless the encoder is shared. Raises the model's errors."""
        if self.encoder is None:
            return
        bound = self.shape.max_source_positions
        chosen = [
            replace(each, adapter=None)
            for each in encodes
            if each.num_layers is None and each.pooling is None and (bound is None or each.inputs.num_tokens <= bound)
        ]
        self.encoder(chosen, {})

    def propose(self, groups: Sequence[SequenceGroupMetadata]) -> None:
        """Replace the PENDING tokens of drafts, a pass for each place. Raises errors of the model and of processors."""
        for group in groups:
            if group.is_prefill:  # into new blocks
                for seq_id in group.seq_data:
                    self._cached.pop(seq_id, None)
        proposals = [*_pending(groups)]
        place, active = 0, proposals
        while active:
            rows = DecodeRows()
            for each in active:
                num_cached = len(each.tokens) - 1 if place else self._num_cached(each)
                rows.add_uncached(
                    each.group, each.table, each.tokens, num_cached, self._block_size, self.decoder.most_spans
                )
            for each, token in zip(active, self._chosen(self.decoder.logits(rows), active), strict=True):
                each.tokens.append(token)
                each.drafted.append(token)
            place += 1
            active = [each for each in active if each.count > place]
        for each in proposals:
            each.data.draft_token_ids[:] = each.drafted
            self._cached.pop(each.seq_id, None)
            self._cached[each.seq_id] = each.data.num_tokens, each.drafted[:-1]
        for seq_id in [*self._cached][:-MOST_KNOWN]:
            del self._cached[seq_id]

    def give_up(self, groups: Sequence[SequenceGroupMetadata], error: Exception) -> None:
        """Fill the drafts of a step with some token after an exception, which is logged once."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning("the draft model failed in a step, which has no drafts", exc_info=error)
        self._cached.clear()
        for each in _pending(groups):
            each.data.draft_token_ids[:] = [0] * each.count

    def _num_cached(self, proposal: _Proposal) -> int:
        """Return the number of first tokens whose keys and values are in the cache. At least one token is not."""
        num_tokens, drafted = self._cached.get(proposal.seq_id, (0, []))
        for token, drafted_token in zip(proposal.tokens[num_tokens:], drafted, strict=False):
            if token != drafted_token:
                break
            num_tokens += 1
        return min(num_tokens, len(proposal.tokens) - 1)

    def _chosen(self, logits: Tensor, proposals: Sequence[_Proposal]) -> list[int]:
        """Choose the next token of each draft, as the request's tokens are chosen: by the same draws and rules."""
        rows = []
        for each in proposals:
            data = replace(each.data, output_token_ids=each.data.output_token_ids + each.drafted, draft_token_ids=[])
            rows.append(SamplingRow(each.seq_id, data, each.group.sampling_params, 1))
        tokens: dict[int, int] = {}
        for chosen in self._sampler(logits, rows):
            numbers = chosen.tokens[:, 0].tolist()
            tokens.update((row.seq_id, number) for row, number in zip(chosen.rows, numbers, strict=True))
        size = self.shape.vocab_size
        return [token if 0 <= (token := tokens[each.seq_id]) < size else 0 for each in proposals]


def _pending(groups: Sequence[SequenceGroupMetadata]) -> Iterator[_Proposal]:
    """Yield the drafts whose tokens are PENDING."""
    for group in groups:
        for seq_id, data in group.seq_data.items():
            if PENDING in data.draft_token_ids:
                table, count = group.block_tables[seq_id], len(data.draft_token_ids)
                yield _Proposal(group, seq_id, data, table, count, data.token_ids)
