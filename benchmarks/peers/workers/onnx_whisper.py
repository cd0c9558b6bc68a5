"""Whisper on ONNX Runtime, by a loop of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.workers.whisper_inputs import Decoding, feature_batches

if TYPE_CHECKING:
    from benchmarks.turns import Runner


def runner(model: Path, kind: str, threads: int) -> Runner:
    """kind: the folder of the exported graphs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    encoder, decoder = (
        onnxruntime.InferenceSession(
            model / "onnx" / kind / f"{part}.onnx", options, providers=["CPUExecutionProvider"]
        )
        for part in ("encoder", "decoder")
    )
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    crossed = [output.name for output in encoder.get_outputs()]
    presents = [output.name for output in decoder.get_outputs() if output.name != "logits"]
    pasts = [name.replace("present", "past") for name in presents]
    heads, head_size = encoder.get_outputs()[0].shape[1::2]
    decoding = Decoding(model / "huggingface")

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        ids: list[list[int]] = []
        for features in feature_batches(model / "huggingface", waveforms):
            batch = len(features)
            cross = encoder.run_with_ort_values(crossed, {"features": value(features)})
            nothing = np.empty((batch, heads, 0, head_size), dtype=np.float32)
            given = dict(zip(crossed, cross, strict=True)) | {name: value(nothing) for name in pasts}
            seen = 0

            def step(tokens: np.ndarray, given: dict[str, onnxruntime.OrtValue] = given) -> np.ndarray:
                nonlocal seen
                positions = np.arange(seen, seen + tokens.shape[1])
                seen += tokens.shape[1]
                fresh = {"token_ids": value(tokens), "positions": value(positions)}
                logits, *cache = decoder.run_with_ort_values(["logits", *presents], given | fresh)
                given.update(zip(pasts, cache, strict=True))
                return logits.numpy()

            ids += decoding.greedy(batch, step)
        return ids

    return run
