"""Fresh environments into which pip really installs the plugins of tests/third_party."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

THIRD_PARTY = Path(__file__).parents[1] / "third_party"
EVERY_PLUGIN = tuple(sorted(path.parent.name for path in THIRD_PARTY.glob("*/pyproject.toml")))


@dataclass(frozen=True)
class Environment:
    """A virtual environment that sees Transept and what it needs, and has some plugins installed."""

    folder: Path

    @property
    def python(self) -> str:
        scripts = "Scripts" if os.name == "nt" else "bin"
        return str(self.folder / scripts / "python")

    def run(self, code: str, *arguments: str, disable: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script in the environment, away from the checkout. Returns its exit code and its output."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRANSEPT_"))}
        if disable is not None:
            environ["TRANSEPT_DISABLE_PLUGINS"] = disable
        command = [self.python, "-c", code, *arguments]
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)

    def cli(self, *arguments: str, disable: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``transept ...`` in the environment."""
        return self.run("import sys; from transept.cli import main; sys.exit(main())", *arguments, disable=disable)


def make_environment(folder: Path, plugins: tuple[str, ...]) -> Environment:
    environment = Environment(folder / "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
    # The packages of the environment that runs the tests, with its own .pth files (an editable Transept), come last.
    parent = sysconfig.get_path("purelib")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    child = subprocess.run([environment.python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    Path(child, "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n", encoding="utf-8")
    sources = [str(shutil.copytree(THIRD_PARTY / plugin, folder / plugin)) for plugin in plugins]
    pip = [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", *sources], check=True)
    return environment
