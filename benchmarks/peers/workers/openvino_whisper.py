"""Whisper on OpenVINO: its runtime in a loop of ours, optimum-intel's generate, and openvino-genai's pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.workers.whisper_inputs import Decoding, feature_batches

if TYPE_CHECKING:
    from benchmarks.turns import Runner

Settings = dict[str, str | int]  # of OpenVINO's CPU device, such as INFERENCE_PRECISION_HINT


def runtime_runner(model: Path, kind: str, settings: Settings) -> Runner:
    """The two compiled models, called by a loop of ours: what OpenVINO takes without transformers around it.

    kind: the folder of the exported models.
    """
    import openvino

    core = openvino.Core()
    encoder, decoder = (
        core.compile_model(
            model / "openvino" / kind / f"openvino_{part}_model.xml", "CPU", settings
        ).create_infer_request()
        for part in ("encoder", "decoder")
    )
    decoding = Decoding(model / "huggingface")

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        ids: list[list[int]] = []
        for features in feature_batches(model / "huggingface", waveforms):
            encoder.infer({"input_features": features}, share_inputs=True)
            given: dict[str, Any] = {
                "encoder_hidden_states": encoder.get_tensor("last_hidden_state"),
                "beam_idx": np.arange(len(features), dtype=np.int32),
            }
            decoder.reset_state()

            def step(tokens: np.ndarray, given: dict[str, Any] = given) -> np.ndarray:
                decoder.infer({"input_ids": tokens, **given}, share_inputs=True)
                return decoder.get_tensor("logits").data[:, -1]

            ids += decoding.greedy(len(features), step)
        return ids

    return run


def optimum_runner(model: Path, kind: str, settings: Settings) -> Runner:
    """optimum-intel's model class, whose `generate` is transformers'."""
    from optimum.intel import OVModelForSpeechSeq2Seq

    whisper = OVModelForSpeechSeq2Seq.from_pretrained(model / "openvino" / kind, device="CPU", ov_config=settings)
    decoding = Decoding(model / "huggingface")
    multilingual = {"language": "en", "task": "transcribe"} if whisper.generation_config.is_multilingual else {}

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        import torch

        ids: list[list[int]] = []
        for features in feature_batches(model / "huggingface", waveforms):
            for row in whisper.generate(torch.from_numpy(features), **multilingual).tolist():
                new = row[len(decoding.prompt) :] if row[: len(decoding.prompt)] == decoding.prompt else row
                ids.append(new[: new.index(decoding.end)] if decoding.end in new else new)
        return ids

    return run


def genai_runner(model: Path, kind: str, settings: Settings) -> Runner:
    """openvino-genai's pipeline, features included; it takes one window at a time, and its texts are made tokens."""
    import openvino_genai
    from tokenizers import Tokenizer

    pipeline = openvino_genai.WhisperPipeline(model / "openvino" / kind, "CPU", **settings)
    tokenizer = Tokenizer.from_file(str(model / "huggingface" / "tokenizer.json"))
    multilingual = len(Decoding(model / "huggingface").prompt) > 2
    spoken = {"language": "<|en|>", "task": "transcribe"} if multilingual else {}

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        texts = [pipeline.generate(waveform, return_timestamps=False, **spoken).texts[0] for waveform in waveforms]
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]

    return run
