"""How tests wait for what another thread or process does: until it is done, however busy the machine is."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 600.0  # seconds until a test gives up. No measure of speed: what still runs may get little of a busy machine


def wait_until(condition: Callable[[], Any], told: Callable[[], Any] = str, seconds: float = PATIENCE) -> Any:
    """Return what a condition gives once that is true. told: what a failure says besides. seconds: until it fails."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up, told()
        time.sleep(0.02)
    return found
