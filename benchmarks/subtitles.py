"""Count the publishers' rules that subtitles break, laid out by these rules or as by openai-whisper.

    python -m benchmarks.subtitles [--models tiny.en base] [--seeds 0 1 2] [--styles netflix bbc youtube]

The recordings are the ones of `benchmarks.modes`: 20 minutes with pauses of 0.3 to 20 s for each seed, and the reading
of *Sense and Sensibility* without such pauses. The plain layout has the width and the lines of each style. Every
broken rule of a styled layout is printed, with the words of its subtitle.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.modes import Recording, book, with_pauses
from benchmarks.whisper import checkpoint
from transept import SubtitleLayout, Transcriber, Transcript
from transept.speech.output.broken_rules import BrokenRule, broken_rules
from transept.speech.output.subtitles import Cue, make_cues


def main() -> None:
    """Print a row for each model, recording and layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--styles", nargs="+", default=["netflix", "bbc", "youtube"])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    print("| model | recording | layout | subtitles | rules broken | CPU |\n| --- | --- | --- | --- | --- | --- |")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            transcriber = Transcriber(checkpoint(name, Path(scratch)), threads=arguments.threads)
            for recording in [*map(with_pauses, arguments.seeds), book()]:
                transcript = transcriber.transcribe(recording.waveform, word_timestamps=True, language="en")
                for style in arguments.styles:
                    print_rows(name, recording, transcript, style)


def print_rows(model: str, recording: Recording, transcript: Transcript, style: Any) -> None:
    """Lay a transcript out by a style and plainly, and print the rules of the style that each layout breaks."""
    styled = SubtitleLayout(style=style)
    rules = styled.rules("en")
    width, count = int(rules.max_line_width or 0), rules.max_line_count
    for name, layout in ((style, styled), ("plain", SubtitleLayout(max_line_width=width, max_line_count=count))):
        begin = time.process_time()
        cues = list(make_cues(transcript.segments, layout, "en"))
        spent = time.process_time() - begin
        broken = broken_rules(cues, rules)
        kinds = ", ".join(f"{rule} {number}" for rule, number in Counter(each.rule for each in broken).most_common())
        title = name if layout is styled else f"plain, {width} characters, {count} lines: rules of {style}"
        print(f"| {model} | {recording.name} | {title} | {len(cues)} | {kinds or 'none'} | {spent:.2f} s |", flush=True)
        if layout is styled:
            print_broken(cues, broken)


def print_broken(cues: list[Cue], broken: list[BrokenRule]) -> None:
    """Print each broken rule with its subtitle and the start of the next."""
    for each in broken:
        cue, following = cues[each.number - 1], cues[each.number : each.number + 1]
        until = f", the next at {following[0].start / 1000:.2f}" if following else ""
        print(f"    {cue.start / 1000:.2f} to {cue.end / 1000:.2f}{until}: {each}: {cue.text!r}")


if __name__ == "__main__":
    main()
