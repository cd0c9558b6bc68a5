"""BART and T5 on OpenVINO, by a loop of ours: what its runtime takes without transformers around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.peers.workers.openvino_whisper import Settings
    from benchmarks.turns import Runner

BATCH = 16  # documents, of similar lengths since they are sorted, as CTranslate2 has them


def runner(folder: Path, settings: Settings, start: int, eos: int, pad: int, new_tokens: int) -> Runner:
    """folder: of the exported models. start, eos, pad: token ids. new_tokens: of each document; none of them is eos."""
    import openvino

    core = openvino.Core()
    encoder, decoder = (
        core.compile_model(folder / f"openvino_{part}_model.xml", "CPU", settings).create_infer_request()
        for part in ("encoder", "decoder")
    )

    def greedy(documents: list[list[int]]) -> list[list[int]]:
        ids = np.full((len(documents), max(map(len, documents))), pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(documents):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        encoder.infer({"input_ids": ids, "attention_mask": mask}, share_inputs=True)
        given: dict[str, Any] = {
            "encoder_hidden_states": encoder.get_tensor("last_hidden_state"),
            "encoder_attention_mask": mask,
            "beam_idx": np.arange(len(documents), dtype=np.int32),
        }
        decoder.reset_state()
        last = np.full((len(documents), 1), start, dtype=np.int64)
        found = []
        for _ in range(new_tokens):
            decoder.infer({"input_ids": last, **given}, share_inputs=True)
            logits = decoder.get_tensor("logits").data[:, -1]
            logits[:, eos] = -np.inf
            last = logits.argmax(axis=1, keepdims=True)
            found.append(last)
        return np.concatenate(found, axis=1).tolist()

    def run(documents: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(documents)), key=lambda index: len(documents[index]))
        outputs: list[list[int]] = [[]] * len(documents)
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            for index, tokens in zip(batch, greedy([documents[index] for index in batch]), strict=True):
                outputs[index] = tokens
        return outputs

    return run
