"""Draws docs/images/speed.svg from docs/data/*.json, which the benchmarks write: `make figures`.

    python -m benchmarks.whisper --json docs/data/whisper.json
    python -m benchmarks.text --json docs/data/text.json
    python -m benchmarks.transcription --json docs/data/transcription.json
    python docs/figures.py

Of each comparison the first engine is Transept; a bar says how many times its time another engine takes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# file in docs/data -> title, and which of its comparisons are drawn
PANELS = {
    "whisper": ("Whisper, 5 windows", ".*"),
    "transcription": ("Whisper, whole recordings", ".*prompts-en (sequential|batched)"),
    "text": ("BART and T5, 32 documents", ".*"),
}
LEFT_OUT = {"transept", "transept, no context", "faster-whisper, timestamps"}
# engine -> its colour, and that where the reader's background is dark
COLOURS = {
    "transformers": ("#bc4c00", "#f0883e"),
    "ctranslate2": ("#0969da", "#58a6ff"),
    "faster-whisper": ("#8250df", "#bc8cff"),
}
LABELS = {"ctranslate2": "CTranslate2"}
INK, QUIET, CARD = ("#1f2328", "#e6edf3"), ("#57606a", "#9da7b3"), ("#f6f8fa", "#161b22")


class Bar(NamedTuple):
    """One bar. task: such as ``tiny.en, int8``; ratio: the engine's time by Transept's."""

    task: str
    engine: str
    ratio: float


def bars(name: str) -> list[Bar]:
    """The bars of a panel, in the order of its file."""
    found: dict[str, Any] = json.loads((HERE / "data" / f"{name}.json").read_text(encoding="utf-8"))
    wanted = re.compile(PANELS[name][1])
    return [
        Bar(label(comparison["name"]), row["engine"], row["ratio"])
        for comparison in found["comparisons"]
        if wanted.fullmatch(comparison["name"])
        for row in comparison["rows"]
        if row["engine"] not in LEFT_OUT
    ]


def label(name: str) -> str:
    """A comparison's name without what the title of its panel says."""
    parts = name.split(", ")
    task = parts[2].rpartition(" ")[2]
    return f"{parts[0]}, {task if task in ('sequential', 'batched') else parts[1]}"


def draw(file: Path) -> None:
    """Draw all panels, one above the other, into an SVG for light and dark pages."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "transept", "font.size": 11})
    matplotlib.rcParams["font.family"] = ["sans-serif"]
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    panels = {PANELS[name][0]: bars(name) for name in PANELS}
    sizes = [len(panel) + len({bar.task for bar in panel}) for panel in panels.values()]
    longest = max(bar.ratio for panel in panels.values() for bar in panel)
    figure, axes = pyplot.subplots(
        len(panels), sharex=True, figsize=(8.4, 0.19 * sum(sizes) + 1.6), height_ratios=sizes, layout="constrained"
    )
    figure.set_facecolor(CARD[0])
    figure.suptitle("Time taken, as a multiple of Transept's", color=INK[0], fontsize=13)
    for axis, (title, panel) in zip(axes, panels.items(), strict=True):
        place, ticks, last = 0.0, {}, ""
        for bar in panel:
            place += 0.45 if last and bar.task != last else 0
            ticks.setdefault(bar.task, []).append(place)
            last = bar.task
            axis.barh(place, bar.ratio, height=0.86, color=COLOURS[bar.engine][0])
            axis.text(bar.ratio + 0.03, place, f"{bar.ratio:.2f}", va="center", color=QUIET[0], fontsize=10)
            place += 1
        axis.set_yticks([sum(places) / len(places) for places in ticks.values()], list(ticks), color=INK[0])
        axis.set_title(title, loc="left", color=INK[0], fontsize=11.5)
        axis.axvline(1, color=INK[0], linewidth=1.2)
        axis.set_xlim(0, longest + 0.3)
        axis.set_facecolor(CARD[0])
        axis.invert_yaxis()
        axis.tick_params(colors=QUIET[0], labelcolor=INK[0], length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    engines = dict.fromkeys(bar.engine for panel in panels.values() for bar in panel)
    handles = [Patch(color=COLOURS[engine][0], label=LABELS.get(engine, engine)) for engine in engines]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), labelcolor=INK[0], frameon=False, fontsize=11
    )
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    file.write_text(for_dark_pages(file.read_text(encoding="utf-8")), encoding="utf-8")


def for_dark_pages(svg: str) -> str:
    """The drawing with a second set of colours, which a browser takes where the reader prefers dark pages.

    Colours move from each element into classes, of which there are two kinds: f0, f1, ... fill, s0, s1, ... draw lines.
    """
    pairs = (INK, QUIET, CARD, *COLOURS.values())
    classes = {
        f"{what}: {pair[0]}": f"{what[0]}{number}" for number, pair in enumerate(pairs) for what in ("fill", "stroke")
    }

    def with_classes(match: re.Match[str]) -> str:
        rules = match[1].split("; ")
        names = " ".join(classes[rule] for rule in rules if rule in classes)
        rest = "; ".join(rule for rule in rules if rule not in classes)
        return " ".join(f'{key}="{value}"' for key, value in (("class", names), ("style", rest)) if value)

    def style(theme: int) -> str:
        return "".join(
            f".{what[0]}{number}{{{what}:{pair[theme]}}}"
            for number, pair in enumerate(pairs)
            for what in ("fill", "stroke")
        )

    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    svg = re.sub(r'style="([^"]*)"', with_classes, svg)
    styles = f"<style>{style(0)} @media (prefers-color-scheme: dark){{{style(1)}}}</style>"
    return re.sub(r"(<svg [^>]*>)", rf"\1\n {styles}", svg, count=1)


if __name__ == "__main__":
    draw(HERE / "images" / "speed.svg")
