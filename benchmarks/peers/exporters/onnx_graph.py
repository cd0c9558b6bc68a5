"""An ONNX graph as a list of calls, with the operators that ONNX Runtime has kernels for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20  # the first with Gelu
CONTRIB = "com.microsoft"  # ONNX Runtime's own operators
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
Shape = list[str | int]  # names are dimensions that are known when the model runs


class Graph:
    """Grows by `op`; values are names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        """An input of the graph."""
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def output(self, value: str, name: str, shape: Shape) -> None:
        """Name a float32 value and make it an output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, name: str, array: np.ndarray) -> str:
        """An initializer; one of the same name is taken to be the same."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def integers(self, *values: int) -> str:
        """A list of int64."""
        return self.constant("integers " + " ".join(map(str, values)), np.array(values, dtype=np.int64))

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The operator's first output."""
        return self.ops(kind, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any) -> list[str]:
        """All outputs of an operator. An input "" is left out."""
        names = [f"{kind}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, name=names[0], **attributes))
        return names

    def save(self, file: Path) -> None:
        """Write the model. ValueError: it is not a valid one."""
        graph = helper.make_graph(self.nodes, file.stem, self.inputs, self.outputs, list(self.constants.values()))
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        onnx.checker.check_model(model)
        onnx.save(model, file)
