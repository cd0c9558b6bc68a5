"""StopChecker: decides when a decoder sequence ends, and detokenizes it."""

from __future__ import annotations

from typing import Any

from transept.core.request.guided import DEAD_END
from transept.core.request.keywords import is_unspaced
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import End
from transept.core.scheduling.growing_text import INCOMPLETE
from transept.core.scheduling.sequence import Sequence, SequenceStatus
from transept.errors import RequestFailedError

NO_NUMBERS = (
    "no token can be chosen: the logits are NaN. Check that weights and input are finite, that the model does not "
    "overflow (in float16, the largest number is 65,504: try float32 or bfloat16), and that options and logits "
    "processors do not forbid every token"
)


class StopChecker:
    """Decides after each token whether its sequence has ended, and updates the sequence's text.

    tokenizer: None for a checkpoint without one; texts are then empty.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self.tokenizer = tokenizer
        # Slow tokenizers may depend on distant tokens: Moses' detokenizer counts quotation marks.
        self._decodes_locally = bool(getattr(tokenizer, "is_fast", False))

    def check(self, seq: Sequence, params: SamplingParams) -> None:
        """Set status and stop_reason after a new token, and output_text if the sequence ends."""
        end = self.end(seq.output_token_ids[-1], len(seq.output_token_ids), params)
        if end is not None:
            seq.status, seq.stop_reason = end
        elif params.stop_at_repetition and ends_in_repetition(seq.output_token_ids, params.stop_at_repetition):
            seq.status = SequenceStatus.STOPPED
        if params.stop or seq.finished:
            self.complete_text(seq, params)

    def end_of_beam(self, beam: Sequence, token: int, params: SamplingParams) -> End | None:
        """Return the status and stop_reason of a beam that ends with one more token; None if it does not end."""
        if not params.stop:
            return self.end(token, len(beam.output_token_ids) + 1, params)
        if self._decodes_locally:
            self.update_text(beam, params)  # so that the longer beam decodes only its last tokens
        longer = beam.fork(beam.seq_id, 0)
        longer.output_token_ids.append(token)
        self.check(longer, params)
        return (longer.status, longer.stop_reason) if longer.finished else None

    def end(self, token: int, num_tokens: int, params: SamplingParams) -> End | None:
        """Return the status and stop_reason of a sequence that ends with this token; None if it does not end.

        num_tokens: number of its new tokens, including this one. Stop strings are not considered. At max_tokens,
        forced_eos_token_id sets the token, so the end is the length limit and not the model's choice.
        """
        full = params.max_tokens is not None and num_tokens >= params.max_tokens
        if full and params.forced_eos_token_id:
            return SequenceStatus.LENGTH, None
        if token in (params.eos_token_ids or ()) and not params.ignore_eos:
            return SequenceStatus.STOPPED, None
        if token in params.stop_token_ids and num_tokens > (params.min_tokens or 0):
            return SequenceStatus.STOPPED, token
        return (SequenceStatus.LENGTH, None) if full else None

    def continues_word(self, last: int, token: int) -> bool:
        """Return True if a token adds letters or digits to the word that the token `last` ends."""
        if self.tokenizer is None:
            return False
        before, both = (self.tokenizer.decode(each, skip_special_tokens=True) for each in ([last], [last, token]))
        added = both[len(before) : len(before) + 1]
        return added.isalnum() and not is_unspaced(added)

    def complete_text(self, seq: Sequence, params: SamplingParams) -> None:
        """Update the text. If it has a stop string, cut the text there, and set status and stop_reason."""
        self.update_text(seq, params)
        if params.stop and len(seq.output_token_ids) > (params.min_tokens or 0):
            self._cut_at_stop_string(seq, params)

    def update_text(self, seq: Sequence, params: SamplingParams) -> None:
        """Decode the sequence's output into output_text, without an incomplete last character unless it has ended."""
        if seq.finished or not self._decodes_locally:
            text = self._decode(seq.output_token_ids, params)
        else:
            text = seq.growing_text.of(seq.output_token_ids, lambda token_ids: self._decode(token_ids, params))
        seq.output_text = text if seq.finished else text.rstrip(INCOMPLETE)

    def _cut_at_stop_string(self, seq: Sequence, params: SamplingParams) -> None:
        text = seq.output_text
        if not any(stop in text for stop in params.stop):
            return
        # A stop string that ends within the first min_tokens tokens never counts.
        first = seq.output_token_ids[: params.min_tokens or 0]
        early = len(self._decode(first, params).rstrip(INCOMPLETE))
        found = [(text.find(stop, max(0, early - len(stop) + 1)), stop) for stop in params.stop]
        found = [(cut, stop) for cut, stop in found if cut >= 0]
        if found:
            cut, seq.stop_reason = min(found)
            seq.output_text = text[:cut]
            seq.status = SequenceStatus.STOPPED

    def _decode(self, token_ids: list[int], params: SamplingParams) -> str:
        if self.tokenizer is None or not token_ids or not params.detokenize:
            return ""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=params.skip_special_tokens))


def ends_in_repetition(tokens: list[int], shortest: int) -> bool:
    """True if the last `shortest` tokens or more are the same as those directly before them."""
    sizes = range(shortest, len(tokens) // 2 + 1)
    return any(tokens[-1] == tokens[-1 - size] and tokens[-size:] == tokens[-2 * size : -size] for size in sizes)


def no_token(params: SamplingParams) -> RequestFailedError:
    """Return the error of a request for which no token can be chosen."""
    return RequestFailedError(NO_NUMBERS if params.guided is None else DEAD_END)
