"""Log probabilities of tokens: those that transformers' Whisper gives for the same tokens, however they are cut."""

from pathlib import Path

import pytest
import soundfile
import torch
from parity.whisper_reference import reference_model

from transept import Transcriber

CLIP = "austen-0870.flac"


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@torch.inference_mode()
def test_they_are_those_of_transformers(transcriber: Transcriber, tiny_en_dir: Path, speech_dir: Path) -> None:
    clip = speech_dir / "librivox" / CLIP
    (segment,) = transcriber.transcribe(clip, token_logprobs=True, without_timestamps=True).segments
    reference = reference_model(tiny_en_dir)
    waveform, _ = soundfile.read(clip, dtype="float32")
    features = transcriber.model.features(waveform)
    features = torch.nn.functional.pad(features, (0, 3000 - features.shape[1]))[None]
    prompt = list(transcriber.model.tokenizer.opening_tokens(None, "transcribe", timestamps=False))
    logits = reference(features, decoder_input_ids=torch.tensor([prompt + segment.tokens])).logits[0, len(prompt) - 1 :]
    logits[:, reference.generation_config.suppress_tokens] = -torch.inf
    logits[0, reference.generation_config.begin_suppress_tokens] = -torch.inf
    expected = logits.log_softmax(-1)[range(len(segment.tokens)), segment.tokens]
    assert segment.token_logprobs == pytest.approx(expected.tolist(), abs=1e-3)


def test_segments_have_those_of_their_own_tokens(transcriber: Transcriber, speech_dir: Path) -> None:
    clip = speech_dir / "librivox" / CLIP
    for options in ({}, {"batched": True}, {"word_timestamps": True}, {"beam_size": 3}, {"prefix": "And Mr."}):
        plain = transcriber.transcribe(clip, **options)
        with_them = transcriber.transcribe(clip, token_logprobs=True, **options)
        assert [segment.text for segment in with_them.segments] == [segment.text for segment in plain.segments]
        assert all(segment.token_logprobs is None for segment in plain.segments)
        for segment in with_them.segments:
            assert len(segment.token_logprobs) == len(segment.tokens)
            assert all(logprob <= 0 for logprob in segment.token_logprobs)
            total = segment.avg_logprob * (len(segment.tokens) + 1)  # with the end of the text
            if len(with_them.segments) == 1 and not options:
                assert sum(segment.token_logprobs) + -5 < total < sum(segment.token_logprobs)
