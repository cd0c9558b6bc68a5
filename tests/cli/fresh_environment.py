"""Virtual environments of their own, for tests that install distributions into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

# Runs commands, given as JSON, and prints the exit code, output and errors of each.
COMMANDS = """
import contextlib, io, json, sys
from transept.cli import main
done = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as refused:  # options that do not fit
            code = refused.code
    done.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""
EXAMPLES = Path(__file__).parents[2] / "examples"
PARENT = Path(sysconfig.get_path("purelib"))  # the packages of the environment that runs the tests


@dataclass(frozen=True)
class FreshEnvironment:
    """A virtual environment without a pip of its own, in which nothing is set that the tests' environment has set."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self, *command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments, away from the checkout. Returns its exit code and its output."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRANSEPT_"))}
        environ = {**inherited, "OMP_NUM_THREADS": "1", **environ}
        done = [self.python, *map(str, command)]
        return subprocess.run(done, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)

    def transept(self, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "transept", *arguments, **environ)

    def commands(self, *commands: tuple[str | Path, ...]) -> list[subprocess.CompletedProcess[str]]:
        """Run several ``transept ...`` in one process, which loads torch once."""
        done = self.run("-c", COMMANDS, json.dumps([[*map(str, command)] for command in commands]))
        assert done.returncode == 0, done.stderr
        return [subprocess.CompletedProcess([], *each) for each in json.loads(done.stdout)]

    def install(self, *what: str | Path) -> None:
        """Install offline and without dependencies, by uv, which takes half of pip's time."""
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", self.python, "--quiet", "--no-cache"]
        subprocess.run([*uv, "--no-deps", "--no-build-isolation", "--no-index", *map(str, what)], check=True)


def make_environment(folder: Path, visible: Path = PARENT) -> FreshEnvironment:
    """A new environment that also sees the packages in the folder `visible`."""
    environment = FreshEnvironment(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    where = environment.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    # The .pth files of that folder (an editable Transept) are read as well, and its packages come last.
    Path(where, "visible.pth").write_text(f"import site; site.addsitedir({str(visible)!r})\n", encoding="utf-8")
    return environment
