"""Kernels of ours for CPUs, compiled by Numba as they are first called and kept in its cache on disk.

Written where PyTorch's own operators stay far from the speed of the memory: products with few rows, and attention of
few queries over a paged cache. They take float32 and run on as many threads as PyTorch.
"""
