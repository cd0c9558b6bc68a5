"""Word times against openai-whisper's, from the same attention and, separately, from the same timings."""

import copy
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
import whisper.timing
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_reference import openai_model, openai_result
from recordings import RATE, joined
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import get_tokenizer
from whisper.utils import get_writer

from transept.compat.transcribers import CompatTranscriber
from transept.compat.whisper.utils import get_writer as compat_writer
from transept.core.checkpoints.hf_configs import load_tokenizer
from transept.speech.segments import Segment, Word
from transept.speech.timing.words import WordTiming, merge_punctuation, place_words, token_times, word_timings

PREPENDED, APPENDED = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
TEXTS = {
    "en": " \"Well,\" said he (slowly) - it's 9:30... isn't it? I say it is.",
    "ru": " Съешь ещё этих мягких французских булок, да выпей же чаю.",
    "zh": "视野无限广，窗外有蓝天。龘𪚥",  # noqa: RUF001
    "th": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
}
FRAMES = {"frames_per_position": 2, "frames_per_second": 100}


@pytest.fixture(scope="module")
def small_whisper() -> Whisper:
    """openai-whisper's model with random weights, drawn so that heads look here for one token, there for another."""
    torch.manual_seed(0)
    model = Whisper(ModelDimensions(80, 1500, 64, 1, 1, 51865, 448, 64, 2, 2)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.1)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return model


def probe(model: Whisper, mel: torch.Tensor, prompt: list[int], first: int, text: list[int], end_of_text: int):
    """What a probe of the decoder prompt reads: attention after softmax over all positions, text tokens' logprobs."""
    seen = []
    hooks = [
        block.cross_attn.register_forward_hook(lambda module, inputs, output: seen.append(output[1][0]))
        for block in model.decoder.blocks
    ]
    with torch.no_grad(), whisper.model.disable_sdpa():
        logits = model(mel[None], torch.tensor([prompt]))[0]
    for hook in hooks:
        hook.remove()
    weights = torch.stack([seen[layer][head] for layer, head in model.alignment_heads.indices().T]).softmax(-1)
    logprobs = logits[:, :end_of_text].log_softmax(-1)
    return [float(logprobs[first + i, token]) for i, token in enumerate(text)], weights.numpy()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("num_frames", [3000, 1999, 150])
def test_times_from_attention_are_those_of_openai_whisper(
    small_whisper: Whisper, base_dir, language: str, num_frames: int
) -> None:
    reference = get_tokenizer(True, language=language, task="transcribe")
    text = reference.encode(TEXTS[language])
    mel = torch.randn(80, 3000, generator=torch.Generator().manual_seed(num_frames))
    expected = whisper.timing.find_alignment(small_whisper, reference, text, mel, num_frames)

    prompt = [*reference.sot_sequence, reference.no_timestamps, *text, reference.eot]
    first = len(reference.sot_sequence)
    logprobs, weights = probe(small_whisper, mel, prompt, first, text, reference.eot)
    times = token_times(weights, len(text), num_frames=num_frames, **FRAMES)
    timings = word_timings(text, logprobs, times, tokenizer=load_tokenizer(base_dir), language=language)
    assert [(each.word, each.tokens, each.start, each.end) for each in timings] == [
        (each.word, each.tokens, each.start, each.end) for each in expected
    ]
    assert len({each.start for each in timings}) > 3
    assert [each.probability for each in timings] == pytest.approx([each.probability for each in expected], rel=1e-4)


def test_no_text_and_no_recording_have_no_words(base_dir) -> None:
    weights = np.full((2, 7, 1500), 1 / 1500, dtype=np.float32)
    options = {"tokenizer": load_tokenizer(base_dir), "language": "en"}
    for tokens, num_frames in (([], 3000), ([50, 60], 1)):
        times = token_times(weights, len(tokens), num_frames=num_frames, **FRAMES)
        assert word_timings(tokens, [-1.0] * len(tokens), times, **options) == []


@pytest.mark.parametrize("num_frames", [2, 3, 6, 9])
def test_attention_without_any_contrast_still_gives_rising_times(base_dir, num_frames: int) -> None:
    """Where openai-whisper divides by zero."""
    weights = np.full((2, 8, 1500), 1 / 1500, dtype=np.float32)
    token_starts = token_times(weights, 2, num_frames=num_frames, **FRAMES)
    timings = word_timings([1002, 1003], [-1.0, -1.0], token_starts, tokenizer=load_tokenizer(base_dir), language="en")
    times = [time for timing in timings for time in (timing.start, timing.end)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= num_frames / 100


words = st.one_of(
    st.sampled_from(
        [" a", " word", "word", " (", "(", ".", "。", "?!", ' "', '"', " -", " ", "  ", "x ", "字", ",", "-"]
    ),
    st.text(" .(a", min_size=1, max_size=3),
)


@st.composite
def timings_of_a_window(draw) -> list[WordTiming]:
    """Words that follow each other in time; lengths in steps of 20 ms, some very long, some none."""
    made, time = [], draw(st.sampled_from([0, 1, 40]))
    for word in draw(st.lists(words, max_size=14)):
        end = time + draw(st.sampled_from([0, 1, 5, 6, 7, 20, 60, 300]))
        made.append(WordTiming(word, draw(st.lists(st.just(7), min_size=1, max_size=3)), time / 50, end / 50, 0.5))
        time = end
    return made


@st.composite
def segments_of_a_window(draw, timings: list[WordTiming]) -> tuple[list[Segment], list[int]]:
    """Segments over the timings' tokens, with timestamps that need not agree with the words."""
    total = sum(len(timing.tokens) for timing in timings)
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=4)))
    counts = [end - begin for begin, end in zip([0, *cuts], [*cuts, total], strict=True)]
    seek = draw(st.sampled_from([0, 100, 12345]))
    segments, start = [], seek / 100
    for index, count in enumerate(counts):
        end = start + draw(st.integers(0, 300)) / 50
        tokens = [50364, *[7] * count, 50400]
        segments.append(Segment(index, seek, start, end, "text", tokens, 0.0, -0.1, 1.0, 0.1))
        start = end
    return segments, counts


