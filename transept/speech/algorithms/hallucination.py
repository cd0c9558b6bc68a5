"""Skip hallucinated words and the silence around them, in sequential mode.

The rule is openai-whisper's (``hallucination_silence_threshold`` in its ``transcribe.py``): in silence, a model writes
words that are improbable, very short or very long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from transept.speech.algorithms.segmentation import CutWindow
from transept.speech.algorithms.source import Source, Window
from transept.speech.options import APPEND_PUNCTUATIONS, PREPEND_PUNCTUATIONS
from transept.speech.segments import Segment, Word

PUNCTUATION = PREPEND_PUNCTUATIONS + APPEND_PUNCTUATIONS
WORDS_JUDGED = 8  # the first ones of a segment
IMPROBABLE = 0.15
SHORTEST_CREDIBLE, LONGEST_CREDIBLE = 0.133, 2.0  # seconds of a word
SHORTNESS_WEIGHT = 15  # per second
DOUBTFUL = 3.0  # score of a segment; the number of its words if that is lower
SCORE_TOLERANCE = 0.01
NEAR = 2.0  # seconds from the edge of a window within which silence is taken for granted
SMALLEST_STEP = 1.0  # seconds from one window's start to the next one's


def last_word_end(segments: Sequence[Segment], otherwise: float) -> float:
    """Return the end of the last word, or of the last segment if no word is timed; `otherwise` without segments."""
    for segment in reversed(segments):
        if segment.words:
            return segment.words[-1].end
    return segments[-1].end if segments else otherwise


def believable(cut: CutWindow, window: Window, source: Source, last_speech: float) -> CutWindow:
    """Return the segments to keep of a window with timed words; the last word sets the start of the next window.

    source: the recording. last_speech: seconds at which the last word before this window ends.
    """
    fps, threshold = source.model.fps, source.options.hallucination_silence_threshold
    offset, window_end = window.start / fps, (window.start + source.chunk) / fps  # seconds
    spoken = last_word_end(cut.segments, offset)
    if not cut.ends_in_silence and spoken > offset:
        rest_is_short = threshold is not None and window_end - spoken <= threshold
        cut = dataclasses.replace(cut, next_start=window.end if rest_is_short else round(spoken * fps))
    if threshold is not None:
        cut = _without_hallucinations(cut, window, source, threshold, last_speech)
    return dataclasses.replace(cut, next_start=max(cut.next_start, window.start + 1))


def _without_hallucinations(
    cut: CutWindow, window: Window, source: Source, threshold: float, last_speech: float
) -> CutWindow:
    """Drop the segments from the first hallucinated one on, and skip the silence around it.

    threshold: seconds of silence. A window that begins with silence and hallucinated words is skipped.
    """
    fps = source.model.fps
    offset, window_end = window.start / fps, (window.start + source.chunk) / fps
    first = _with_words(cut.segments)
    if first is not None and _is_anomalous(first):
        gap = first.start - offset
        if gap > threshold:
            return CutWindow([], window.start + round(gap * fps), cut.ends_in_silence, is_skipped=True)

    last_end = last_speech
    for index, segment in enumerate(cut.segments):
        if not segment.words:
            continue
        if _is_anomalous(segment):
            following = _with_words(cut.segments[index + 1 :])
            following_start = offset + window.size / fps
            if following is not None and following.words:
                following_start = following.words[0].start
            silence_before = (
                segment.start - last_end > threshold or segment.start < threshold or segment.start - offset < NEAR
            )
            silence_after = (
                following_start - segment.end > threshold or _is_anomalous(following) or window_end - segment.end < NEAR
            )
            if silence_before and silence_after:
                next_start = round(max(offset + SMALLEST_STEP, segment.start) * fps)
                if source.seconds - segment.end < threshold:
                    next_start = source.num_frames
                return dataclasses.replace(cut, segments=cut.segments[:index], next_start=next_start)
        last_end = segment.end
    return cut


def _with_words(segments: Sequence[Segment]) -> Segment | None:
    return next((segment for segment in segments if segment.words), None)


def _is_anomalous(segment: Segment | None) -> bool:
    """True if the first words of a segment look hallucinated, by their total score."""
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
