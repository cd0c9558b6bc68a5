"""Transept's kernels, for operations in which PyTorch's operators do not use the speed of memory or processor."""