def as_openai(timings: list[WordTiming]) -> list[whisper.timing.WordTiming]:
    return [whisper.timing.WordTiming(t.word, list(t.tokens), t.start, t.end, t.probability) for t in timings]


@given(timings_of_a_window())
@settings(max_examples=150)
def test_punctuation_merges_as_in_openai_whisper(timings: list[WordTiming]) -> None:
    expected = as_openai(timings)
    whisper.timing.merge_punctuations(expected, PREPENDED, APPENDED)
    merged = merge_punctuation(timings, PREPENDED, APPENDED)
    assert as_openai(merged) == [timing for timing in expected if timing.word]


@given(st.data())
@settings(max_examples=300)
def test_segments_get_the_words_and_times_that_openai_whisper_gives_them(data: st.DataObject) -> None:
    timings = data.draw(timings_of_a_window())
    segments, counts = data.draw(segments_of_a_window(timings))
    last_speech_timestamp = data.draw(st.sampled_from([0.0, segments[0].start, max(0.0, segments[0].start - 3)]))

    expected = [copy.deepcopy(segment.to_dict()) for segment in segments]
    with mock.patch.object(whisper.timing, "find_alignment", return_value=as_openai(timings)):
        whisper.timing.add_word_timestamps(
            segments=expected,
            model=None,
            tokenizer=SimpleNamespace(eot=50257),
            mel=None,
            num_frames=3000,
            last_speech_timestamp=last_speech_timestamp,
        )
    placed = place_words(
        segments,
        timings,
        num_text_tokens=counts,
        time_offset=segments[0].seek * 160 / 16000,
        last_speech_timestamp=last_speech_timestamp,
        prepend_punctuations=PREPENDED,
        append_punctuations=APPENDED,
    )
    assert [segment.to_dict() for segment in placed] == expected
    assert all(segment.words is None for segment in segments)


def test_words_of_a_word_are_new_objects_of_the_transcript() -> None:
    segment = Segment(0, 0, 0.0, 1.0, " hi.", [50364, 7, 13, 50400], 0.0, -0.1, 1.0, 0.1)
    timings = [WordTiming(" hi", [7], 0.1, 0.6, 0.9), WordTiming(".", [13], 0.6, 0.8, 0.7)]
    (placed,) = place_words(
        [segment],
        timings,
        num_text_tokens=[2],
        time_offset=10.0,
        last_speech_timestamp=10.0,
        prepend_punctuations=PREPENDED,
        append_punctuations=APPENDED,
    )
    assert placed.words == [Word(start=10.1, end=10.6, word=" hi.", probability=0.9)]
    assert (placed.start, placed.end) == (10.1, 10.6)


@pytest.mark.slow
def test_words_and_subtitles_of_a_recording_are_those_of_openai_whisper(
    tiny_en_dir: Path, speech_dir: Path, tmp_path: Path
) -> None:
    """All the way: attention read through the paged cache, words placed, files written. 30 s, two windows."""
    waveform = joined(speech_dir / "prompts-en", count=10)
    options = {"temperature": 0.0, "word_timestamps": True}
    result = openai_result(openai_model(tiny_en_dir), waveform, **options)
    transcript = CompatTranscriber(tiny_en_dir).transcribe((waveform, RATE), mode="sequential", **options)

    expected = [word for segment in result["segments"] for word in segment["words"]]
    found = [word for segment in transcript.segments for word in segment.words]
    assert [word.word for word in found] == [word["word"] for word in expected]
    late = [
        max(abs(ours.start - theirs["start"]), abs(ours.end - theirs["end"])) > 0.02
        for ours, theirs in zip(found, expected, strict=True)
    ]
    assert sum(late) <= len(late) / 100
    assert [word.probability for word in found] == pytest.approx([word["probability"] for word in expected], abs=1e-4)

    layout = {"max_line_width": 42, "max_line_count": 2}
    for name in ("txt", "srt", "vtt", "tsv"):
        get_writer(name, str(tmp_path))(result, "theirs", layout)
        compat_writer(name, str(tmp_path))(transcript.to_dict(), "ours", layout)
        assert (tmp_path / f"ours.{name}").read_text() == (tmp_path / f"theirs.{name}").read_text()
