"""suppress_numerals and suppress_regex: which tokens they keep away, and what a recording says without them."""

import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transept import Transcriber
from transept.errors import ParameterError
from transept.speech import tokenizer
from transept.speech.options import TranscriptionOptions

PATTERN = r" ?[Pp]ress"


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def menu(speech_dir: Path) -> Path:
    """Press 1 to accept this call or 2 to reject it."""
    return speech_dir / "prompts-en" / "followme__options.flac"


def suppressed(transcriber: Transcriber, **options: Any) -> set[int]:
    return set(transcriber.model.tokenizer.suppressed_tokens(TranscriptionOptions(**options)))


def test_numerals_are_those_of_whisperx_and_digits_of_other_scripts(transcriber: Transcriber) -> None:
    tokenizer = transcriber.model.tokenizer
    by_whisperx = {
        token for token in tokenizer.text_tokens if any(c in "0123456789%$£" for c in tokenizer.decode([token]))
    }
    found = suppressed(transcriber, suppress_numerals=True, suppress_tokens=())
    assert by_whisperx <= found
    assert {tokenizer.decode([token]).strip() for token in found - by_whisperx} <= set("¢¥²³¹¼½¾€٠١٢٣٤٥٦७०१२३")
    assert suppressed(transcriber, suppress_numerals=True) == found | suppressed(transcriber)


def test_a_regular_expression_matches_whole_tokens(transcriber: Transcriber) -> None:
    encode = transcriber.model.tokenizer.encode
    expected = {encode(text)[0] for text in ("press", "Press", " press", " Press")}
    assert suppressed(transcriber, suppress_regex=PATTERN, suppress_tokens=None) == expected
    assert suppressed(transcriber, suppress_regex=PATTERN) == expected | suppressed(transcriber)
    assert suppressed(transcriber, suppress_regex="", suppress_tokens=()) == set()


@pytest.mark.parametrize(
    "mode", [{"quality": "fast"}, {"batched": True}, {"beam_size": 2}], ids=["auto", "batched", "beams"]
)
def test_numbers_are_written_as_words(transcriber: Transcriber, menu: Path, mode: dict[str, Any]) -> None:
    assert transcriber.transcribe(menu, **mode).text == "Press 1 to accept this call or 2 to reject it."
    in_words = transcriber.transcribe(menu, suppress_numerals=True, **mode).text
    assert in_words == "Press one to accept this call or two to reject it."


def test_what_matches_is_not_said(transcriber: Transcriber, menu: Path) -> None:
    transcript = transcriber.transcribe(menu, suppress_regex=PATTERN)
    assert transcript.text
    assert "press" not in transcript.text.lower()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "suppress_regex is not a regular expression: missing \\)"),
        ("a{99999999999}", "suppress_regex is not a regular expression"),
        ("(" * 400 + ")" * 400, "suppress_regex is not a regular expression"),
        ("x" * 1001, "1001 characters; 1000 are the most"),
        (5, "suppress_regex must be text"),
    ],
)
def test_what_is_no_regular_expression(transcriber: Transcriber, pattern: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        transcriber.transcribe_many([], suppress_regex=pattern)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pattern", [".*", r"(?s).*", r" ?\w+|.*", r".*[^\W].*"])
def test_an_expression_that_leaves_nothing_to_say_is_told(transcriber: Transcriber, menu: Path, pattern: str) -> None:
    with pytest.raises(ParameterError, match="suppress_regex matches every token with a letter"):
        transcriber.transcribe(menu, suppress_regex=pattern)
    assert transcriber.transcribe(menu, suppress_regex=r" ?[A-Z].*").text  # but for one that leaves much


def test_an_expression_that_would_match_forever_is_given_up(transcriber: Transcriber, menu: Path) -> None:
    with pytest.raises(ParameterError, match="suppress_regex takes more than 2 s"):
        transcriber.transcribe(menu, suppress_regex="(?e)(?:abcdefgh){e<=7}" * 40)
    assert transcriber.transcribe(menu).text


def test_the_time_of_other_programs_is_not_an_expressions(
    transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=count(0, 60).__next__, thread_time=time.thread_time)
    monkeypatch.setattr(tokenizer, "time", clock)  # of a machine on which a minute passes from line to line
    monkeypatch.setattr(tokenizer, "SHORTEST_TIMEOUT", 1e-9)
    assert suppressed(transcriber, suppress_regex=r" ?[Cc]all") > suppressed(transcriber)
