"""The test kit for plugins: a model beside its transformers reference, on small random weights.

Imported by the tests of plugins, never by Transept itself. It raises AssertionErrors, so it works with any test runner.
It needs only Transept's dependencies, of which torch and transformers load when a check runs.
"""

from transept.testing.parity import CHECKS, Parity
from transept.testing.reference import step_by_step

__all__ = ["CHECKS", "Parity", "step_by_step"]
