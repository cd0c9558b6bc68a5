"""Drafting: gives sequences their drafts in a step, and learns from their acceptance and from the times of steps.

The scheduler calls `add_drafts` once it has decided a step, and the engine core reports the results. Drafts take only
rows and blocks that nothing else needs, and their blocks are free again before the next step of their request. So a
draft neither delays nor preempts a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import NamedTuple

from transept.core.config import SchedulerConfig
from transept.core.model_shape import ModelShape
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.draft_lengths import DraftLengths
from transept.core.scheduling.drafter import NUM_STRENGTHS, Drafter, TextDrafter
from transept.core.scheduling.in_flight import Participant, SchedulerOutputs
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata

MOST_ROWS = 32  # whose logits a step with drafts computes, unless max_num_seqs is larger
SHORTEST_PROMPT = 9  # tokens; see MOST_PROMPT_ROWS of the decoder runner
LONGEST_DRAFT = 16  # tokens
MISSES = 8  # steps without a draft after which a GPU's next step need not wait for the tokens
LOOK_AHEAD = 32  # steps after which it waits again


class ModelDrafter(Drafter):
    """The draft model computes the tokens in the step itself. Until then, PENDING stands for each."""

    of_model = True
    strength = NUM_STRENGTHS - 1

    def propose(self, prompt: Seq[int], output: Seq[int], most: int) -> list[int]:
        """See Drafter."""
        return [PENDING] * most


class _Offer(NamedTuple):
    """A draft that a sequence may get. group: its request."""

    group: SequenceGroup
    seq: Sequence
    drafter: Drafter
    tokens: list[int]


class Drafting:
    """The drafts of one engine.

    vocab_size: of the decoder; the encoder's tokens may have larger ids. model_shape: of the draft model; None without
    one. Requests without `draft` and `draft_tokens` have the draft model's drafts.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.vocab_size = 1 << 62  # set by Engine
        self.model_shape: ModelShape | None = None  # likewise
        self._lengths = DraftLengths()

    def needs_tokens(self, group: SequenceGroup) -> bool:
        """True if the group's tokens must be known before its next step is scheduled."""
        drafters = (seq.drafter for seq in group.unfinished_seqs)
        return (group.draft_text is not None or self._model_drafts(group)) and any(
            each is None or (not each.num_resting and each.num_misses % LOOK_AHEAD < MISSES) for each in drafters
        )

    def add_drafts(
        self, outputs: SchedulerOutputs, running: Iterable[SequenceGroup], manager: BlockSpaceManager
    ) -> None:
        """Add drafts to sequences of a step, which has room for them. running: groups that hold blocks."""
        decodes = outputs.step.decodes
        outputs.num_seqs = sum(len(each.seq_data) for each in decodes)
        outputs.only_decodes = not outputs.step.encodes and not any(each.is_prefill for each in decodes)
        offers = [*self._offers(each for each in outputs.waiting if _takes_draft(each.part))]
        if not offers:
            return
        room = min(
            self._config.max_decoder_tokens - sum(each.num_rows for each in decodes),
            max(MOST_ROWS, self._config.max_num_seqs) - outputs.num_seqs,
        )
        reserve = sum(len(group.seqs) for group in running)
        adapts = [each.group.sampling_params.draft_length is None for each in offers]
        lengths = [0 if adaptive else len(each.tokens) for each, adaptive in zip(offers, adapts, strict=True)]
        chosen = self._lengths.choose(
            [each.drafter for each in offers],
            [len(each.tokens) if adaptive else 0 for each, adaptive in zip(offers, adapts, strict=True)],
            outputs.num_seqs,
            max(0, room - sum(lengths)),
        )
        for offer, *added in zip(offers, lengths, chosen, strict=True):
            most = min(room, sum(added))
            most = manager.append_draft_slots(offer.seq, most, reserve) if most > 0 else 0
            offer.seq.draft_token_ids[:] = offer.tokens[:most]
            room -= most
            outputs.num_draft_tokens += most
            outputs.num_model_tokens += most if offer.drafter.of_model else 0

    def _model_drafts(self, group: SequenceGroup) -> bool:
        """True if the draft model may draft for a group: it has no text, and its input is not too long."""
        shape = self.model_shape
        if shape is None or group.draft_text is not None or group.beam_search is not None:
            return False
        return shape.max_source_positions is None or group.num_cross_tokens <= shape.max_source_positions

    def _offers(self, parts: Iterable[Participant[SequenceGroupMetadata]]) -> Iterable[_Offer]:
        """Yield the drafts that the sequences of a step may have."""
        for group, part, _ in parts:
            params, text = group.sampling_params, group.draft_text
            if text is None and (part.is_prefill or not self._model_drafts(group)):
                continue
            for seq in group.unfinished_seqs:
                if seq.drafter is None:
                    seq.drafter = ModelDrafter() if text is None else TextDrafter(text)
                drafter = seq.drafter
                drafter.num_misses += 1
                if drafter.num_resting:
                    drafter.num_resting -= 1
                    continue
                if seq.output_token_ids and seq.output_token_ids[-1] == PENDING:
                    continue
                most = LONGEST_DRAFT if params.draft_length is None else params.draft_length
                if params.max_tokens is not None:  # a draft does not reach the last token
                    most = min(most, params.max_tokens - len(seq.output_token_ids) - 1)
                if drafter.of_model and self.model_shape and self.model_shape.max_target_positions is not None:
                    most = min(most, self.model_shape.max_target_positions + 1 - seq.num_tokens)
                tokens = drafter.propose(seq.prompt_token_ids, seq.output_token_ids, most) if most > 0 else []
                if not tokens:
                    continue
                ends = (*params.stop_token_ids, *(() if params.ignore_eos else params.eos_token_ids or ()))
                ends_at = (place for place, token in enumerate(tokens) if token in ends or token >= self.vocab_size)
                del tokens[next(ends_at, len(tokens)) :]
                if tokens:
                    drafter.num_misses = 0
                    yield _Offer(group, seq, drafter, tokens)

    def judged(self, seq: Sequence, num_drawn: int) -> int:
        """Record how many tokens of a draft were accepted, and return its length. num_drawn: the step's tokens."""
        drafter, num_drafted = seq.drafter, len(seq.draft_token_ids)
        assert drafter is not None
        self._lengths.judged(drafter, drafter.strength, num_drafted, num_drawn - 1)
        return num_drafted

    def ended(self, outputs: SchedulerOutputs, seconds: float) -> None:
        """Record a step's time."""
        if outputs.only_decodes and outputs.num_seqs:
            of_model = outputs.num_model_tokens
            self._lengths.ended(outputs.num_seqs, outputs.num_draft_tokens - of_model, of_model, seconds)


def _takes_draft(part: SequenceGroupMetadata) -> bool:
    """True if a request may have a draft in its part of a step; False until its samples have forked.

    A short prompt has no draft, because it is computed like the tokens of other requests.
    """
    return part.num_samples == 1 and (not part.is_prefill or part.num_rows >= SHORTEST_PROMPT)


def drop_drafts(groups: Iterable[SequenceGroup]) -> None:
    """Remove the drafts of a step that is computed again, in case one of them made it fail."""
    for group in groups:
        for seq in group.unfinished_seqs:
            seq.draft_token_ids.clear()
