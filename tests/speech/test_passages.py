"""Auto mode: recordings with pauses keep their speech, continuous ones come out as in sequential mode."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from recordings import RATE, joined
from whisper.normalizers import EnglishTextNormalizer

from transept import ParameterError, Transcriber, VadOptions
from transept.speech.algorithms import passages
from transept.speech.algorithms.passages import LONGEST_PASSAGE, SLACK
from transept.speech.algorithms.second_hearing import SecondHearing, believed, gaps_within
from transept.speech.algorithms.segmentation import after_silence
from transept.speech.algorithms.sequential import decode_stretch
from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import AttendedWord, Segment, Word
from transept.speech.vad.spans import Span

CLIPS = ("austen-0870", "austen-0880", "austen-0890", "austen-0920")
TRANSCRIPTS = Path(__file__).parents[1] / "data" / "speech" / "librivox" / "transcripts.json"
PAUSES = (12.0, 0.6, 19.0, 8.0, 26.0)  # seconds, around the clips


@pytest.fixture(scope="module")
def tiny(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[np.ndarray]:
    return [soundfile.read(speech_dir / "librivox" / f"{name}.flac", dtype="float32")[0] for name in CLIPS]


@pytest.fixture(scope="module")
def with_pauses(clips: list[np.ndarray]) -> np.ndarray:
    """Four sentences with pauses before, between and after them, over a faint noise."""
    pauses = [np.zeros(int(seconds * RATE), np.float32) for seconds in PAUSES]
    parts = [part for clip, pause in zip(clips, pauses, strict=False) for part in (pause, clip)]
    waveform = np.concatenate([*parts, pauses[-1]])
    return waveform + np.random.default_rng(0).normal(0, 0.0005, len(waveform)).astype(np.float32)


def speech_of(clips: list[np.ndarray]) -> list[tuple[float, float]]:
    """Seconds at which each clip begins and ends in `with_pauses`."""
    found, position = [], 0.0
    for clip, pause in zip(clips, PAUSES, strict=False):
        begin = position + pause
        position = begin + len(clip) / RATE
        found.append((begin, position))
    return found


def test_pauses_cost_no_speech_and_bring_none(
    tiny: Transcriber, clips: list[np.ndarray], with_pauses: np.ndarray
) -> None:
    transcript = tiny.transcribe(with_pauses, word_timestamps=True)
    alone = " ".join(tiny.transcribe(clip, mode="sequential").text for clip in clips)
    assert _errors(transcript.text) <= _errors(alone)
    assert not transcript.missed_speech
    spoken = speech_of(clips)
    for segment in transcript.segments:
        for word in segment.words:
            assert any(begin - 0.5 < word.start < word.end < end + 0.5 for begin, end in spoken)
    assert [segment.start for segment in transcript.segments] == sorted(each.start for each in transcript.segments)


def test_the_same_without_words(tiny: Transcriber, clips: list[np.ndarray], with_pauses: np.ndarray) -> None:
    for segment in tiny.transcribe(with_pauses).segments:
        assert min(abs(segment.start - begin) for begin, _ in speech_of(clips)) < 0.5 or any(
            begin < segment.start < end for begin, end in speech_of(clips)
        )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1.0, 3.0), (1.0, 3.0)),  # within the first sentence
        ((0.2, 3.0), (0.9, 3.0)),  # begins in the silence before it
        ((4.7, 6.8), (19.9, 21.0)),  # begins with the end of the first, says the second
        ((4.2, 6.8), (4.2, 21.0)),  # has some of the first
        ((1.0, 6.0), (1.0, 5.5)),  # ends with the beginning of the second
        ((1.0, 5.7), (1.0, 5.5)),  # ends in the silence before the second
        ((1.0, 6.95), (1.0, 21.15)),  # has more of the second
        ((7.35, 8.1), (21.9, 22.3)),  # one word between silences
    ],
)
def test_segments_begin_and_end_with_their_speech(given: tuple[float, float], expected: tuple[float, float]) -> None:
    """Seconds in the sound of a passage, in which 15 s of silence are 0.8, and in the recording."""
    seconds = [(1.0, 5.0), (20.0, 21.5), (22.0, 22.3)]
    spans = tuple(Span(round(begin * RATE), round(end * RATE)) for begin, end in seconds)
    kept = (Span(0, round(5.4 * RATE)), Span(round(19.6 * RATE), 24 * RATE))
    recording = np.zeros(24 * RATE, np.float32)
    timeline = passages.PassageTimeline(passages.Passage(recording, spans, kept, None), fps=100)
    segment = Segment(0, 0, *given, " text", [1], 0.0, 0.0, 1.0, 0.0)
    restored = timeline.restored(segment)
    assert (restored.start, restored.end) == pytest.approx(expected, abs=0.06)


def test_a_recording_without_long_silence_is_decoded_as_in_sequential_mode_with_words(
    tiny: Transcriber, speech_dir: Path
) -> None:
    recording = joined(speech_dir / "librivox")
    auto = tiny.transcribe(recording, refine_word_times=False)
    sequential = tiny.transcribe(recording, mode="sequential", quality="balanced", word_timestamps=True)
    with_words = tiny.transcribe(recording, word_timestamps=True, refine_word_times=False)
    assert [dataclasses.replace(each, words=None) for each in with_words.segments] == auto.segments
    assert auto.text == sequential.text
    assert [each.tokens for each in auto.segments] == [each.tokens for each in sequential.segments]
    last = len(recording) / RATE
    assert [each.end for each in auto.segments] == [min(each.end, round(last, 2)) for each in sequential.segments]
    assert all(one.start >= other.start for one, other in zip(auto.segments, sequential.segments, strict=True))


def test_passages_are_decoded_as_alone_in_order_and_beside_other_recordings(
    tiny: Transcriber, speech_dir: Path, with_pauses: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "LONGEST_PASSAGE", 10.0)
    recording = joined(speech_dir / "librivox")
    alone = [tiny.transcribe(each, temperature=0.0) for each in (recording, with_pauses)]
    together = list(tiny.transcribe_many([recording, with_pauses, recording], temperature=0.0))
    assert together == [*alone, alone[0]]
    with tiny.stream(recording, temperature=0.0) as stream:
        assert list(stream) == alone[0].segments
    for one, other in pairwise(alone[0].segments):
        assert one.end <= other.start + 1.0
        assert one.seek <= other.seek


def test_speech_that_no_segment_covers_is_named_from_a_second_and_a_half_on(
    tiny: Transcriber, clips: list[np.ndarray]
) -> None:
    pause = np.zeros(5 * RATE, np.float32)
    recording = np.concatenate([pause, clips[1], pause])  # 2.5 s of speech
    unheard = {"no_speech_threshold": 0.0, "logprob_threshold": 0.0, "temperature": 0.0}  # every window is silence
    for mode in ("auto", "sequential", "batched"):
        ((begin, end),) = tiny.transcribe(recording, mode=mode, **unheard).missed_speech
        assert 4.5 < begin < 6.0
        assert 1.5 < end - begin < 4.0


def test_a_long_word_is_shortened_and_leaves_a_gap() -> None:
    words = [Word(0.0, 0.4, " one", 1.0), Word(0.4, 2.4, " two", 1.0), Word(2.4, 6.0, " three", 1.0)]
    segment = Segment(0, 0, 0.0, 8.0, " one two three four", [1], 0.0, 0.0, 1.0, 0.0, words=words)
    assert believed(segment).words[:2] == words[:2]
    assert (believed(segment).words[2].end, believed(segment).end) == (2.7, 2.7)
    followed = dataclasses.replace(segment, words=[*words, Word(6.0, 8.0, " four", 1.0)])
    assert gaps_within(followed) == []
    assert gaps_within(believed(followed)) == [(2.7, 6.0)]
    assert believed(followed).end == 8.0
    without = dataclasses.replace(segment, words=None)
    assert (believed(without), gaps_within(without)) == (without, [])


def test_speech_that_a_text_leaves_out_between_words_is_decoded_again(
    tiny: Transcriber, clips: list[np.ndarray]
) -> None:
    """The text of three sentences lacks the second, whose speech its last word before covers."""
    recording = np.concatenate(clips[:3])
    first, last = (len(np.concatenate(clips[:number])) / RATE for number in (1, 2))
    options = TranscriptionOptions(word_timestamps=True)
    whole = tiny.transcribe(recording, word_timestamps=True)
    words = [word for segment in whole.segments for word in segment.words]
    before = [word for word in words if word.end < first + 0.3]
    after = [word for word in words if word.start > last - 0.3]
    before[-1] = dataclasses.replace(before[-1], end=after[0].start)
    text = "".join(word.word for word in [*before, *after])
    tokens = tiny.model.tokenizer.encode(text)
    given = dataclasses.replace(whole.segments[0], text=text, tokens=tokens, words=[*before, *after])
    speech = [Span(0, len(recording))]
    source = Source(tiny.model, options, tiny.model.features(recording), recording, "en", speech)

    def found_by(second: SecondHearing, segment: Segment) -> list[Segment]:
        ((_, found),) = tiny.engine.runner.run([second.with_gaps_filled(segment, segment.end)], max_jobs=1)
        return found

    second = SecondHearing(source, decode_stretch)
    found = found_by(second, believed(given))
    assert found[0].text + found[-1].text == text
    assert found[0].tokens + found[-1].tokens == tokens
    normalize = EnglishTextNormalizer()
    (said,) = (entry["text"] for entry in json.loads(TRANSCRIPTS.read_text()) if CLIPS[1] in entry["audio"])
    again = normalize(" ".join(each.text for each in found[1:-1]))
    assert jiwer.wer(normalize(said), again) < 0.5
    assert found[0].end < first < found[1].end <= found[-1].start + 0.02
    assert second.missed == []

    told = SecondHearing(dataclasses.replace(source, speech=None), decode_stretch)  # sequential mode
    assert found_by(told, believed(given)) == [believed(given)]
    ((begin, end),) = told.missed
    assert begin < first + 0.5
    assert end > last - 1.0


@pytest.mark.parametrize(
    "invented", ["", " This is what he said. This is what he said."], ids=["nothing", "repetition"]
)
def test_a_sentence_that_is_left_out_from_its_middle_on_is_decoded_again_from_its_begin(
    tiny: Transcriber, clips: list[np.ndarray], invented: str
) -> None:
    """The text ends with the second word of the second sentence, which alignment stretches over the rest."""
    pause = np.zeros(RATE // 2, np.float32)
    recording = np.concatenate([clips[1], pause, clips[0]])
    begin, end = (len(clips[1]) + len(pause)) / RATE, len(recording) / RATE
    words = [
        word for segment in tiny.transcribe(recording, word_timestamps=True).segments for word in segment.words or ()
    ]
    first = [word for word in words if word.end < begin + 0.2]
    kept = words[: len(first) + 2]
    text = "".join(word.word for word in kept)
    given = Segment(0, 0, 0.0, kept[-1].end, text, tiny.model.tokenizer.encode(text), 0.0, 0.0, 1.0, 0.0, words=kept)
    speech = [Span(0, len(clips[1])), Span(len(clips[1]) + len(pause), len(recording))]
    options = TranscriptionOptions(word_timestamps=True)
    source = Source(tiny.model, options, tiny.model.features(recording), recording, "en", speech)

    def forgetful(source: Source, stretch: tuple[float, float]) -> Any:
        """Leave out speech that begins in the middle of a sentence, or make up text for it, as models do."""
        if stretch[0] < kept[-1].end:
            return (yield from decode_stretch(source, stretch))
        tokens = tiny.model.tokenizer.encode(invented)
        return [Segment(0, 0, *stretch, invented, tokens, 0.0, -0.9, 1.0, 0.0)]

    second = SecondHearing(source, forgetful)
    ((_, found),) = tiny.engine.runner.run([second.with_gaps_filled(given, end)], max_jobs=1)
    assert found[0].text == "".join(word.word for word in first)
    normalize = EnglishTextNormalizer()
    (said,) = (entry["text"] for entry in json.loads(TRANSCRIPTS.read_text()) if CLIPS[0] in entry["audio"])
    assert jiwer.wer(normalize(said), normalize("".join(each.text for each in found[1:]))) < 0.3
    assert found[0].end <= begin <= found[1].start + 0.3
    assert second.missed == []


def test_a_quiet_sentence_between_loud_ones_is_heard(tiny: Transcriber, clips: list[np.ndarray]) -> None:
    """At -40 dB voice activity detection misses it after the first sentence; noise of that level stays silence."""
    pause = np.zeros(RATE // 2, np.float32)
    noise = np.random.default_rng(2).normal(0, 0.001, len(clips[2])).astype(np.float32)

    def spoken(middle: np.ndarray) -> float:
        """Seconds of speech found where the middle lies."""
        recording = np.concatenate([clips[1], pause, middle, pause, clips[3]])
        begin = len(clips[1]) + len(pause)
        found = passages.spoken_passages(tiny.model, recording, TranscriptionOptions())
        spans = [span for passage in found for span in passage.spans]
        assert spans == sorted(spans)
        return sum(max(0, min(end, begin + len(middle)) - max(start, begin)) for start, end in spans) / RATE

    quiet = clips[2] * np.float32(0.01)
    assert spoken(quiet) > 0.7 * len(quiet) / RATE
    assert spoken(noise) == 0.0
    transcript = tiny.transcribe(np.concatenate([clips[1], pause, quiet, pause, clips[3]]))
    assert "selfish" in transcript.text


def test_silence_has_no_text(tiny: Transcriber) -> None:
    noise = np.random.default_rng(1).normal(0, 0.0005, 40 * RATE).astype(np.float32)
    transcript = tiny.transcribe(noise)
    assert (transcript.text, transcript.segments, transcript.duration_after_vad) == ("", [], 0.0)


def test_clips_are_kept_apart(tiny: Transcriber, with_pauses: np.ndarray, clips: list[np.ndarray]) -> None:
    (begin, end), *_ = speech_of(clips)
    transcript = tiny.transcribe(with_pauses, clip_timestamps=[0, begin + 1.0, begin + 1.0, end + 0.3])
    assert transcript.segments
    assert not [each for each in transcript.segments if each.start < begin + 0.9 < begin + 1.1 < each.end]


def test_modes_are_named_and_agree_with_batched() -> None:
    assert TranscriptionOptions().mode == "auto"
    assert TranscriptionOptions(batched=True) == TranscriptionOptions(mode="batched")
    with pytest.raises(ParameterError, match='mode must be "auto", "sequential" or "batched", not \'fast\''):
        TranscriptionOptions(mode="fast")
    with pytest.raises(ParameterError, match="batched=True means the mode batched"):
        TranscriptionOptions(mode="sequential", batched=True)
    with pytest.raises(ParameterError, match="set vad=True"):
        TranscriptionOptions(mode="sequential", vad_options=VadOptions(threshold=0.3))
    assert TranscriptionOptions(vad_options=VadOptions(threshold=0.3)).mode == "auto"


def _errors(text: str) -> int:
    """Words that differ from what is said in the clips."""
    normalize, said = EnglishTextNormalizer(), json.loads(TRANSCRIPTS.read_text())
    spoken = {entry["audio"].removesuffix(".flac"): entry["text"] for entry in said}
    found = jiwer.process_words(normalize(" ".join(spoken[name] for name in CLIPS)), normalize(text))
    return found.substitutions + found.deletions + found.insertions


spans_of_speech = st.lists(st.tuples(st.integers(1, 30 * RATE), st.integers(1, 9 * RATE)), min_size=1, max_size=60)


@given(spans_of_speech, st.integers(0, 5 * RATE))
def test_every_span_is_in_one_passage_and_long_silence_in_none(pieces: list[tuple[int, int]], tail: int) -> None:
    spans, position = [], 0
    for length, pause in pieces:
        spans.append(Span(position + pause, position + pause + length))
        position = spans[-1].end
    silence, pad = 2 * RATE, round(0.4 * RATE)
    found = passages._divided(spans, Span(0, position + tail), silence, pad)
    assert [span for own, _ in found for span in own] == spans
    parts = [part for _, kept in found for part in kept]
    assert all(one.end <= other.start for one, other in pairwise(parts))
    assert all(part.start < part.end for part in parts)
    for own, kept in found:
        assert all(any(part.start <= span.start < span.end <= part.end for part in kept) for span in own)
        most = LONGEST_PASSAGE * (1 + SLACK) + 30.0 + 9.0  # a span of speech, and a pause, are never cut
        assert sum(part.end - part.start for part in kept) / RATE <= most
    edges = [0, *(edge for span in spans for edge in span), position + tail]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        kept_here = sum(max(0, min(part.end, end) - max(part.start, begin)) for part in parts)
        assert kept_here == end - begin if end - begin < silence else kept_here <= 2 * pad


def test_a_first_word_that_attention_put_into_the_silence_before_a_cut_is_moved_after_it() -> None:
    speech = (Span(0, 2 * RATE), Span(3 * RATE, 5 * RATE))
    before, he, was, end = (
        Word(*times, text, 1.0)
        for *times, text in ((1.5, 2.0, " there."), (2.0, 2.9, " He"), (3.3, 3.6, " was"), (3.6, 4.0, " it."))
    )
    for first in (he, AttendedWord(1.2, 2.9, " He", 1.0, onset=3.05)):
        words = after_silence([before, first, was, end], [2.5], speech)
        assert [(word.start, word.end) for word in words] == [(1.5, 2.0), (3.0, 3.3), (3.3, 3.6), (3.6, 4.0)]
    spoken = [Word(0.5, 2.2, " He", 1.0), was, end]
    assert after_silence(spoken, [2.5], speech) == spoken
    assert after_silence([before, he, was, end], [], speech) == [before, he, was, end]
