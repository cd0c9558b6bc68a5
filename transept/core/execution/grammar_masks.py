"""Masks of grammars: the tokens that may continue each sequence, for the sampler.

A mask is a function of the grammar and of a sequence's output tokens. The states of the last steps are cached by these
tokens, so a step advances each state by one token. Preemption, forks, beams, drafts and ranks need not carry a state: a
missing one is computed from the grammar's first state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from transept.core.kernels.transfer import to_device, upload
from transept.core.request.grammars import DEAD, SIMPLER, Grammars
from transept.core.request.guided import Grammar, Guide
from transept.core.scheduling.step import SequenceData
from transept.errors import RequestFailedError, shown

MOST_STATES = 1024  # of all grammars, about 20 KB each; 1 MB after 448 tokens of a schema of 500 optional properties
MOST_EARLIER = 8  # states of a text's earlier tokens, for siblings and for rejected drafts

State = tuple[Guide, tuple[int, ...]]  # with the tokens written so far


class GrammarMasks:
    """Makes the masks of one device's sampler. grammars: of this process."""

    def __init__(self, device: torch.device, grammars: Grammars) -> None:
        self.device, self._grammars = device, grammars
        self._matchers: OrderedDict[State, Any] = OrderedDict()  # LLMatcher
        self._executor: Any = None  # llguidance's thread pool
        allowed = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
        self._penalties = upload(np.where(allowed, 0.0, -np.inf), device, torch.float32)  # of a byte's 8 tokens

    def forbid(
        self,
        logits: Tensor,
        rows: Sequence[tuple[Guide | Grammar, SequenceData, int]],
        ends: Sequence[int],
    ) -> None:
        """Set the logits of tokens that may not come next to minus infinity, in [rows, vocabulary].

        rows: grammar, sequence, and number of its first output tokens that do not belong to the text. ends: tokens that
        end a text; they may come where it is complete. A row that breaks its grammar, as a draft may, or that cannot
        continue is left without any token.
        Raises RequestFailedError for a grammar that is too complex.
        """
        keys: dict[State, int] = {}  # -> the line of the mask
        lines, matchers, num_words = [], [], 0
        for given, data, num_before in rows:
            grammar = self._grammars(given) if isinstance(given, Guide) else given
            num_words = grammar.num_words
            key = grammar.guide, (*data.output_token_ids[num_before:],)
            if key not in keys:
                keys[key] = len(keys)
                matcher = self._matcher(grammar, key)
                matchers += [] if matcher is None else [(matcher, keys[key])]
            lines.append(keys[key])
        words = np.zeros((len(keys), num_words), np.int32)
        by_line = [*keys]
        for _, line in self._compute(matchers, words):
            self._compute_anew(by_line[line], line, words)
        codes = words.view(np.uint8)  # [masks, bytes], 8 tokens in each
        is_complete = _bit(codes, self._grammars.end)
        for token in ends:
            byte, bit = token >> 3, np.uint8(1 << (token & 7))
            codes[:, byte] = np.where(is_complete, codes[:, byte] | bit, codes[:, byte] & ~bit)
        rows_of_codes = codes if len(keys) == len(rows) else codes[lines]
        penalties = embedding(to_device(torch.from_numpy(rows_of_codes), self.device).int(), self._penalties)
        logits += penalties.view(len(rows), -1)[:, : logits.shape[1]]

    def _compute_anew(self, key: State, line: int, words: Any) -> None:
        """Compile a grammar anew, whose automaton has reached its limits, and compute a mask. Drops its states."""
        guide = key[0]
        for each in [each for each in self._matchers if each[0] == guide]:
            del self._matchers[each]
        self._grammars.forget(guide)
        matcher = self._matcher(self._grammars(guide), key)
        words[line] = 0
        if matcher is not None and self._compute([(matcher, line)], words):
            del self._matchers[key]
            self._raise_complex(guide)

    def _matcher(self, grammar: Grammar, key: State) -> Any:
        """Return the matcher after some tokens; None if they break the grammar. Callers must not advance it."""
        guide, tokens = key
        found = self._matchers.get(key)
        if found is None:
            before = self._matchers.get((guide, tokens[:-1])) if tokens else None
            found = (grammar.start if before is None else before).deep_copy()
            new = tokens if before is None else tokens[-1:]
            if not found.consume_tokens(list(new)):
                if "satisfy the grammar" not in found.get_error():
                    self._raise_complex(guide)
                return None
            self._matchers[key] = found
            self._matchers.pop((guide, tokens[: -MOST_EARLIER - 1]), None)
            if len(self._matchers) > MOST_STATES:
                self._matchers.popitem(last=False)
        return found

    def _raise_complex(self, guide: Guide) -> NoReturn:
        self._grammars.forget(guide)
        raise RequestFailedError(
            f"guided holds {shown(guide.text)} as its {guide.kind}, which is too complex: the tokens that may come "
            f"next are not found within the limits. {SIMPLER}"
        )

    def _compute(self, matchers: list[tuple[Any, int]], words: Any) -> list[tuple[Any, int]]:
        """Compute masks into words [masks, 32-bit words], on several threads. matchers: each with its line.

        Returns the matchers that reached their limits. A text that no token continues has an empty mask.
        """
        from llguidance import LLExecutor
        from llguidance.numpy import fill_next_token_bitmask_par

        if self._executor is None:
            self._executor = LLExecutor(torch.get_num_threads())
        if matchers:
            fill_next_token_bitmask_par(self._executor, matchers, words)
        at_limits = []
        for matcher, line in matchers:
            if matcher.get_error().startswith(DEAD):
                words[line] = 0
            elif matcher.is_error():
                at_limits.append((matcher, line))
        return at_limits


def _bit(codes: Any, number: int) -> Any:
    """Return a bit of each row of bytes, as booleans."""
    return (codes[:, number >> 3] >> (number & 7) & 1).astype(bool)
