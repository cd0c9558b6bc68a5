"""How the process of a command ends: nothing is lost, and where torch is loaded the interpreter is not taken down."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import atexit, sys, threading

class Left:
    def __del__(self):
        print("taken down")

left = Left()
atexit.register(print, "registered")
{more}
sys.argv = ["transept", *{arguments}]
from transept.__main__ import run
run()
"""
HEED = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background does not
INTERRUPTED = f"{HEED}; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
EARLY = f"""
{HEED}
is_parser = lambda event, given: event == "import" and given[0] == "transept.cli.parser"
sys.addaudithook(lambda *told: is_parser(*told) and os.kill(os.getpid(), signal.SIGINT))
"""
THREAD = "threading.Thread(target=lambda: (threading.main_thread().join(), print('waited for'))).start()"


def ended(arguments: list[str], more: str = "") -> subprocess.CompletedProcess[str]:
    command = COMMAND.format(arguments=arguments, more=more)
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)


def end_of(arguments: list[str], more: str = "") -> tuple[int, list[str]]:
    ran = ended(arguments, more)
    return ran.returncode, ran.stdout.splitlines()


def test_what_is_registered_for_the_end_is_called_and_no_more_is_done() -> None:
    code, lines = end_of(["env"])  # which loads torch
    assert code == 0
    assert any(line.startswith("cores") for line in lines)
    assert lines[-1] == "registered"


def test_a_profiler_says_what_it_found() -> None:
    command = [sys.executable, "-m", "cProfile", "-m", "transept", "env"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "function calls" in ran.stdout


def test_threads_that_python_waits_for_are_waited_for() -> None:
    assert end_of(["env"], THREAD)[1][-3:] == ["waited for", "registered", "taken down"]


def test_without_torch_python_ends_as_ever() -> None:
    code, lines = end_of(["plugins", "list"])
    assert code == 0
    assert lines[-2:] == ["registered", "taken down"]


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    code, lines = end_of(["transcribe", __file__, "--model", missing])  # torch is loaded before the model is looked for
    assert (code, lines[-1]) == (1, "registered")


@pytest.mark.parametrize("command", ["env", "plugins list"], ids=["with torch", "without"])
def test_an_interruption_after_the_command_changes_nothing(command: str) -> None:
    ran = ended(command.split(), INTERRUPTED)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") > 3


def test_an_interruption_before_the_command_ends_it_quietly() -> None:
    ran = ended(["env"], EARLY)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
