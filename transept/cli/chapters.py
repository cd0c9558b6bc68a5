"""Chapters of transcripts, with titles and summaries, for ``transept summarize``; and transcripts as plain texts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from transept.cli.convert import read_transcript
from transept.cli.parser import in_flags
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.errors import ParameterError, PromptError, TranseptError
from transept.options import Option, declares_options, take_options
from transept.speech.sentences import sentence_ends

if TYPE_CHECKING:
    from transept.speech.paragraphs import Passage
    from transept.speech.segments import Segment
    from transept.text.generator import TextGenerator

TRANSCRIPTS = "transcripts"  # heading of the options
SUFFIXES = (".json", ".srt", ".vtt", ".ttml", ".ass", ".ssa")  # of files that may be transcripts
LONGEST_TITLE = 80  # characters


@declares_options("chapters have no option")
@dataclass(frozen=True)
class ChapterOptions:
    """Chapters of transcripts. Each has a title, which is the first sentence of its summary."""

    chapters: Annotated[
        bool, Option("summarize each chapter of transcripts and subtitles, after its time and title", group=TRANSCRIPTS)
    ] = False
    chapter_minutes: Annotated[
        float,
        Option("longest chapter; it is cut at the longest pause", group=TRANSCRIPTS, metavar="M", ge=0.1, le=10_000),
    ] = 5.0
    markdown: Annotated[bool, Option("print chapters with headings in Markdown", group=TRANSCRIPTS)] = False

    def __post_init__(self) -> None:
        take_options(self)


def check_chapters(arguments: argparse.Namespace) -> None:
    """Exit with a usage error for options that contradict each other. Raises ParameterError for an invalid one."""
    options = ChapterOptions(arguments.chapters, arguments.chapter_minutes, arguments.markdown)
    error = arguments.parser.error
    if not options.chapters and (options.markdown or "chapter_minutes" in arguments.parser.given):
        error("--markdown and --chapter-minutes apply to chapters; add --chapters")
    if options.chapters and arguments.stream:
        error("--stream prints one text piece by piece, not chapters; leave one out")
    if options.chapters and ((arguments.n or 1) > 1 or (arguments.num_return_sequences or 1) > 1):
        error("--n and --num-return-sequences print several texts of a document, not chapters; leave one out")
    if options.markdown and arguments.json:
        error("--markdown and --json are two forms of the output; leave one out")


def run_chapters(arguments: argparse.Namespace, load: Callable[[], TextGenerator], **options: Any) -> int:
    """Print the chapters of the files, and return the exit code. options: of the text task.

    load: loads the model. It is not called if no file can be read.
    """
    chosen = ChapterOptions(arguments.chapters, arguments.chapter_minutes, arguments.markdown)
    if not (options.get("truncate") or options.get("chunk")):
        options["chunk"] = True  # a chapter may be longer than the model's input
    num_failed = 0
    found_passages: dict[str, list[Passage]] = {}
    for file in arguments.files:
        try:
            found_passages[file] = read_transcript(file).chapters(60 * chosen.chapter_minutes)
        except TranseptError as error:
            num_failed += 1
            print_stderr(f"transept: {escape_name(file)}: {in_flags(error, arguments.parser)}")
    generator = load() if found_passages else None
    for file, passages in found_passages.items():
        assert generator is not None
        try:
            summaries = _summaries(generator, passages, options)
        except TranseptError as error:
            num_failed += 1
            print_stderr(f"transept: {escape_name(file)}: {in_flags(error, arguments.parser)}")
            continue
        found = [_chapter(each, text) for each, text in zip(passages, summaries, strict=True)]
        if arguments.json:
            print(escape(json.dumps({"file": file, "chapters": found}, ensure_ascii=False)), flush=True)
        else:
            named = file if chosen.markdown or len(arguments.files) > 1 else ""
            print(escape(_shown(found, named, markdown=chosen.markdown)), flush=True)
    return 1 if num_failed else 0


def transcript_text(file: str) -> str | None:
    """Return the text of a transcript or of subtitles, in paragraphs; None for a file that is neither."""
    if Path(file).suffix.lower() not in SUFFIXES:
        return None
    try:
        return _plain_text(read_transcript(file).segments)
    except (ParameterError, PromptError):
        return None


def _summaries(generator: TextGenerator, passages: Sequence[Passage], options: Mapping[str, Any]) -> list[str]:
    """Return a summary of each passage. Raises the error of the first one that fails."""
    results = generator.summarize([_plain_text(each.segments) for each in passages], **options) if passages else []
    for each in results:
        if each.error is not None:
            raise each.error
    return [each.text for each in results]


def _plain_text(segments: Sequence[Segment]) -> str:
    """Return the text of segments, one paragraph a line, each after its speaker's name."""
    from transept.speech.paragraphs import paragraphs

    return "\n".join(f"{each.segments[0].attribution}{each.text}" for each in paragraphs(segments))


def _chapter(passage: Passage, summary: str) -> dict[str, Any]:
    return {"start": passage.start, "end": passage.end, "title": title_of(summary), "summary": summary}


def title_of(summary: str) -> str:
    """Return the first sentence without its full stop, shortened at a word if it is long."""
    first = summary[: next(sentence_ends(summary), None)]
    title = " ".join(first.split()).rstrip(".。")
    if len(title) <= LONGEST_TITLE:
        return title
    return title[: LONGEST_TITLE - 1].rpartition(" ")[0].rstrip(",;: ") + "…" if " " in title[:LONGEST_TITLE] else title


def _shown(chapters: Sequence[dict[str, Any]], file: str, *, markdown: bool) -> str:
    """Return the chapters as text to print. file: their heading; "" for none."""
    from transept.speech.output.documents import shown_time

    head = f"{'# ' if markdown else ''}{file}\n\n" if file else ""
    blank = "\n" if markdown else ""
    parts = []
    for each in chapters:
        line = f"{'## ' if markdown else ''}{shown_time(each['start'])} {each['title']}".rstrip()
        is_whole = each["title"] == each["summary"].rstrip(".。")  # the title is then the whole summary
        parts.append(f"{line}\n" if is_whole else f"{line}\n{blank}{each['summary']}\n")
    return head + "\n".join(parts)
