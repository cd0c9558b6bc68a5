"""Transept's kernels, for operations where PyTorch's operators are slower than the memory or the processor allows."""
