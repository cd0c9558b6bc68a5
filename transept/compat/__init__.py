"""Interfaces of other libraries: a program written for one of them changes one import."""
