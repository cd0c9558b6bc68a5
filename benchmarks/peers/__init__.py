"""Other engines for the same models, on the same weights: OpenVINO, ONNX Runtime and whisper.cpp.

They need other versions of libraries than the project, so `make peers` gives them an environment of their own. `export`
makes their files and `whisper` and `text` compare; these run in the project's environment. `workers` and `exporters`
run in that of the peers.
"""

IN_BFLOAT16 = ("transept-bfloat16", "openvino", "optimum-intel", "openvino-genai", "whisper.cpp-f16")


def ours_beside(engine: str) -> str:
    """Transept in the precision that an engine computes in, by its name."""
    if "int8" in engine or "q8" in engine:
        return "transept-int8"
    return "transept-bfloat16" if engine in IN_BFLOAT16 else "transept"
