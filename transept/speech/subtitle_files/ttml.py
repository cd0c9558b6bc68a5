"""Timed Text Markup Language: TTML (https://www.w3.org/TR/ttml2/), and its profiles IMSC, EBU-TT-D, DFXP and iTT.

Paragraphs and timed spans are subtitles. Styles and regions are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from xml.etree import ElementTree
from xml.parsers import expat

from transept.errors import ParameterError, shown
from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import shown_lines

CLOCK = re.compile(r"(\d+):(\d{2}):(\d{2})(?:\.(\d+)|:(\d+)(?:\.\d+)?)?")  # seconds have a fraction, or frames follow
OFFSET = re.compile(r"(\d+(?:\.\d+)?)(h|m|s|ms|f|t)")
RATE = re.compile(r"[1-9]\d*(?:[ :][1-9]\d*)?")  # of frames or ticks, or the two numbers of a fraction
TIMED = ("begin", "end", "dur")
NO_MARKUP = re.compile(r"(?!)")


def read_ttml(text: str) -> list[Cue]:
    """Return the subtitles of a file's text, in the order of their starts. speaker: of ``ttm:agent``.

    Raises ParameterError, which names the line, for a text that is not XML, for times and rates that cannot be read,
    for an end before the start, and for containers whose elements follow each other (``timeContainer="seq"``).
    """
    root, lines = _parsed(text)
    document = _Document(_Clock.of(root, lines[root]), _speakers(root), lines)
    body = next((each for each in root if _name(each) == "body"), None)
    cues = [] if body is None else list(document.cues(body, Fraction(0), None, None))
    return sorted(cues, key=lambda cue: cue.start)


def _parsed(text: str) -> tuple[ElementTree.Element, dict[ElementTree.Element, int]]:
    """Return the root of a document, and the number of the line on which each element begins."""
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate(namespace_separator="}")
    lines: dict[ElementTree.Element, int] = {}

    def start(tag: str, attributes: dict[str, str]) -> None:
        lines[builder.start(tag, attributes)] = parser.CurrentLineNumber

    parser.StartElementHandler, parser.EndElementHandler = start, builder.end
    parser.CharacterDataHandler = builder.data
    declaration = re.compile(r"^\s*<\?xml[^>]*\?>")  # may name the encoding that the text no longer has
    try:
        parser.Parse(declaration.sub(lambda found: "\n" * found[0].count("\n"), text), True)
    except expat.ExpatError as error:
        raise ParameterError(f"the text is not well-formed XML ({error}); export it again", param="text") from None
    return builder.close(), lines


@dataclass(frozen=True)
class _Clock:
    """The rates of a document's times: frames and ticks a second."""

    frames: Fraction
    ticks: Fraction

    @classmethod
    def of(cls, root: ElementTree.Element, line: int) -> _Clock:
        """Return the parameters of a document (TTML2, section 7.2)."""
        given = {_local(name): value.strip() for name, value in root.attrib.items()}
        for name in ("frameRate", "frameRateMultiplier", "tickRate"):
            if name in given and not RATE.fullmatch(given[name]):
                message = f"line {line}: {name} is {shown(given[name])}, not a positive number"
                raise ParameterError(message, param="text")
        multiplier = [int(each) for each in re.findall(r"\d+", given.get("frameRateMultiplier", "1 1"))]
        frames = Fraction(int(given.get("frameRate", "30"))) * Fraction(multiplier[0], (multiplier[1:] or [1])[0])
        ticks = given.get("tickRate")
        return cls(frames, Fraction(int(ticks)) if ticks else (frames if "frameRate" in given else Fraction(1)))

    def seconds(self, text: str, line: int) -> Fraction:
        """Parse a time (TTML2, section 12.3.1), of an element on a line."""
        text = text.strip()
        if clock := CLOCK.fullmatch(text):
            hours, minutes, seconds, fraction, frames = clock.groups()
            whole = Fraction((int(hours) * 60 + int(minutes)) * 60 + int(seconds))
            return whole + Fraction(f"0.{fraction or 0}") + Fraction(int(frames or 0)) / self.frames
        if offset := OFFSET.fullmatch(text):
            units = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
            units |= {"f": 1 / self.frames, "t": 1 / self.ticks}
            return Fraction(offset[1]) * units[offset[2]]
        message = f"line {line}: {shown(text)} is not a time of TTML; write it such as 00:01:02.500"
        raise ParameterError(message, param="text")


@dataclass(frozen=True)
class _Document:
    """The parts of a document that its paragraphs refer to.

    speakers: names by the id of their agent. lines: number of the line on which each element begins.
    """

    clock: _Clock
    speakers: dict[str, str]
    lines: dict[ElementTree.Element, int]

    def cues(
        self, element: ElementTree.Element, origin: Fraction, end: Fraction | None, speaker: str | None
    ) -> Iterator[Cue]:
        """Yield the subtitles of an element. origin, end: its parent's times; end: None if it is open."""
        line, given = self.lines[element], {_local(name): value for name, value in element.attrib.items()}
        if given.get("timeContainer") == "seq":
            message = f'line {line}: timeContainer="seq" is not supported; convert it them to explicit times'
            raise ParameterError(message, param="text")
        begin = origin + self.clock.seconds(given.get("begin", "0s"), line)
        ends = [end] if end is not None else []
        if "end" in given:
            ends.append(origin + self.clock.seconds(given["end"], line))
        if "dur" in given:
            ends.append(begin + self.clock.seconds(given["dur"], line))
        end = min(ends, default=None)
        speaker = next(
            (self.speakers[each] for each in given.get("agent", "").split() if each in self.speakers), speaker
        )
        inner = [each for each in element if _name(each) in ("div", "p", "span") and _has_times(each)]
        if _name(element) in ("body", "div"):
            inner = [each for each in element if _name(each) in ("div", "p")]
        if inner:
            for each in inner:
                yield from self.cues(each, begin, end, speaker)
        elif end is not None and (text := shown_lines(_text(element), NO_MARKUP)):
            if end < begin:
                message = f"the subtitle {shown(text)} ends before it starts, at {float(end):g} s; correct its times"
                raise ParameterError(f"line {line}: {message}", param="text")
            yield Cue(round(begin * 1000), round(end * 1000), text, speaker)


def _has_times(element: ElementTree.Element) -> bool:
    """True if an element or one within it has a time."""
    return any(name in each.attrib for each in element.iter() for name in TIMED)


def _text(element: ElementTree.Element) -> str:
    """Return the text of a paragraph or span; runs of blanks are one, and ``br`` breaks the line."""
    parts = [re.sub(r"\s+", " ", element.text or "")]
    for each in element:
        if _name(each) == "br":
            parts.append("\n")
        elif _name(each) in ("span", "p"):
            parts.append(_text(each))
        parts.append(re.sub(r"\s+", " ", each.tail or ""))
    return "".join(parts)


def _speakers(root: ElementTree.Element) -> dict[str, str]:
    """Return the names of a document's agents by their ids."""
    found = {}
    for agent in (each for each in root.iter() if _name(each) == "agent"):
        key = next((value for name, value in agent.attrib.items() if _local(name) == "id"), None)
        name = next((each.text for each in agent if _name(each) == "name" and each.text), None)
        if key is not None and name is not None:
            found[key] = name.strip()
    return found


def _local(name: str) -> str:
    """Return a name without its namespace, which differs between programs."""
    return name.rpartition("}")[2]


def _name(element: ElementTree.Element) -> str:
    return _local(element.tag) if isinstance(element.tag, str) else ""  # comments have no name
