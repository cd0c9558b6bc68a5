"""Words that look made up, and the silence around them that sequential mode skips.

A rule of openai-whisper (``hallucination_silence_threshold`` in its ``transcribe.py``): a model that hears silence
writes words that are improbable, very short or very long.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.speech.algorithms.segmentation import CutWindow, Window
from transept.speech.options import APPEND_PUNCTUATIONS, PREPEND_PUNCTUATIONS
from transept.speech.segments import Segment, Word
from transept.speech.speech_model import SpeechModel

PUNCTUATION = PREPEND_PUNCTUATIONS + APPEND_PUNCTUATIONS
WORDS_JUDGED = 8  # of a segment, its first
IMPROBABLE = 0.15
SHORTEST_CREDIBLE, LONGEST_CREDIBLE = 0.133, 2.0  # seconds of a word that nobody doubts
SHORTNESS_WEIGHT = 15  # per second
DOUBTFUL = 3.0  # score of a segment; where there are fewer words, their number
SCORE_TOLERANCE = 0.01
NEAR = 2.0  # seconds from the edge of a window within which silence is taken for granted
SMALLEST_STEP = 1.0  # seconds that the next window begins later at least


def last_word_end(segments: Sequence[Segment]) -> float | None:
    """Where the last word ends, or the last segment where there is no word; None without segments."""
    for segment in reversed(segments):
        if segment.words:
            return segment.words[-1].end
    return segments[-1].end if segments else None


def skip_hallucinations(
    cut: CutWindow,
    window: Window,
    model: SpeechModel,
    *,
    threshold: float,
    chunk: int,
    num_frames: int,
    last_speech: float,
) -> tuple[list[Segment] | None, int]:
    """The segments to keep and the frame of the next window.

    cut: the window with its words, next_start as they say. threshold: seconds of silence that are long. chunk: frames
    of a full window. num_frames: of the recording. last_speech: seconds at which the last word before this window ends.
    None for segments: the window begins with silence and words made up from it, and counts for nothing.
    """
    offset = window.start / model.fps
    window_end = (window.start + chunk) / model.fps
    first = _with_words(cut.segments)
    if first is not None and _is_anomalous(first):
        gap = first.start - offset
        if gap > threshold:
            return None, window.start + round(gap * model.fps)

    last_end = last_speech
    for index, segment in enumerate(cut.segments):
        if not segment.words:
            continue
        if _is_anomalous(segment):
            following = _with_words(cut.segments[index + 1 :])
            following_start = offset + window.size / model.fps
            if following is not None and following.words:
                following_start = following.words[0].start
            silence_before = (
                segment.start - last_end > threshold or segment.start < threshold or segment.start - offset < NEAR
            )
            silence_after = (
                following_start - segment.end > threshold or _is_anomalous(following) or window_end - segment.end < NEAR
            )
            if silence_before and silence_after:
                next_start = round(max(offset + SMALLEST_STEP, segment.start) * model.fps)
                if num_frames / model.fps - segment.end < threshold:
                    next_start = num_frames
                return cut.segments[:index], next_start
        last_end = segment.end
    return cut.segments, cut.next_start


def _with_words(segments: Sequence[Segment]) -> Segment | None:
    return next((segment for segment in segments if segment.words), None)


def _is_anomalous(segment: Segment | None) -> bool:
    """Whether the first words of a segment are too strange, all together, to have been said."""
    if segment is None or not segment.words:
        return False
    words = [word for word in segment.words if word.word not in PUNCTUATION][:WORDS_JUDGED]
    score = sum(_strangeness(word) for word in words)
    return score >= DOUBTFUL or score + SCORE_TOLERANCE >= len(words)


def _strangeness(word: Word) -> float:
    duration = word.end - word.start
    score = 1.0 if word.probability < IMPROBABLE else 0.0
    if duration < SHORTEST_CREDIBLE:
        score += (SHORTEST_CREDIBLE - duration) * SHORTNESS_WEIGHT
    if duration > LONGEST_CREDIBLE:
        score += duration - LONGEST_CREDIBLE
    return score
