"""Draws docs/images/terminal.svg, an animated recording of the commands in README.md: `make recording`.

    python docs/terminal.py FOLDER

FOLDER has the files that the commands name: talk.flac, and a checkpoint `base` if it is not to be downloaded. Each
command runs; its lines appear as they came, with pauses cut to a second. The last picture comes first, for viewers that
show one picture, and alone for a reader who asks for less motion.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
COLUMNS = 116
LINE, CHARACTER, MARGIN = 19, 7.83, 18  # pixels, of a font of 13
TYPING = 0.035  # seconds a character
LONGEST_PAUSE = 1.0  # seconds
END = 6.0  # seconds that the last picture stays
# Colours of the server's page where the reader prefers a dark one.
PAPER, INK, MUTED, ACCENT = "#151619", "#e8e6e1", "#a5a39c", "#a8b8ff"


class Line(NamedTuple):
    """A line of the terminal. at: seconds from the beginning; typed: seconds that typing it takes, 0 for output."""

    at: float
    text: str
    typed: float = 0.0


def readme_commands() -> list[str]:
    """Return the commands of README.md, in their order."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def record(folder: Path) -> list[Line]:
    """Run the commands in a folder."""
    lines: list[Line] = []
    now = 0.5
    with contextlib.ExitStack() as servers:
        for command in readme_commands():
            typed = TYPING * len(command)
            lines.append(Line(now, f"$ {command}", typed))
            now += typed + 0.4
            serves = shlex.split(command)[:2] == ["transept", "serve"]
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if serves else subprocess.STDOUT,
                text=True,
            )
            assert process.stdout is not None
            before = time.monotonic()
            for line in process.stdout:
                now += min(time.monotonic() - before, LONGEST_PAUSE)
                before = time.monotonic()
                lines += [Line(now, part) for part in wrapped(line.rstrip())]
                if serves:
                    servers.callback(process.wait)
                    servers.callback(process.terminate)
                    wait_until_ready(re.findall(r"http://\S+/ready", line)[0])
                    break
            now += LONGEST_PAUSE
    return lines


def wrapped(line: str) -> list[str]:
    """Cut a line as a terminal does."""
    return [line[place : place + COLUMNS] for place in range(0, max(len(line), 1), COLUMNS)]


def wait_until_ready(url: str) -> None:
    """Wait until a server has loaded its models."""
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url).close()
            return
        time.sleep(0.1)


def drawing(lines: list[Line]) -> str:
    """Return the animation as an SVG without scripts: one repeated animation a line, each as long as the whole."""
    whole = lines[-1].at + END
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), (len(lines) + 1) * LINE + 2 * MARGIN
    styles, rows = [], []
    for number, line in enumerate(lines):
        begin, end = (100 * moment / whole for moment in (line.at, line.at + line.typed))
        top = MARGIN + (number + 1) * LINE
        text = f'<text x="{MARGIN}" y="{top + LINE - 5}">{escape(line.text)}</text>'
        if line.typed:
            styles.append(
                f"@keyframes k{number}{{0%,{begin:.3f}%{{transform:scaleX(0);animation-timing-function:"
                f"steps({len(line.text)})}}{end:.3f}%,100%{{transform:scaleX(1)}}}}"
            )
            rows.append(
                f'<clipPath id="c{number}"><rect x="{MARGIN}" y="{top}" width="{len(line.text) * CHARACTER:.1f}" '
                f'height="{LINE}" class="typed" style="animation-name:k{number}"/></clipPath>'
                f'<g class="command" clip-path="url(#c{number})">{text}</g>'
            )
        else:
            styles.append(f"@keyframes k{number}{{0%,{begin:.3f}%{{opacity:0}}{begin + 0.001:.3f}%,100%{{opacity:1}}}}")
            rows.append(f'<g class="output" style="animation-name:k{number}">{text}</g>')
    style = (
        f"text{{font:13px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre;fill:{INK}}}"
        f".command text{{fill:{ACCENT}}}.typed{{transform-origin:{MARGIN}px 0}}"
        "@media (prefers-reduced-motion:no-preference)"
        f"{{.typed,.output{{animation:{whole:.2f}s {END / 2 - whole:.2f}s infinite both}}}}" + "".join(styles)
    )
    dots = "".join(f'<circle cx="{MARGIN + 4 + 16 * place}" cy="16" r="4.5" fill="{MUTED}"/>' for place in range(3))
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>Commands of Transept and what they print</title>\n<style>{style}</style>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>{dots}\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    (HERE / "images" / "terminal.svg").write_text(drawing(record(Path(sys.argv[1]))), encoding="utf-8")
