"""Whisper for ONNX Runtime: python -m benchmarks.peers.exporters.onnx_whisper FOLDER

FOLDER/huggingface -> FOLDER/onnx/KIND/encoder.onnx and decoder.onnx: `float32`, and `int8`, in which linear layers have
their weights in int8 and round their inputs to 8 bits as they come. The encoder ends with the keys and values of the
decoder's cross-attention, so that nothing is computed twice; attention is ONNX Runtime's MultiHeadAttention, in which a
step takes and returns the self-attention's cache.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file

from benchmarks.peers.exporters.onnx_graph import CONTRIB, Graph

PARTS = ("encoder", "decoder")


def main(folder: Path) -> None:
    """Write both kinds if they are not there."""
    source, exact, rounded = folder / "huggingface", folder / "onnx" / "float32", folder / "onnx" / "int8"
    if rounded.exists():
        return
    exact.mkdir(parents=True, exist_ok=True)
    whisper = Whisper(json.loads((source / "config.json").read_text()), load_file(source / "model.safetensors"))
    whisper.encoder().save(exact / "encoder.onnx")
    whisper.decoder().save(exact / "decoder.onnx")
    partial = rounded.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    for part in PARTS:
        quantize_dynamic(
            exact / f"{part}.onnx",
            partial / f"{part}.onnx",
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": 1, "MatMulConstBOnly": True},
        )
    partial.rename(rounded)


class Whisper:
    """The two graphs. config and tensors: Hugging Face's."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors
        self.width: int = config["d_model"]
        self.heads: int = config["decoder_attention_heads"]
        self.head_size = self.width // self.heads
        self.layers: int = config["decoder_layers"]
        self.positions: int = config["max_source_positions"]
        self.mels: int = config["num_mel_bins"]
        self.vocabulary: int = config["vocab_size"]

    def encoder(self) -> Graph:
        """From features [batch, mels, frames] to cross_{key,value}_LAYER [batch, heads, positions, head_size]."""
        graph = Graph()
        x = graph.input("features", "float32", ["batch", self.mels, 2 * self.positions])
        for name, stride in (("conv1", 1), ("conv2", 2)):
            weights = [self.weight(graph, f"model.encoder.{name}.{kind}") for kind in ("weight", "bias")]
            x = graph.op("Gelu", graph.op("Conv", x, *weights, pads=[1, 1], strides=[stride], kernel_shape=[3]))
        x = graph.op("Transpose", x, perm=[0, 2, 1])
        x = graph.op("Add", x, self.weight(graph, "model.encoder.embed_positions.weight"))
        for layer in range(self.layers):
            name = f"model.encoder.layers.{layer}"
            h = self.norm(graph, x, f"{name}.self_attn_layer_norm")
            q, k, v = (self.linear(graph, h, f"{name}.self_attn.{letter}_proj") for letter in "qkv")
            attended = graph.op("MultiHeadAttention", q, k, v, domain=CONTRIB, num_heads=self.heads)
            x = graph.op("Add", x, self.linear(graph, attended, f"{name}.self_attn.out_proj"))
            x = self.feed_forward(graph, x, name)
        x = self.norm(graph, x, "model.encoder.layer_norm")
        for layer in range(self.layers):
            for letter, kind in (("k", "key"), ("v", "value")):
                h = self.linear(graph, x, f"model.decoder.layers.{layer}.encoder_attn.{letter}_proj")
                h = graph.op("Reshape", h, graph.integers(0, 0, self.heads, self.head_size))
                h = graph.op("Transpose", h, perm=[0, 2, 1, 3])
                graph.output(h, f"cross_{kind}_{layer}", ["batch", self.heads, self.positions, self.head_size])
        return graph

    def decoder(self) -> Graph:
        """From token_ids [batch, tokens], positions [tokens], past_* and cross_* to the last logits, present_*."""
        graph = Graph()
        ids = graph.input("token_ids", "int64", ["batch", "tokens"])
        positions = graph.input("positions", "int64", ["tokens"])
        embeddings = self.weight(graph, "model.decoder.embed_tokens.weight")
        x = graph.op(
            "Add",
            graph.op("Gather", embeddings, ids),
            graph.op("Gather", self.weight(graph, "model.decoder.embed_positions.weight"), positions),
        )
        for layer in range(self.layers):
            x = self.decoder_layer(graph, x, layer)
        x = self.norm(graph, x, "model.decoder.layer_norm")
        last = graph.op("Gather", x, graph.constant("last", np.array(-1, dtype=np.int64)), axis=1)
        to_logits = graph.constant("to_logits", self.tensors["model.decoder.embed_tokens.weight"].T)
        graph.output(graph.op("MatMul", last, to_logits), "logits", ["batch", self.vocabulary])
        return graph

    def decoder_layer(self, graph: Graph, x: str, layer: int) -> str:
        """Hidden states after a layer, whose caches become inputs and outputs of the graph."""
        name, cache = f"model.decoder.layers.{layer}", {}
        for kind in ("key", "value"):
            shape = ["batch", self.heads]
            cache[kind] = graph.input(f"past_{kind}_{layer}", "float32", [*shape, "past", self.head_size])
            cache["cross " + kind] = graph.input(
                f"cross_{kind}_{layer}", "float32", [*shape, self.positions, self.head_size]
            )
        h = self.norm(graph, x, f"{name}.self_attn_layer_norm")
        q, k, v = (self.linear(graph, h, f"{name}.self_attn.{letter}_proj") for letter in "qkv")
        attended, key, value = graph.ops(
            "MultiHeadAttention", q, k, v, "", "", "", cache["key"], cache["value"],
            outputs=3, domain=CONTRIB, num_heads=self.heads, unidirectional=1,
        )  # fmt: skip
        for kind, present in (("key", key), ("value", value)):
            graph.output(present, f"present_{kind}_{layer}", ["batch", self.heads, "present", self.head_size])
        x = graph.op("Add", x, self.linear(graph, attended, f"{name}.self_attn.out_proj"))
        h = self.norm(graph, x, f"{name}.encoder_attn_layer_norm")
        q = self.linear(graph, h, f"{name}.encoder_attn.q_proj")
        attended = graph.op(
            "MultiHeadAttention", q, cache["cross key"], cache["cross value"], domain=CONTRIB, num_heads=self.heads
        )
        x = graph.op("Add", x, self.linear(graph, attended, f"{name}.encoder_attn.out_proj"))
        return self.feed_forward(graph, x, name)

    def feed_forward(self, graph: Graph, x: str, name: str) -> str:
        """Two linear layers and what they are added to."""
        h = self.linear(graph, self.norm(graph, x, f"{name}.final_layer_norm"), f"{name}.fc1")
        return graph.op("Add", x, self.linear(graph, graph.op("Gelu", h), f"{name}.fc2"))

    def linear(self, graph: Graph, x: str, name: str) -> str:
        """A linear layer, with its bias where it has one."""
        product = graph.op("MatMul", x, graph.constant(f"{name}.weight", self.tensors[f"{name}.weight"].T))
        return (
            graph.op("Add", product, self.weight(graph, f"{name}.bias")) if f"{name}.bias" in self.tensors else product
        )

    def norm(self, graph: Graph, x: str, name: str) -> str:
        """A LayerNorm."""
        weights = [self.weight(graph, f"{name}.{kind}") for kind in ("weight", "bias")]
        return graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=1e-5)

    def weight(self, graph: Graph, name: str) -> str:
        """A tensor of the checkpoint as it is."""
        return graph.constant(name, self.tensors[name])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
