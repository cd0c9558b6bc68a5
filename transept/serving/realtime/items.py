"""Item: one utterance of a session, whose text grows until it is complete. Made by `session`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from transept.serving.realtime.events import OF_ITEM, event, new_id
from transept.serving.realtime.session_options import LOGPROBS, WORDS
from transept.speech.segments import Word
from transept.speech.word_breaks import may_break

LEAST_PROBABILITY = 1e-9  # so that its logarithm is a number


@dataclass
class Item:
    """An utterance. begin: seconds of the session's audio. is_committed: True once its audio is committed."""

    begin: float
    id: str = field(default_factory=lambda: new_id("item"))
    text: str = ""
    words: list[Word] = field(default_factory=list)
    is_committed: bool = False
    begins_anew: bool = False  # True if the next words begin a segment, and may lack a leading blank

    def delta(self, words: Sequence[Word], include: Sequence[str], offset: float) -> dict[str, Any] | None:
        """Add words, and return the event of their text; None without text. offset: seconds to add to their times."""
        text = "".join(word.word for word in words)
        if not self.text:
            text = text.lstrip()
        elif self.begins_anew and text and not may_break(self.text, text):
            text = f" {text}"
        if not text:
            return None
        self.begins_anew = False
        moved = [Word(word.start + offset, word.end + offset, word.word, word.probability) for word in words]
        self.text += text
        self.words += moved
        return self._event("delta", delta=text, **_included(moved, include))

    def tentative(self, text: str) -> dict[str, Any]:
        """Return the event of the text that may still change."""
        return self._event("tentative", text=text if self.text else text.lstrip())

    def completed(self, seconds: float, language: str | None, include: Sequence[str]) -> dict[str, Any]:
        """Return the event of the final text. seconds: of its audio."""
        fields: dict[str, Any] = {"languages": [{"code": language}]} if language is not None else {}
        usage = {"type": "duration", "seconds": round(max(0.0, seconds), 3)}
        return self._event("completed", transcript=self.text, usage=usage, **fields, **_included(self.words, include))

    def failed(self, error: dict[str, Any]) -> dict[str, Any]:
        """Return the event of a failure. error: as in the answers of the HTTP API."""
        return self._event("failed", error=error)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        return event(f"{OF_ITEM}.{kind}", item_id=self.id, content_index=0, **fields)


def _included(words: Sequence[Word], include: Sequence[str]) -> dict[str, Any]:
    """Return the fields that `include` adds. A logprob is the log of a word's mean token probability."""
    fields: dict[str, Any] = {}
    if LOGPROBS in include:
        fields["logprobs"] = [
            {
                "token": word.word,
                "logprob": round(math.log(max(word.probability, LEAST_PROBABILITY)), 4),
                "bytes": list(word.word.encode(errors="replace")),
            }
            for word in words
        ]
    if WORDS in include:
        fields["words"] = [
            {
                "word": word.word,
                "start": round(word.start, 3),
                "end": round(word.end, 3),
                "probability": round(word.probability, 4),
            }
            for word in words
        ]
    return fields
