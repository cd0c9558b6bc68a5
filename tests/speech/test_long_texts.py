"""Windows whose text fills the decoder's positions: the recording is transcribed, and every word has its time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from recordings import RATE, clip, joined

from transept import Transcriber
from transept.speech.algorithms.source import Source
from transept.speech.algorithms.window_words import time_words
from transept.speech.options import TranscriptionOptions
from transept.speech.timing.words import WordTiming

POSITIONS = 448
ENDLESS = {"suppress_tokens": (-1, 50256), "suppress_blank": False}  # the end of the text never comes


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("word_timestamps", [False, True], ids=["segments", "words"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"batched": True, "prefix": "He said so. " * 100}, id="prefix"),
        pytest.param({"batched": True, **ENDLESS}, id="endless"),
        pytest.param({"batched": True, **ENDLESS, "prefix": "word " * 400}, id="prefix-endless"),
        pytest.param({"without_timestamps": True, **ENDLESS}, id="sequential-endless"),
    ],
)
def test_a_window_full_of_text_is_transcribed(
    transcriber: Transcriber, speech_dir: Path, options: dict[str, Any], word_timestamps: bool
) -> None:
    recording = (clip(speech_dir / "librivox" / "austen-0930.flac"), RATE)
    options = {"max_new_tokens": POSITIONS, "temperature": 0.0, "word_timestamps": word_timestamps, **options}
    transcript = transcriber.transcribe(recording, **options)
    text = [token for segment in transcript.segments for token in segment.tokens]
    assert len(text) > 200
    if "suppress_tokens" in options:
        assert len(text) == POSITIONS - 2  # all that the tokens before it leave
    assert all(0.0 <= segment.start <= segment.end <= transcript.duration for segment in transcript.segments)
    assert all(segment.end <= following.start for segment, following in pairwise(transcript.segments))
    if word_timestamps:
        words = [word for segment in transcript.segments for word in segment.words]
        assert "".join(word.word for word in words) == "".join(segment.text for segment in transcript.segments)
        assert all(0.0 < word.probability <= 1.0 for word in words)


def test_the_end_of_a_text_that_takes_two_requests_is_timed_as_in_one(
    transcriber: Transcriber, speech_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = transcriber.model
    waveform = joined(speech_dir / "librivox", 3)
    features = model.window_features(waveform)
    text = model.tokenizer.encode_prompt(transcriber.transcribe((waveform, RATE)).text)

    def timings() -> tuple[int, list[WordTiming]]:
        options = TranscriptionOptions(word_timestamps=True)
        job = time_words(Source(model, options, features, language="en"), text)
        requests = next(job).requests
        prompts, params = [each.prompt for each in requests], [each.sampling_params for each in requests]
        outputs = transcriber.engine.generate(prompts, params)
        with pytest.raises(StopIteration) as end:
            job.send(outputs)
        return len(requests), end.value.value

    num_requests, whole = timings()
    assert num_requests == 1
    assert len(text) > 40
    monkeypatch.setattr(model, "max_positions", len(text))  # of which four are for the tokens around the text
    num_requests, cut = timings()
    assert num_requests == 2
    assert [each.word for each in cut] == [each.word for each in whole]
    assert [each.start for each in cut] == pytest.approx([each.start for each in whole], abs=0.1)
    assert [each.probability for each in cut] == pytest.approx([each.probability for each in whole], abs=0.1)
    monkeypatch.setattr(model, "max_positions", len(text) // 3)
    num_requests, cut = timings()
    assert num_requests == 4
    assert [each.word for each in cut] == [each.word for each in whole]
    assert all(word.end <= following.start for word, following in pairwise(cut))


def test_timestamps_that_a_draw_puts_into_a_batched_text_do_not_stop_it(
    transcriber: Transcriber, speech_dir: Path
) -> None:
    recording = (clip(speech_dir / "librivox" / "austen-0930.flac"), RATE)
    drawn = {"temperature": 1.5, "best_of": 1, "logprob_threshold": None, "compression_ratio_threshold": None}
    transcript = transcriber.transcribe(recording, batched=True, word_timestamps=True, **drawn, **ENDLESS)
    assert transcript.segments
    assert all(token < 50256 for segment in transcript.segments for token in segment.tokens)
