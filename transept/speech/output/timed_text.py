"""TTML: subtitles in the text profile of IMSC 1.1 (https://www.w3.org/TR/ttml-imsc1.1/), for broadcast and streaming.

`transept.speech.output.writers` calls it. One region at the bottom of the picture holds all subtitles; each speaker is
an agent of the metadata, to which paragraphs refer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import escape
from xml.sax.saxutils import quoteattr

from transept.speech.output.function_words import language_of
from transept.speech.output.subtitles import Cue, SubtitleLayout, make_cues
from transept.speech.segments import Segment

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter" \
xmlns:tts="http://www.w3.org/ns/ttml#styling" xmlns:ttm="http://www.w3.org/ns/ttml#metadata" \
ttp:contentProfiles="http://www.w3.org/ns/ttml/profile/imsc1.1/text" ttp:timeBase="media" ttp:cellResolution="32 15" \
xml:lang=%s>
  <head>
%s    <styling>
      <style xml:id="text" tts:color="#FFFFFF" tts:fontFamily="proportionalSansSerif" tts:fontSize="100%%" \
tts:lineHeight="125%%" tts:textAlign="center"/>
    </styling>
    <layout>
      <region xml:id="bottom" tts:origin="10%% 10%%" tts:extent="80%% 80%%" tts:displayAlign="after" \
tts:overflow="visible"/>
    </layout>
  </head>
  <body style="text" region="bottom">
    <div>
"""
TAIL = """    </div>
  </body>
</tt>
"""


def timed_text(segments: Sequence[Segment], layout: SubtitleLayout, language: str) -> str:
    """Return the file's text. language: see `make_cues`. Words are not highlighted: TTML has each subtitle once.

    Raises ParameterError for a layout without word times.
    """
    layout = replace(layout, highlight_words=False)
    cues = list(make_cues(segments, layout, language, named=False, escape=partial(escape, quote=False)))
    agents = {name: f"speaker{number}" for number, name in enumerate(dict.fromkeys(each.speaker for each in cues), 1)}
    named = "".join(
        f'      <ttm:agent type="person" xml:id="{key}"><ttm:name type="full">{escape(name)}</ttm:name></ttm:agent>\n'
        for name, key in agents.items()
        if name is not None
    )
    metadata = f"    <metadata>\n{named}    </metadata>\n" if named else ""
    text_language = language_of((each.text for each in segments), language)
    return HEAD % (quoteattr(text_language), metadata) + "".join(_paragraph(each, agents) for each in cues) + TAIL


def _paragraph(cue: Cue, agents: dict[str | None, str]) -> str:
    """Return a subtitle's paragraph. The cue's text is markup."""
    agent = "" if cue.speaker is None else f' ttm:agent="{agents[cue.speaker]}"'
    text = cue.text.replace("\n", "<br/>")
    return f'      <p begin="{_clock(cue.start)}" end="{_clock(cue.end)}"{agent}>{text}</p>\n'


def _clock(milliseconds: int) -> str:
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}.{milliseconds:03d}"
