"""Comparisons with other engines, run in the same process and in turn, so that a noisy machine is noisy for all."""
