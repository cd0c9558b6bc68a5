"""whisper.cpp through pywhispercpp, which has its features, its decoding and its own greedy rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.workers.whisper_inputs import Decoding

if TYPE_CHECKING:
    from benchmarks.turns import Runner


def runner(model: Path, kind: str, threads: int) -> Runner:
    """kind: the file, `f16` or `q8_0`. It takes one window at a time; its batches are those of beam search.

    Weights in f16 are multiplied with activations rounded to float16, those in q8_0 with such in int8.
    """
    import _pywhispercpp as library
    from pywhispercpp.model import Model

    whisper = Model(
        str(model / "ggml" / f"{kind}.bin"),
        redirect_whispercpp_logs_to=None,
        n_threads=threads,
        no_timestamps=True,
        single_segment=True,
        no_context=True,
        temperature=0.0,
        temperature_inc=0.0,  # no second try at a higher temperature
        greedy={"best_of": 1},
        suppress_blank=True,
        suppress_nst=True,  # what the checkpoint's suppress_tokens name
        print_progress=False,
        print_realtime=False,
        language="en",
    )
    end = Decoding(model / "huggingface").end
    context = whisper._ctx  # segments have texts only

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        ids = []
        for waveform in waveforms:
            whisper.transcribe(waveform)
            segments = range(library.whisper_full_n_segments(context))
            found = [
                library.whisper_full_get_token_id(context, segment, token)
                for segment in segments
                for token in range(library.whisper_full_n_tokens(context, segment))
            ]
            ids.append([token for token in found if token < end])
        return ids

    return run
