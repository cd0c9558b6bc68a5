"""Live transcription: real speech in chunks becomes committed words, which nothing takes back."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
from patience import PATIENCE
from whisper.normalizers import EnglishTextNormalizer

from transept import (
    Committed,
    Lagging,
    LiveOptions,
    MediaError,
    ParameterError,
    SpeechStarted,
    SpeechStopped,
    Tentative,
    Transcriber,
    TranseptError,
    UtteranceEnded,
    aio,
)
from transept.core.jobs.job import Offload, Signal, Submit
from transept.core.scheduling.draft_lengths import DraftLengths
from transept.plugins.whisper.published import live_policy
from transept.speech.live.feed import Feed
from transept.speech.live.hypothesis import HeardWord
from transept.speech.live.policies import Agreement, Attention
from transept.speech.live.transcription import LiveTranscription
from transept.speech.live.utterance import Utterance
from transept.speech.timing.words import WordTiming
from transept.speech.vad.listener import SpeechListener
from transept.speech.vad.network import FRAME, speech_probabilities

RATE = 16_000
SPOKEN = (
    "He was not an ill disposed young man unless to be rather cold hearted and rather selfish is to be ill disposed"
)
normalize = EnglishTextNormalizer()


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def speech(speech_dir: Path) -> np.ndarray:
    """Two sentences with a second of silence after each: two utterances."""
    pause = np.zeros(RATE, np.float32)
    clips = [soundfile.read(speech_dir / "librivox" / f"austen-0{n}.flac", dtype="float32")[0] for n in (880, 890)]
    return np.concatenate([part for clip in clips for part in (clip, pause)])


def chunks_of(waveform: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(waveform), size):
        yield waveform[begin : begin + size]


def played(
    transcriber: Transcriber,
    waveform: np.ndarray,
    size: int = 1600,
    observe: Callable[[LiveTranscription], None] = lambda _: None,
    **options: Any,
) -> list[Any]:
    """The events of a stream that receives each chunk only after all earlier ones are transcribed.

    observe: called after each step of the stream's job.
    """
    transcription = transcriber.live_transcription(**options)
    chunks, found = chunks_of(waveform, size), []

    def job() -> Any:
        work, answer = transcription.job(), None
        while True:
            try:
                item = work.send(answer)
            except StopIteration:
                return
            answer = None
            observe(transcription)
            if isinstance(item, Signal):
                chunk = next(chunks, None)
                transcription.feed.close() if chunk is None else transcription.feed.push(chunk)
            elif isinstance(item, Submit | Offload):
                answer = yield item
            else:
                found.append(item)

    list(transcriber.engine.runner.run([job()], 1))
    return found


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Committed))


@pytest.fixture(scope="module")
def events(transcriber: Transcriber, speech: np.ndarray) -> list[Any]:
    return played(transcriber, speech)


def test_committed_text_is_what_is_said(events: list[Any]) -> None:
    assert jiwer.wer(normalize(SPOKEN), normalize(text_of(events))) < 0.15


def test_drafts_of_the_last_pass_save_steps_and_change_no_event(
    transcriber: Transcriber, speech: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics, found, steps = transcriber.engine.core.statistics, [], []
    for most in (0, 16):  # tokens of a draft, whatever the times of steps are
        monkeypatch.setattr(
            DraftLengths, "choose", lambda _, drafters, lengths, *__, m=most: [min(m, n) for n in lengths]
        )
        before = statistics.num_steps
        found.append([(event, vars(event)) for event in played(transcriber, speech[: 6 * 16_000])])
        steps.append(statistics.num_steps - before)
    texts = [[(type(event), given.get("text")) for event, given in each] for each in found]
    assert texts[0] == texts[1]
    assert steps[1] < steps[0]


def test_words_are_committed_while_the_utterance_goes_on(events: list[Any]) -> None:
    kinds = [type(event) for event in events]
    assert kinds.count(SpeechStarted) == kinds.count(SpeechStopped) == kinds.count(UtteranceEnded) == 2
    first = kinds[: kinds.index(SpeechStopped)]
    assert first[0] is SpeechStarted
    assert first.count(Committed) >= 2
    assert Tentative in first


def test_the_final_segments_have_all_committed_words(events: list[Any]) -> None:
    segments = [event.segment for event in events if isinstance(event, UtteranceEnded) and event.segment]
    assert "".join(segment.text for segment in segments) == text_of(events)
    assert [segment.id for segment in segments] == [0, 1]
    for segment in segments:
        assert "".join(word.word for word in segment.words) == segment.text
        times = [time for word in segment.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert segment.start == times[0]
        assert segment.end == times[-1]


def test_times_of_words_are_those_of_the_stream(
    events: list[Any], transcriber: Transcriber, speech: np.ndarray
) -> None:
    offline = transcriber.transcribe(speech, word_timestamps=True)
    expected = {word.word.strip(" .,").lower(): word for segment in offline.segments for word in segment.words}
    words = [word for event in events if isinstance(event, Committed) for word in event.words]
    far = [
        abs(word.end - expected[key].end)
        for word in words
        if (key := word.word.strip(" .,").lower()) in ("young", "hearted", "selfish", "man") and key in expected
    ]
    assert len(far) >= 2
    assert max(far) < 0.6


def test_agreement_commits_the_same_speech(transcriber: Transcriber, speech: np.ndarray) -> None:
    found = played(transcriber, speech, policy="agreement")
    assert jiwer.wer(normalize(SPOKEN), normalize(text_of(found))) < 0.15


def test_tiny_and_odd_chunks_make_no_difference(
    transcriber: Transcriber, speech: np.ndarray, events: list[Any]
) -> None:
    few = speech[: 5 * RATE]
    assert text_of(played(transcriber, few, size=1600)) == text_of(played(transcriber, few, size=200))


def test_nothing_is_said_in_silence_and_noise(transcriber: Transcriber) -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 5 * RATE).astype(np.float32)
    statistics = transcriber.engine.core.statistics
    before = statistics.num_steps
    assert played(transcriber, np.concatenate([np.zeros(5 * RATE, np.float32), noise])) == []
    assert statistics.num_steps == before, "nothing is decoded"


def test_a_pause_of_minutes_without_audio_changes_no_words(
    transcriber: Transcriber, speech: np.ndarray, events: list[Any]
) -> None:
    """A source may stop sending, as a microphone does that is muted. The clock goes on."""
    now, pauses_at = 0.0, len(speech) // 2

    def pause(transcription: LiveTranscription) -> None:
        nonlocal now
        transcription.feed.clock = lambda: now
        if not now and transcription._num_arrived > pauses_at:
            now = 600.0

    found = played(transcriber, speech, observe=pause)
    assert now == 600.0
    assert text_of(found) == text_of(events)
    delays = [event.delay for event in found if isinstance(event, UtteranceEnded)]
    assert delays[-1] == 0.0
    assert [event.lag for event in found if isinstance(event, Committed)][-1] == 0.0


def test_an_utterance_without_words_ends_as_others_do(transcriber: Transcriber) -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 2 * RATE).astype(np.float32)
    found = played(transcriber, np.concatenate([noise, np.zeros(RATE, np.float32)]), vad_threshold=0.001)
    assert [type(event) for event in found] == [SpeechStarted, SpeechStopped, UtteranceEnded]
    assert found[-1].segment is None
    assert found[-1].delay >= 0


def test_a_stream_ends_with_its_iterable_and_its_words(transcriber: Transcriber, speech: np.ndarray) -> None:
    pcm = (speech[: 3 * RATE] * 32767).astype("<i2").tobytes()
    pieces = (pcm[begin : begin + 3333] for begin in range(0, len(pcm), 3333))  # bytes end within samples
    found = list(transcriber.live(pieces))
    assert jiwer.wer("he was not an ill disposed young man", normalize(text_of(found))) < 0.4
    assert isinstance([event for event in found if not isinstance(event, Lagging)][-1], UtteranceEnded)


def test_an_error_of_the_chunks_is_raised_at_the_end(transcriber: Transcriber, speech: np.ndarray) -> None:
    def broken() -> Iterator[np.ndarray]:
        yield speech[: 2 * RATE]
        raise OSError("the microphone is unplugged")

    stream, found = transcriber.live(broken()), list[Any]()
    with pytest.raises(OSError, match="unplugged"):
        found.extend(stream)
    assert any(isinstance(event, UtteranceEnded) for event in found)


def test_streams_share_an_engine_and_one_that_is_cancelled_leaves_nothing(
    transcriber: Transcriber, speech: np.ndarray, events: list[Any]
) -> None:
    whole, cut = transcriber.live_stream(), transcriber.live_stream()
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.append(text_of(list(whole))))
    reader.start()
    with cut:
        for chunk in chunks_of(speech, 4000):
            whole.push(chunk)
            cut.push(chunk)
        assert isinstance(next(event for event in cut if not isinstance(event, Lagging)), SpeechStarted)
    whole.close()
    reader.join()
    assert jiwer.wer(normalize(SPOKEN), normalize(texts[0])) < 0.25
    assert not transcriber.engine.has_unfinished_requests
    assert not transcriber.engine.runner.tasks.listening
    with pytest.raises(TranseptError, match="closed"):
        cut.push(speech[:100])


def test_asyncio_has_the_same_events(tiny_en_dir: Path, speech: np.ndarray) -> None:
    async def run() -> list[Any]:
        async def source() -> Any:
            for chunk in chunks_of(speech[: 3 * RATE], 8000):
                yield chunk
                await asyncio.sleep(0)

        transcriber = await aio.AsyncTranscriber.load(tiny_en_dir)
        try:
            return [event async for event in transcriber.live(source())]
        finally:
            await transcriber.close()

    found = asyncio.run(run())
    assert isinstance(found[-1], UtteranceEnded)
    assert "young man" in text_of(found)


def test_an_event_loop_ends_although_the_chunks_of_a_stream_wait(transcriber: Transcriber) -> None:
    """As with a microphone that is silent: the thread that reads it must not keep the loop from ending."""
    may_end, has_ended = threading.Event(), threading.Event()

    def waiting() -> Iterator[np.ndarray]:
        yield np.zeros(RATE, np.float32)
        may_end.wait(PATIENCE)
        has_ended.set()

    async def run() -> aio.AsyncTranscriber:
        tasks = aio.AsyncTranscriber(transcriber)
        reading = asyncio.ensure_future(anext(tasks.live(waiting())))
        while not any(thread.name == "transept-live" for thread in threading.enumerate()):
            assert not reading.done()
            await asyncio.sleep(0)
        reading.cancel()
        return tasks

    tasks = asyncio.run(run())
    assert not has_ended.is_set()
    may_end.set()
    tasks.engine.stop()
    assert not transcriber.engine.runner.tasks.listening


def test_a_long_utterance_drops_its_audio_behind_committed_words(transcriber: Transcriber, speech_dir: Path) -> None:
    files = sorted((speech_dir / "librivox").glob("*.flac"))
    waveform = np.concatenate([soundfile.read(file, dtype="float32")[0] for file in files])[: 14 * RATE]
    longest = 0.0

    def measure(transcription: LiveTranscription) -> None:
        nonlocal longest
        if transcription._utterance is not None:
            longest = max(longest, transcription._utterance.seconds)

    found = played(transcriber, waveform, 3200, measure, longest_audio=5.0, vad_silence_ms=3000)
    assert longest < 8.0
    expected = transcriber.transcribe(waveform, mode="sequential").text
    assert jiwer.wer(normalize(expected), normalize(text_of(found))) < 0.3


@pytest.mark.parametrize(("seconds", "drops"), [(1.5, False), (3.0, True)])
def test_audio_of_committed_words_is_dropped_if_no_word_of_much_later_speech_is_heard(
    transcriber: Transcriber, speech: np.ndarray, seconds: float, drops: bool
) -> None:
    """Only the end of the text may be written here, as if the committed word were all that is said."""
    made = transcriber.live_transcription(suppress_tokens=[*range(50256)])
    utterance = Utterance(made.model, made.options, made.live, Agreement(2), 0)
    utterance.add(speech[: int(seconds * RATE)], int(seconds * RATE))
    utterance.committed = [WordTiming(" He", [679], 0.0, 0.5, 1.0)]
    ((_, hypothesis),) = transcriber.engine.runner.run([utterance.passed("en", made.context, last=False)], 1)
    assert hypothesis.words == ()
    assert (utterance.cut, utterance.committed == []) == ((RATE // 2, True) if drops else (0, False))
    assert made.context.prompt(0)[1:] == ([679] if drops else [])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"policy": "guess"}, "policy"),
        ({"min_chunk": 0}, "min_chunk"),
        ({"mode": "batched"}, "mode"),
        ({"vad_options": {"threshold": 0.3}}, "vad_options"),
        ({"language": "de"}, "language"),
        ({"polici": "auto"}, "polici"),
        ({"rate": 12}, "rate"),
    ],
    ids=str,
)
def test_bad_options_are_refused_at_once(transcriber: Transcriber, options: dict[str, Any], param: str) -> None:
    with pytest.raises(ParameterError) as refused:
        transcriber.live_stream(**options)
    assert refused.value.param == param


def test_a_feed_resamples_as_a_whole_and_refuses_what_is_no_audio() -> None:
    import soxr

    sound = np.sin(np.arange(48_000) / 20).astype(np.float32)
    feed = Feed(48_000)
    for chunk in chunks_of(sound, 777):
        feed.push(chunk)
    found = [feed.resampled(each.samples) for each in feed.take(10)]
    found.append(feed.resampled(np.empty(0, np.float32), last=True))
    np.testing.assert_allclose(np.concatenate(found), soxr.resample(sound, 48_000, RATE, quality="HQ"), atol=1e-6)
    with pytest.raises(MediaError):
        feed.push("speech")  # type: ignore[arg-type]
    with pytest.raises(MediaError):
        feed.push(np.array([np.nan], np.float32))


def test_voice_activity_in_pieces_is_that_of_the_whole(speech: np.ndarray) -> None:
    listener = SpeechListener(0.5, 0.3, 0.5)
    whole = speech_probabilities(speech)
    heard = [part for chunk in chunks_of(speech, 1000) for part in listener.hear(chunk)]
    heard += listener.finish()
    assert len(whole) > 100
    begins = [part.begin for part in heard if part.starts]
    ends = [part.speech_end for part in heard if part.ends]
    loud = np.flatnonzero(whole >= 0.5)
    assert len(begins) == len(ends) == 2
    assert abs(begins[0] - max(0, loud[0] * FRAME - 0.3 * RATE)) <= 2 * FRAME
    assert abs(ends[-1] - (loud[-1] + 1) * FRAME) <= 2 * FRAME
    for one, other in pairwise(heard):
        if not other.starts:
            assert other.begin == one.begin + len(one.samples), "an utterance has no gaps"


def test_an_utterance_soon_after_another_has_padding_as_well(speech_dir: Path) -> None:
    clips = [soundfile.read(speech_dir / "librivox" / f"austen-0{n}.flac", dtype="float32")[0] for n in (880, 890)]
    waveform = np.concatenate([clips[0], np.zeros(RATE // 2, np.float32), clips[1]])
    heard = SpeechListener(0.5, 0.3, 0.3).hear(waveform)
    second = [part.begin for part in heard if part.starts][1]
    loud = np.flatnonzero(speech_probabilities(waveform) >= 0.5) * FRAME
    onset = loud[loud > len(clips[0]) + RATE // 4][0]
    assert 0.25 * RATE <= onset - second <= 0.4 * RATE


def test_the_policy_is_the_one_measured_for_the_model(transcriber: Transcriber) -> None:
    def view(encoder_layers: int, decoder_layers: int) -> Any:
        return SimpleNamespace(config=SimpleNamespace(encoder_layers=encoder_layers, decoder_layers=decoder_layers))

    assert transcriber.live_transcription().policy == "attention"
    assert transcriber.live_transcription(policy="agreement").policy == "agreement"
    assert live_policy(view(32, 4)) == "agreement"  # turbo
    assert live_policy(view(32, 32)) == live_policy(view(6, 6)) == "attention"


def words(*texts: str, probability: float = 1.0) -> list[HeardWord]:
    return [
        HeardWord(WordTiming(f" {text}", [0], float(at), float(at + 1), probability), at + 1.0)
        for at, text in enumerate(texts)
    ]


def test_agreement_needs_the_same_words_in_succession() -> None:
    policy = Agreement(2)
    assert policy.num_final(words("the", "cat"), 3.0) == 0
    assert policy.num_final(words("The,", "cat", "sat"), 4.0) == 2
    assert policy.num_final(words("on", "a"), 5.0) == 0  # instead of "sat"
    assert policy.num_final(words("on", "the"), 6.0) == 1
    policy.forget()
    assert policy.num_final(words("the", "mat"), 7.0) == 0


def test_attention_stops_at_the_frontier() -> None:
    policy = Attention(0.5)
    assert policy.num_final(words("the", "cat", "sat"), 3.0) == 2
    assert policy.num_final(words("the", "cat", "sat"), 4.5) == 3
    assert policy.num_final([], 4.5) == 0


def test_attention_waits_longer_for_unlikely_words() -> None:
    policy = Attention(0.5)
    assert policy.num_final(words("the", "cat", "sat", probability=0.5), 3.0) == 2
    assert policy.num_final(words("the", "cat", "sat", probability=0.4), 3.0) == 1
    assert policy.num_final(words("the", "cat", "sat", probability=0.0), 3.0) == 0
    assert policy.num_final(words("the", "cat", "sat", probability=0.0), 5.6) == 3, "an utterance is never stuck"


def test_live_options_have_the_defaults_of_the_documentation() -> None:
    options = LiveOptions()
    assert (options.vad_threshold, options.vad_padding_ms, options.vad_silence_ms) == (0.5, 300, 500)
