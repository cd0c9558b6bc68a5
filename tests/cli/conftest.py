"""What the tests of the command line share."""

from functools import partial

import pytest
from command_line import Command, in_process


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Runs ``transept ...`` in this process."""
    return partial(in_process, capfdbinary)
