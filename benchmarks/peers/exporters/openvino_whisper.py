"""Whisper for OpenVINO: python -m benchmarks.peers.exporters.openvino_whisper FOLDER

FOLDER/huggingface -> FOLDER/openvino/KIND: `float32`; `int8`, in which weights are rounded, by channel; and
`int8-encoder`, whose encoder computes in int8 as well, with ranges taken from the project's recordings of speech.
All that openvino-genai's pipeline reads is beside the models.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nncf
import openvino
import soundfile
from openvino_tokenizers import convert_tokenizer
from optimum.intel import OVModelForSpeechSeq2Seq
from scipy.signal import resample_poly
from transformers import AutoTokenizer

from benchmarks.peers.environment import REPOSITORY
from benchmarks.peers.exporters.openvino_models import ENCODER, compressed, write_variant
from benchmarks.peers.workers.whisper_inputs import SAMPLE_RATE, WINDOW, feature_batches

SPEECH = REPOSITORY / "tests" / "data" / "speech"  # for calibration; what is timed is among it, to OpenVINO's advantage

CALIBRATION_WINDOWS = 16  # evenly taken from all


def main(folder: Path) -> None:
    """Write all kinds that are not there."""
    source = folder / "huggingface"
    exact, rounded, static = (folder / "openvino" / kind for kind in ("float32", "int8", "int8-encoder"))
    if not exact.exists():
        partial = exact.with_suffix(".partial")
        OVModelForSpeechSeq2Seq.from_pretrained(source, export=True, compile=False, load_in_8bit=False).save_pretrained(
            partial
        )
        tokenizer, detokenizer = convert_tokenizer(AutoTokenizer.from_pretrained(source), with_detokenizer=True)
        openvino.save_model(tokenizer, partial / "openvino_tokenizer.xml")
        openvino.save_model(detokenizer, partial / "openvino_detokenizer.xml")
        for name in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"):
            shutil.copy(source / name, partial)
        partial.rename(exact)
    if not rounded.exists():
        write_variant(exact, rounded, compressed(exact / ENCODER))
    if not static.exists():
        write_variant(exact, static, quantized(exact / ENCODER, source))


def quantized(file: Path, source: Path) -> openvino.Model:
    """The encoder with weights and activations in int8."""
    waveforms = []
    for recording in sorted(SPEECH.rglob("*.flac")):
        given, sample_rate = soundfile.read(recording, dtype="float32")
        waveform = resample_poly(given, SAMPLE_RATE, sample_rate)
        waveforms += [waveform[start : start + WINDOW] for start in range(0, len(waveform), WINDOW)]
    chosen = waveforms[:: max(1, len(waveforms) // CALIBRATION_WINDOWS)]
    features = [window[None] for batch in feature_batches(source, chosen) for window in batch]
    return nncf.quantize(
        openvino.Core().read_model(file),
        nncf.Dataset(features, lambda window: {"input_features": window}),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(features),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
