"""Masks of grammars: the tokens that may continue each sequence, for the sampler.

A mask is a function of the grammar and of a sequence's output tokens. The states of the last steps are cached by these
tokens, so a step advances each state by one token. Preemption, forks, beams, drafts and ranks need not carry a state: a
missing one is computed from the grammar's first state.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.core.kernels.transfer import to_device, upload
from transept.core.request.grammars import DEAD, SIMPLER, Grammars
from transept.core.request.guided import Grammar, Guide
from transept.core.scheduling.step import SequenceData
from transept.errors import RequestFailedError, shown

ENDS = re.compile(f"^{DEAD}|satisfy the grammar")  # no token continues the text, or its last one breaks its grammar
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
        self._buffer = self._penalties[:0]  # of all rows; new memory in each step costs more time than its values

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
        grammars: dict[Guide, Grammar] = {}
        lines = []
        for given, data, num_before in rows:
            guide = given.guide if isinstance(given, Grammar) else given
            if guide not in grammars:
                grammars[guide] = self._grammars.latest(given)
            lines.append(keys.setdefault((guide, (*data.output_token_ids[num_before:],)), len(keys)))
        words = np.zeros((len(keys), grammars[guide].num_words), np.int32)
        renewed: set[Guide] = set()
        for key in self._compute(keys, grammars, words):
            self._compute_anew(key, keys, grammars, words, renewed)
        codes = words.view(np.uint8)  # [masks, bytes], 8 tokens in each
        is_complete = _bit(codes, self._grammars.end)
        for token in ends:
            byte, bit = token >> 3, np.uint8(1 << (token & 7))
            codes[:, byte] = np.where(is_complete, codes[:, byte] | bit, codes[:, byte] & ~bit)
        rows_of_codes = codes if len(keys) == len(rows) else codes[lines]
        places = to_device(torch.from_numpy(rows_of_codes), self.device).int().view(-1)
        if len(self._buffer) < len(places):
            self._buffer = self._penalties.new_empty(len(places), 8)
        penalties = torch.index_select(self._penalties, 0, places, out=self._buffer[: len(places)])
        logits += penalties.view(len(rows), -1)[:, : logits.shape[1]]

    def _compute(self, keys: Mapping[State, int], grammars: Mapping[Guide, Grammar], words: Any) -> list[State]:
        """Compute masks into words [masks, 32-bit words], on several threads. keys: each with its line of the masks.

        Returns the states that reached the limits. A text that breaks its grammar or ends in it has an empty mask.
        """
        from llguidance import LLExecutor
        from llguidance.numpy import fill_next_token_bitmask_par

        if self._executor is None:
            self._executor = LLExecutor(torch.get_num_threads())
        matchers = {key: self._matcher(grammars[key[0]], key) for key in keys}
        valid = [(matcher, keys[key]) for key, matcher in matchers.items() if not matcher.is_error()]
        if valid:
            fill_next_token_bitmask_par(self._executor, valid, words)
        at_limits = []
        for key, matcher in matchers.items():
            if matcher.is_error():
                words[keys[key]] = 0
                if not ENDS.search(matcher.get_error()):
                    at_limits.append(key)
        return at_limits

    def _compute_anew(
        self,
        key: State,
        keys: Mapping[State, int],
        grammars: dict[Guide, Grammar],
        words: Any,
        renewed: set[Guide],
    ) -> None:
        """Compute a mask with a grammar that is compiled anew, since its automaton has reached the limits.

        renewed: guides that earlier rows have compiled anew; it may have reached the limits again. A row fails if it
        reaches them alone, so that its result does not depend on other rows.
        """
        guide = key[0]
        for is_new in (False, True) if guide in renewed else (True,):
            if is_new:
                for each in [each for each in self._matchers if each[0] == guide]:
                    del self._matchers[each]
                grammars[guide] = self._grammars.anew(guide)
                renewed.add(guide)
            if not self._compute({key: keys[key]}, grammars, words):
                return
        self._matchers.pop(key, None)
        raise RequestFailedError(
            f"guided holds {shown(guide.text)} as its {guide.kind}, which is too complex: the tokens that may come "
            f"next are not found within the limits. {SIMPLER}"
        )

    def _matcher(self, grammar: Grammar, key: State) -> Any:
        """Return the matcher after some tokens, in error if they break the grammar. Callers must not advance it."""
        guide, tokens = key
        found = self._matchers.get(key)
        if found is None:
            before = self._matchers.get((guide, tokens[:-1])) if tokens else None
            found = (grammar.start if before is None else before).deep_copy()
            if found.consume_tokens(list(tokens if before is None else tokens[-1:])):
                self._matchers[key] = found
                self._matchers.pop((guide, tokens[: -MOST_EARLIER - 1]), None)
                if len(self._matchers) > MOST_STATES:
                    self._matchers.popitem(last=False)
        return found


def _bit(codes: Any, number: int) -> Any:
    """Return a bit of each row of bytes, as booleans."""
    return (codes[:, number >> 3] >> (number & 7) & 1).astype(bool)
