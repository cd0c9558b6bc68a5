"""The two models of an encoder/decoder as optimum-intel exports them, and their weights in 8 bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import nncf
import openvino

ENCODER, DECODER = "openvino_encoder_model.xml", "openvino_decoder_model.xml"


def compressed(file: Path) -> openvino.Model:
    """The model with its weights in int8, by channel."""
    return nncf.compress_weights(openvino.Core().read_model(file), mode=nncf.CompressWeightsMode.INT8_ASYM)


def write_variant(exact: Path, target: Path, encoder: openvino.Model) -> None:
    """A folder with this encoder and the decoder's weights in int8. exact: the folder of both in float32."""
    partial = target.with_suffix(".partial")
    shutil.copytree(exact, partial, ignore=shutil.ignore_patterns("openvino_??coder_model.*"), dirs_exist_ok=True)
    openvino.save_model(encoder, partial / ENCODER, compress_to_fp16=False)
    openvino.save_model(compressed(exact / DECODER), partial / DECODER, compress_to_fp16=False)
    partial.rename(target)
