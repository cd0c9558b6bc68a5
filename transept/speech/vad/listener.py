"""SpeechListener: finds utterances in a stream of audio as it arrives, with the network of `vad.network`.

`transept.speech.live` uses one for each stream. The rules are silero-vad's for a stream: speech starts with a frame of
at least the threshold, and ends with a pause that lasts long enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transept.multimodal.waveforms import NO_SAMPLES, Waveform
from transept.speech.vad.network import CONTEXT, FRAME, SpeechNetwork
from transept.speech.vad.spans import SAMPLE_RATE

BELOW_THRESHOLD = 0.15  # of the probability under which speech ends, as in silero-vad
LEAST_PROBABILITY = 0.01  # under which speech ends at any threshold
FIRST_FRAMES = 2  # of speech that start an utterance: 64 ms; clicks are shorter


@dataclass(frozen=True)
class Heard:
    """A stretch of audio within an utterance, or its beginning or end.

    begin: sample of the stream at which it begins. samples: float32. speech_end: sample after the last speech so far.
    starts, ends: True if the utterance begins with the stretch, or ends after it.
    """

    begin: int
    samples: Waveform
    speech_end: int
    starts: bool = False
    ends: bool = False


class SpeechListener:
    """Divides a stream at 16 kHz into utterances; audio between them is dropped.

    threshold: lowest probability of speech. padding: seconds of audio before and after an utterance's speech that
    belong to it. silence: seconds of silence that end an utterance.
    """

    def __init__(self, threshold: float, padding: float, silence: float) -> None:
        self.threshold = threshold
        self.end_threshold = max(threshold - BELOW_THRESHOLD, LEAST_PROBABILITY)
        self._network: SpeechNetwork | None = None  # loaded with the first frame
        self._context: Waveform = np.zeros(CONTEXT, np.float32)  # samples before the next frame
        self._rest = NO_SAMPLES  # less than a frame
        self.position = 0  # sample of the stream after the last frame
        self._before: deque[Waveform] = deque(maxlen=FIRST_FRAMES + -(-round(padding * SAMPLE_RATE) // FRAME))  # frames
        self._num_loud = 0  # frames of speech in succession, before an utterance
        self._speaking = False
        self._speech_end = 0  # sample after the last frame of speech
        self._quiet_since: int | None = None  # sample at which a pause within an utterance began
        self._silence = round(silence * SAMPLE_RATE)

    def hear(self, samples: Waveform) -> list[Heard]:
        """Return the parts of utterances in the next samples, float32 at 16 kHz. A part of a frame is kept."""
        import torch

        self._network = self._network or SpeechNetwork()
        samples = np.concatenate([self._rest, samples])
        num_frames = len(samples) // FRAME
        self._rest = samples[num_frames * FRAME :].copy()
        if not num_frames:
            return []
        framed = np.concatenate([self._context, samples[: num_frames * FRAME]])
        self._context = framed[-CONTEXT:].copy()
        probabilities = self._network(torch.from_numpy(framed).unfold(0, CONTEXT + FRAME, FRAME))
        return list(self._divided(samples, probabilities.tolist()))

    def finish(self) -> list[Heard]:
        """Return the end of the utterance in progress, if there is one, at the end of the stream."""
        if not self._speaking:
            return []
        self._speaking = False
        return [Heard(self.position, self._rest, self._speech_end, ends=True)]

    def _divided(self, samples: Waveform, probabilities: list[float]) -> Iterator[Heard]:
        """Yield the frames of utterances, joined as far as nothing begins or ends between them."""
        frames: list[Waveform] = []
        starts = False
        for number, probability in enumerate(probabilities):
            frame = samples[number * FRAME : (number + 1) * FRAME]
            self.position += FRAME
            self._before.append(frame.copy())
            if self._speaking:
                frames.append(frame)
                if self._is_over(probability):
                    yield self._joined(frames, starts, ends=True)
                    self._speaking, self._num_loud, frames, starts = False, 0, [], False
                    while len(self._before) * FRAME > self.position - self._speech_end:
                        self._before.popleft()  # speech; the silence after it is the next utterance's padding as well
                continue
            self._num_loud = self._num_loud + 1 if probability >= self.threshold else 0
            if self._num_loud == FIRST_FRAMES:
                self._speaking, self._speech_end, self._quiet_since = True, self.position, None
                frames, starts = list(self._before), True
        if frames:
            yield self._joined(frames, starts, ends=False)

    def _joined(self, frames: list[Waveform], starts: bool, ends: bool) -> Heard:
        samples = np.concatenate(frames)
        return Heard(self.position - len(samples), samples, self._speech_end, starts, ends)

    def _is_over(self, probability: float) -> bool:
        """Record the probability of an utterance's next frame. Returns True if the utterance ends with it."""
        if probability >= self.threshold:
            self._speech_end, self._quiet_since = self.position, None
        elif self._quiet_since is not None or probability < self.end_threshold:
            self._quiet_since = self.position - FRAME if self._quiet_since is None else self._quiet_since
            return self.position - FRAME - self._quiet_since >= self._silence
        else:
            self._speech_end = self.position
        return False
