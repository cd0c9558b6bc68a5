"""Comparisons with other engines, which take turns, so that a noisy machine is noisy for all."""
