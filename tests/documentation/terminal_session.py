"""Commands of a page's console blocks, run as in a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from patience import PATIENCE, wait_until

SERVER = "127.0.0.1:8000"  # in the pages


class Terminal:
    """Runs commands in the present folder and ends the servers that they started."""

    def __init__(self) -> None:
        self._servers = contextlib.ExitStack()
        self._address = SERVER  # of the last server that was started

    def run(self, command: str) -> str:
        """Return the standard output and standard error of a command, in the order of time."""
        command = self.own_address(command)
        printed = ""
        if command.startswith("cd "):
            os.chdir(command[3:])
        elif command.startswith("transept serve "):
            printed = self._serve(command)
        elif command.startswith("transept ") and not set(command) & set("|><;&$"):
            printed = self._in_process(shlex.split(command)[1:])
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PATH": path},
                timeout=PATIENCE,
            )
            printed = done.stdout
        return printed.replace(self._address, SERVER)

    def own_address(self, text: str) -> str:
        """Put the address of this page's server in place of the one that pages name."""
        return text.replace(SERVER, self._address)

    def close(self) -> None:
        """End the servers."""
        self._servers.close()

    def _in_process(self, arguments: list[str]) -> str:
        from transept.cli import main

        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        streams = contextlib.redirect_stdout(written), contextlib.redirect_stderr(written)
        with streams[0], streams[1], contextlib.suppress(SystemExit):  # of --help, and of bad usage
            main(arguments)
        return written.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def _serve(self, command: str) -> str:
        """Start a server; return the line with its address once its models are loaded."""
        said = self._servers.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115  closed with the servers
        server = subprocess.Popen(
            [sys.executable, "-m", "transept", *shlex.split(command)[1:]],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, "TRANSEPT_PORT": "0"},
        )
        self._servers.callback(server.wait)
        self._servers.callback(server.terminate)
        assert server.stdout is not None
        self._servers.enter_context(server.stdout)
        line = server.stdout.readline()
        if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
            self._address = found[1]
        wait_until(lambda: server.poll() is not None or self._is_ready())
        if server.poll() is not None:
            said.seek(0)
            raise AssertionError(f"`{command}` ended; its output: {line}{said.read()}")
        return line

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self._address}/ready").close()
        except OSError:
            return False
        return True
