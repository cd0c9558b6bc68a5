"""The plugins of examples/, installed side by side: the tests that they bring pass."""

import re
from collections import Counter

import pytest
from fresh_environment import EXAMPLES, FreshEnvironment

NUM_TESTS = {
    "fsmt": 18,
    "led": 8,
    "marian": 12,
    "moonshine": 6,
    "seamless": 28,
    "speech2text": 30,
    "speecht5": 15,
    "t5gemma": 18,
    "voices": 9,
}


def test_all_are_known() -> None:
    assert sorted(NUM_TESTS) == sorted(path.name.removeprefix("transept-") for path in EXAMPLES.iterdir())


@pytest.mark.slow
def test_their_own_tests_pass(examples: FreshEnvironment) -> None:
    options = ("-v", "--import-mode=importlib", "-p", "no:cacheprovider")
    folders = (EXAMPLES / f"transept-{name}" / "tests" for name in NUM_TESTS)
    done = examples.run("-m", "pytest", *options, *folders)
    assert done.returncode == 0, done.stdout
    assert Counter(re.findall(r"transept-(\w+)/tests/.* PASSED ", done.stdout)) == NUM_TESTS
