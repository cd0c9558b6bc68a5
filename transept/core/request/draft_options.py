"""Options of drafts: where a request's drafts come from, and how long they are. docs/decoding.md explains drafts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from transept.core.request import sampling_values as values
from transept.options import Option

MAX_DRAFT_LENGTH = 64
GivenDraft: TypeAlias = Sequence[int] | str

DRAFT_MODEL = Option(
    "a smaller model with the same vocabulary and kind of input, whose tokens are drafts",
    "A name as for `model`. Requests with `draft` or `draft_tokens` use these instead.",
    metavar="NAME",
    wanted="a directory, a name or None",
    parse=lambda _, given: os.fspath(given) if isinstance(given, os.PathLike) else given,
    also="os.PathLike[str]",
)
DRAFT = Option(
    "where to look for the next tokens: lookup, in the encoder's text and the output so far",
    "A step computes several tokens of a draft at once, and keeps those that it would have chosen one by one. So "
    "results are the same without drafts. Beam searches refuse it, and searches for keywords ignore it.",
    metavar="NAME",
)
DRAFT_TOKENS = Option(
    "a text, or its token ids, that the output probably repeats in large parts, as a draft",
    "For example, an earlier version of the output. It is used instead of a lookup.",
    metavar="TEXT",
    wanted="a text or a list of token ids",
    parse=values.text_or_token_ids,  # the input processor tokenizes a text
    also="str",
)
DRAFT_LENGTH = Option(
    "tokens of a draft that a step computes at most",
    "None: as many as save time, by measured times and acceptance. A number: always this many, if there is room.",
    metavar="N",
    default="as many as save time",
    ge=1,
    le=MAX_DRAFT_LENGTH,
)
