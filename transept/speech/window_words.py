"""Words for a decoded window: one more request over the same encoder input, whose decoder prompt is the finished text.

Both modes call `add_words`; the times are made in `transept.speech.words`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from transept.core.prompt_probe import PromptProbe
from transept.core.sampling_params import SamplingParams
from transept.speech.conversation import Ask
from transept.speech.options import TranscriptionOptions
from transept.speech.segmentation import Window
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Segment
from transept.speech.words import place_words, word_timings

if TYPE_CHECKING:
    from torch import Tensor


def add_words(
    model: SpeechModel,
    features: Tensor,
    window: Window,
    segments: Sequence[Segment],
    options: TranscriptionOptions,
    *,
    language: str,
    last_speech: float,
) -> Generator[Any, Any, list[Segment]]:
    """A job: the segments of one window with their words, and with start and end as the words say.

    features: of the window, [channels, up to window_frames]. language: code. last_speech: seconds at which the last
    word before this window ends.
    """
    texts = [[token for token in segment.tokens if token < model.tokens.end_of_text] for segment in segments]
    text = [token for tokens in texts for token in tokens]
    timings = []
    if text:
        opening = model.spec.decoder_prompt(model.config, language=language, task=options.task, timestamps=False)
        prompt = [*opening, *text, model.tokens.end_of_text]
        first = len(opening) - 1  # position after which the first text token comes
        probe = PromptProbe(
            logprobs=tuple((first + index, token) for index, token in enumerate(text)),
            vocab_limit=model.tokens.end_of_text,
            cross_attention_heads=model.alignment_heads,
        )
        params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=1, prompt_probe=probe)
        (output,) = yield Ask([model.request(features, prompt, params)])
        weights = output.prompt_probe.cross_attention
        timings = word_timings(
            text,
            output.prompt_probe.logprobs,
            weights,
            tokenizer=model.tokenizer,
            language=language if model.languages else None,
            num_frames=window.size,
            frames_per_position=model.window_frames // weights.shape[-1],
            frames_per_second=model.fps,
        )
    return place_words(
        segments,
        timings,
        num_text_tokens=[len(tokens) for tokens in texts],
        time_offset=window.start / model.fps,
        last_speech_timestamp=last_speech,
        prepend_punctuations=options.prepend_punctuations,
        append_punctuations=options.append_punctuations,
    )
