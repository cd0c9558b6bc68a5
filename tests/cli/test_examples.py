"""The plugins of examples/, installed by pip side by side: the tests that they bring pass."""

import re
from collections import Counter

import pytest
from fresh_environment import EXAMPLES, FreshEnvironment

NUM_TESTS = {  # of each; in brackets those in bfloat16, which are among them
    "fsmt": (18, 3),
    "led": (8, 1),
    "marian": (12, 2),
    "moonshine": (6, 1),
    "seamless": (28, 3),
    "speech2text": (30, 2),
    "speecht5": (15, 2),
    "t5gemma": (18, 3),
    "voices": (9, 0),
}
QUICK = ("t5gemma",)


def test_all_are_known() -> None:
    assert sorted(NUM_TESTS) == sorted(path.name.removeprefix("transept-") for path in EXAMPLES.iterdir())


@pytest.mark.parametrize(
    ("names", "bfloat16"),
    [(QUICK, False), pytest.param(tuple(NUM_TESTS), True, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_their_own_tests_pass(examples: FreshEnvironment, names: tuple[str, ...], bfloat16: bool) -> None:
    options = ("-v", "--import-mode=importlib", "-p", "no:cacheprovider")
    chosen = () if bfloat16 else ("-k", "not bfloat16")
    done = examples.run("-m", "pytest", *options, *chosen, *(EXAMPLES / f"transept-{name}" / "tests" for name in names))
    assert done.returncode == 0, done.stdout
    passed = Counter(re.findall(r"transept-(\w+)/tests/.* PASSED ", done.stdout))
    assert passed == {name: NUM_TESTS[name][0] - (0 if bfloat16 else NUM_TESTS[name][1]) for name in names}
