"""Other engines for the same models, on the same weights: OpenVINO, ONNX Runtime and whisper.cpp.

They need other versions of libraries than the project, so `make peers` gives them an environment of their own. `export`
makes their files and `whisper` and `text` compare; these run in the project's environment. `workers` and `exporters`
run in that of the peers.
"""
