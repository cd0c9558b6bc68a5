"""How a row of the tables here is judged: the call is refused with a TranseptError, soon and in little memory.

Time is this process's processor time, which a busy machine does not stretch, and counts from the call; what a first
call imports and compiles is paid by the fixtures. Calls that could block are `watched` as well.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from peak_memory import forget_peak, peak

from transept.errors import ParameterError, TranseptError

MOST_SECONDS = 2.0  # of processor time
MOST_KILOBYTES = 500_000  # that the process may grow by
PATIENCE = 20.0  # seconds after which a call that could block counts as blocked

Table = dict[str, tuple[Callable[..., Any], str]]  # what is broken -> (the call, what the message names)


def table(rows: Table) -> Any:
    """Decorator of a test that takes `call` and `names`: one test a row."""
    return pytest.mark.parametrize(("call", "names"), rows.values(), ids=list(rows))


def refused(call: Callable[[], Any], names: str) -> TranseptError:
    """The TranseptError of a call, whose message holds `names` in any case, and which knows its option."""
    before, since = forget_peak(), time.process_time()
    with pytest.raises(TranseptError) as raised:
        call()
    seconds, kilobytes = time.process_time() - since, peak() - before
    message = str(raised.value)
    assert message.strip()
    assert names.casefold() in message.casefold()
    assert seconds < MOST_SECONDS
    assert kilobytes < MOST_KILOBYTES
    if isinstance(raised.value, ParameterError):
        assert raised.value.param
        assert f"{{{raised.value.param}" not in message  # every door writes it in its own way
    return raised.value


def watched(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, made in a thread that is given up when it blocks."""
    outcome: list[Any] = []

    def make() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, f"it still blocks after {PATIENCE:g} seconds"
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
