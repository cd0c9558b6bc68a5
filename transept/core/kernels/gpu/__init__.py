"""Kernels for GPUs, written in Triton, which is imported when the first of them runs."""
