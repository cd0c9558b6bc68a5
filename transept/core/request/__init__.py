"""Prompts, sampling parameters and limits of requests. No torch here."""
