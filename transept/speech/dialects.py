"""Other programs' JSON transcripts as the dict that `Transcript.from_dict` reads.

Known are Transept's and openai-whisper's files, OpenAI's verbose and diarized JSON, WhisperX's words without blanks and
times, faster-whisper's segments in a list, whisper.cpp's milliseconds, and the chunks of transformers' pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transept.errors import ParameterError
from transept.speech.word_breaks import UNSPACED_SCRIPTS

OF_A_LIST = ("id", "seek", "start", "end", "text")  # first fields of faster-whisper's named tuples
OF_A_WORD = ("start", "end", "word", "probability")
SENTENCE_MARKS = (".", "!", "?", "。", "！", "？")  # noqa: RUF001  full-width marks are meant
FORMS = "an object with segments, or a list of segments"


def transcript_dict(value: Any) -> dict[str, Any]:
    """Return a transcript's dict. value: of a JSON file. Raises ParameterError if it is no known form."""
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, Mapping):
        raise ParameterError(f"it is not a transcript: its JSON is not {FORMS}", param="file")
    found = dict(value)
    if "segments" not in found:
        found["segments"] = _listed_elsewhere(found)
    segments = found["segments"]
    if not isinstance(segments, list):
        return found  # which from_dict refuses, with the field's name
    segments = [_object(each) for each in segments]
    if isinstance(found.get("words"), list):
        segments = _with_words(segments, found["words"])
    found["segments"] = with_blanks([_with_timed_words(each) for each in segments])
    info = found.get("info")
    if isinstance(info, Mapping):  # faster-whisper's
        found = {"language": info.get("language"), "duration": info.get("duration"), **found}
    return found


def _listed_elsewhere(found: dict[str, Any]) -> list[Any]:
    """Return the segments of whisper.cpp, of transformers' pipeline, or of OpenAI's words alone."""
    if isinstance(chunks := found.get("chunks"), list):
        return [
            {
                "start": each["timestamp"][0],
                "end": each["timestamp"][1] or each["timestamp"][0],
                "text": each.get("text"),
            }
            if isinstance(each, Mapping) and isinstance(each.get("timestamp"), list) and len(each["timestamp"]) == 2
            else each
            for each in chunks
        ]
    if isinstance(listed := found.get("transcription"), list):
        if isinstance(result := found.get("result"), Mapping):
            found.setdefault("language", result.get("language"))
        return [
            {
                "start": each["offsets"].get("from", 0) / 1000,
                "end": each["offsets"].get("to", 0) / 1000,
                "text": each.get("text"),
            }
            if isinstance(each, Mapping) and isinstance(each.get("offsets"), Mapping)
            else each
            for each in listed
        ]
    if isinstance(words := found.get("words"), list) and words:
        return _sentences(words)
    raise ParameterError(f"it is not a transcript: its JSON is not {FORMS}", param="file")


def _object(segment: Any) -> Any:
    """Return a segment, or one of faster-whisper's, which is a list in files of its older versions, as a dict."""
    if not isinstance(segment, list) or len(segment) < len(OF_A_LIST):
        return segment
    found = dict(zip(OF_A_LIST, segment, strict=False))
    words = [
        each for each in segment[len(OF_A_LIST) :] if isinstance(each, list) and each and isinstance(each[0], list)
    ]
    if words:
        found["words"] = [dict(zip(OF_A_WORD, word, strict=False)) for word in words[-1]]
    return found


def _sentences(words: Sequence[Any]) -> list[Any]:
    """Return segments that begin at words after a sentence's end; `_with_words` gives them the words."""
    segments: list[Any] = []
    for word in words:
        if not isinstance(word, Mapping) or not {"word", "start", "end"} <= word.keys():
            return list(words)
        if not segments or str(segments[-1]["text"]).endswith(SENTENCE_MARKS):
            segments.append({"start": word["start"], "text": ""})
        text = str(word["word"])
        segments[-1] |= {"end": word["end"], "text": f"{segments[-1]['text']} {text.strip()}"}
    return segments


def _with_words(segments: list[Any], words: Sequence[Any]) -> list[Any]:
    """Give OpenAI's words, which are beside the segments, to the segments by their times."""
    usable = all(_is_number(_of(each, "start")) for each in (*segments, *words))
    if not usable or any(each.get("words") is not None for each in segments):
        return segments
    own: list[list[Any]] = [[] for _ in segments]
    index = 0
    for word in words:
        while index + 1 < len(segments) and word["start"] >= segments[index + 1]["start"]:
            index += 1
        own[index].append(word)
    return [{**segment, "words": theirs} for segment, theirs in zip(segments, own, strict=True)]


def _with_timed_words(segment: Any) -> Any:
    """Return a segment whose words all have times, within the segment, and the blanks that its text has before them.

    WhisperX has no times of words that its aligner does not know, such as numbers: they get the time between their
    neighbours.
    """
    words = segment.get("words") if isinstance(segment, Mapping) else None
    if not isinstance(words, list) or not all(isinstance(_of(each, "word"), str) for each in words):
        return segment
    start, end, text = segment.get("start"), segment.get("end"), segment.get("text")
    if not (_is_number(start) and _is_number(end) and isinstance(text, str) and end >= start):
        return segment
    timed: list[dict[str, Any]] = []
    place, done = 0, start
    for index, word in enumerate(words):
        spelt = word["word"]
        found = text.find(spelt.strip(), place)
        if found >= 0:
            place, begin = found + len(spelt.strip()), place
            if spelt[:1].strip() and text[begin:found].isspace():
                spelt = text[begin:found] + spelt
        times = {}
        if not _is_number(word.get("start")) or not _is_number(word.get("end")):
            ahead = next((each["start"] for each in words[index + 1 :] if _is_number(each.get("start"))), end)
            untimed = next(
                (n for n, each in enumerate(words[index:]) if _is_number(each.get("start"))), len(words) - index
            )
            times = {"start": done, "end": round(done + max(0.0, ahead - done) / untimed, 3)}
        word = {"probability": word.get("score"), **word, "word": spelt, **times}
        timed.append(word)
        done = word["end"]
    bounds = [each[name] for each in timed for name in ("start", "end")]
    return {**segment, "start": min([start, *bounds]), "end": max([end, *bounds]), "words": timed}


def with_blanks(segments: list[Any]) -> list[Any]:
    """Return the segments with a blank before each text, unless some have one, or the script has no blanks."""
    texts = [_of(each, "text") for each in segments]
    if not all(isinstance(text, str) for text in texts) or any(text[:1].isspace() for text in texts):
        return segments
    found = []
    for segment in segments:
        text = segment["text"]
        if text and not UNSPACED_SCRIPTS.match(text):
            segment = {**segment, "text": f" {text}"}
            words = segment.get("words")
            if isinstance(words, list) and words and isinstance(words[0], Mapping):
                first = {**words[0], "word": " " + str(words[0].get("word", "")).lstrip()}
                segment["words"] = [first, *words[1:]]
        found.append(segment)
    return found


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
