"""The test kit for plugins: a model beside its transformers reference, on small random weights.

Imported by the tests of whoever writes a model, never by Transept itself. It raises AssertionErrors, so any test runner
serves. Needs what Transept needs and nothing more: torch and transformers, loaded when a check runs.
"""

from transept.testing.parity import CHECKS, Parity
from transept.testing.reference import step_by_step

__all__ = ["CHECKS", "Parity", "step_by_step"]
