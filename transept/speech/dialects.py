"""Other programs' JSON transcripts as the dict that `Transcript.from_dict` reads.

It knows Transept's and openai-whisper's files, OpenAI's verbose and diarized JSON, WhisperX's words without blanks and
times, faster-whisper's segments in a list, whisper.cpp's milliseconds, and the chunks of transformers' pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transept.errors import ParameterError
from transept.speech.fields import is_number
from transept.speech.sentences import ends_sentence
from transept.speech.word_breaks import UNSPACED_SCRIPTS

OF_A_LIST = ("id", "seek", "start", "end", "text")  # first fields of faster-whisper's named tuples
OF_A_WORD = ("start", "end", "word", "probability")
FORMS = "an object with segments, or a list of segments"


def transcript_dict(value: Any) -> dict[str, Any]:
    """Return a transcript's dict. value: of a JSON file. Raises ParameterError for an unknown form."""
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, Mapping):
        raise ParameterError(f"it is not a transcript: its JSON is not {FORMS}", param="file")
    found = dict(value)
    if "segments" not in found:
        found["segments"] = _segments_under_other_names(found)
    segments = found["segments"]
    if not isinstance(segments, list):
        return found  # from_dict refuses it, and names the field
    segments = [_object(each) for each in segments]
    if isinstance(found.get("words"), list):
        segments = _with_words(segments, found["words"])
    found["segments"] = with_blanks([_with_timed_words(each) for each in segments])
    info = found.get("info")
    if isinstance(info, Mapping):  # faster-whisper's
        found = {"language": info.get("language"), "duration": info.get("duration"), **found}
    return found


def _segments_under_other_names(found: dict[str, Any]) -> list[Any]:
    """Return the segments of whisper.cpp, of transformers' pipeline, or of OpenAI's words alone."""
    if isinstance(chunks := found.get("chunks"), list):
        return [_segment_of_chunk(each) for each in chunks]
    if isinstance(listed := found.get("transcription"), list):
        found.setdefault("language", _of(found.get("result"), "language"))
        return [_segment_of_offsets(each) for each in listed]
    if isinstance(words := found.get("words"), list) and words:
        return _sentences(words)
    raise ParameterError(f"it is not a transcript: its JSON is not {FORMS}", param="file")


def _segment_of_chunk(chunk: Any) -> Any:
    """Return a segment of transformers' pipeline, whose end may be unknown."""
    times = _of(chunk, "timestamp")
    if not isinstance(times, list) or len(times) != 2:
        return chunk
    start, end = times
    return {"start": start, "end": start if end is None else end, "text": chunk.get("text")}


def _segment_of_offsets(segment: Any) -> Any:
    """Return a segment of whisper.cpp, with times in seconds."""
    start, end = (_of(_of(segment, "offsets"), name) for name in ("from", "to"))
    if not (is_number(start) and is_number(end)):
        return segment
    return {"start": start / 1000, "end": end / 1000, "text": segment.get("text")}


def _object(segment: Any) -> Any:
    """Return a segment as a dict. Older versions of faster-whisper write each segment as a list."""
    if not isinstance(segment, list) or len(segment) < len(OF_A_LIST):
        return segment
    found = dict(zip(OF_A_LIST, segment, strict=False))
    words = [each for each in segment[len(OF_A_LIST) :] if isinstance(each, list) and each and _are_lists(each)]
    if words:
        found["words"] = [dict(zip(OF_A_WORD, word, strict=False)) for word in words[-1]]
    return found


def _sentences(words: Sequence[Any]) -> list[Any]:
    """Return segments that begin at words after a sentence's end; `_with_words` gives them the words."""
    segments: list[Any] = []
    for word in words:
        if not isinstance(word, Mapping) or not {"word", "start", "end"} <= word.keys():
            return list(words)
        if not segments or ends_sentence(str(segments[-1]["text"])):
            segments.append({"start": word["start"], "text": ""})
        text = str(word["word"])
        segments[-1] |= {"end": word["end"], "text": f"{segments[-1]['text']} {text.strip()}"}
    return segments


def _with_words(segments: list[Any], words: Sequence[Any]) -> list[Any]:
    """Assign OpenAI's words, a list beside the segments, to the segments by their times."""
    usable = all(is_number(_of(each, "start")) for each in (*segments, *words))
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
    """Return a segment whose words all have times within it, and the blanks of its text before them.

    WhisperX gives no times to words that its aligner does not know, such as numbers. These words get the time between
    their neighbours.
    """
    words = segment.get("words") if isinstance(segment, Mapping) else None
    if not isinstance(words, list) or not all(isinstance(_of(each, "word"), str) for each in words):
        return segment
    start, end, text = segment.get("start"), segment.get("end"), segment.get("text")
    if not (is_number(start) and is_number(end) and isinstance(text, str) and end >= start):
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
        if not _is_timed(word):
            rest = words[index:]
            untimed = next((number for number, each in enumerate(rest) if _is_timed(each)), len(rest))
            ahead = rest[untimed]["start"] if untimed < len(rest) else end
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


def _are_lists(values: Sequence[Any]) -> bool:
    return all(isinstance(each, list) for each in values)


def _is_timed(word: Any) -> bool:
    return is_number(_of(word, "start")) and is_number(_of(word, "end"))
