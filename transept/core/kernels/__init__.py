"""Kernels of ours, where PyTorch's own operators stay far from the speed of the memory or the processor."""
