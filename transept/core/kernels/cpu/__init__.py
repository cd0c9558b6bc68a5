"""Kernels for CPUs, in C++: built by setup.py, loaded by library.py, called by modules that check bounds."""
