"""The plugins of examples/, installed side by side: the tests that they bring pass."""

import re

import pytest
from fresh_environment import EXAMPLES, FreshEnvironment


@pytest.mark.slow
def test_their_own_tests_pass(examples: FreshEnvironment) -> None:
    """Every example has tests, and all of them run: none is skipped."""
    options = ("-v", "--import-mode=importlib", "-p", "no:cacheprovider")
    folders = sorted(EXAMPLES.glob("transept-*/tests"))
    done = examples.run("-m", "pytest", *options, *folders)
    assert done.returncode == 0, done.stdout
    outcomes = re.findall(r"(transept-\w+)/tests/\S+ (\w+)", done.stdout)
    assert {name for name, outcome in outcomes if outcome == "PASSED"} == {
        path.name for path in EXAMPLES.glob("transept-*")
    }
    assert all(outcome == "PASSED" for _, outcome in outcomes)
