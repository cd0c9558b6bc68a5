"""Installs into .venv what pip's arguments say, by uv with pip's settings: in a third of the time. By pip if uv cannot.

pip's settings say where packages are found; uv reads none of them, and takes its own from the environment.
"""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = ".venv/bin/python"
# pip's setting -> uv's variable
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
}


def settings(python: str = PYTHON) -> dict[str, str]:
    """What the pip of a Python was told, as uv takes it. What stands later in pip's list counts."""
    listed = subprocess.run([python, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True).stdout
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # pip, too, takes the newest of all indexes
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        variable = VARIABLES.get(name.rpartition(".")[2])
        if variable is not None:
            words = str(ast.literal_eval(value)).split()
            found[variable] = ",".join(words) if variable == "UV_FIND_LINKS" else " ".join(words)
    return found


def install(arguments: list[str], folder: str) -> int:
    """Run uv, or else pip, and return its exit code. folder: for a temporary file."""
    if "/dev/stdin" in arguments:  # is read once
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(sys.stdin.read(), encoding="utf-8")
        arguments[arguments.index("/dev/stdin")] = str(requirements)
    pip = [PYTHON, "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*pip, "uv"], check=False)
    if not done.returncode:
        uv = [PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON, "--quiet"]
        done = subprocess.run([*uv, *arguments], check=False, env={**os.environ, **settings()})
    if done.returncode:
        print("uv could not install; pip is tried", file=sys.stderr)
        done = subprocess.run([*pip, *arguments], check=False)
    return done.returncode


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(install(sys.argv[1:], folder))
