"""openai-whisper's ``whisper.utils``: results of ``transcribe`` as files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transept.errors import ParameterError, suggest
from transept.options import take_options
from transept.speech.output.subtitles import Cue, SubtitleLayout, cues_of, fill_subtitles, subtitle_of
from transept.speech.output.writers import FORMATS as WRITERS
from transept.speech.output.writers import subrip, web_video_text
from transept.speech.segments import Segment, Word

FORMATS = ("txt", "vtt", "srt", "tsv", "json")  # of "all"
SUBTITLES = {"vtt": web_video_text, "srt": subrip}
Writer = Callable[..., None]


class Layout(SubtitleLayout):
    """A layout whose options may be without effect, such as max_line_count without max_line_width."""

    def __post_init__(self) -> None:
        take_options(self)


def get_writer(output_format: str, output_dir: str) -> Writer:
    """Return a function (result, audio path, options) that writes a result to ``output_dir/name of the audio.format``.

    output_format: txt, vtt, srt, tsv, json or all. options: max_line_width, max_line_count, highlight_words and
    max_words_per_line, as a dict or by keyword; no effect without word times.
    Raises ParameterError for another format or option. The writer raises it for times below 0, and OSError if it cannot
    write.
    """
    if output_format not in (*FORMATS, "all"):
        known = (*FORMATS, "all")
        message = f"there is no format {output_format!r}.{suggest(str(output_format), known)}"
        raise ParameterError(message, param="output_format", value=output_format)
    formats = FORMATS if output_format == "all" else (output_format,)

    def write(
        result: Mapping[str, Any], audio_path: str, options: Mapping[str, Any] | None = None, **layout: Any
    ) -> None:
        segments = [_segment(each) for each in result["segments"]]
        asked = {name: value for name, value in {**(options or {}), **layout}.items() if value not in (None, False)}
        with_words = bool(segments) and segments[0].words is not None
        layout_of_subtitles = Layout(**asked) if with_words else SubtitleLayout()
        stem = Path(os.path.basename(audio_path)).stem
        for name in formats:
            file = Path(output_dir) / f"{stem}.{name}"
            if name == "json":
                file.write_text(json.dumps(result), encoding="utf-8")  # including a user's own fields
            elif name in SUBTITLES:
                text = SUBTITLES[name](_cues(segments, layout_of_subtitles, with_words))
                file.write_text(text, encoding="utf-8", newline="\n")
            else:
                text = WRITERS[name](segments, result.get("language") or "", layout_of_subtitles)
                file.write_text(text, encoding="utf-8", newline="\n")

    return write


def _cues(segments: Sequence[Segment], layout: SubtitleLayout, with_words: bool) -> Iterator[Cue]:
    """Yield openai-whisper's subtitles, whose lines may break between any two of the model's words."""
    if with_words:
        for words, speaker in fill_subtitles(segments, layout, named=False):
            yield from cues_of(subtitle_of(words, speaker), layout)
        return
    for segment in segments:
        text = segment.text.strip().replace("-->", "->")
        yield Cue(round(1000.0 * segment.start), round(1000.0 * segment.end), text)


def _segment(given: Mapping[str, Any]) -> Segment:
    """Make a segment from the four fields that writers read; users may have made the dict themselves."""
    if given["start"] < 0:
        message = f"a timestamp is at least 0 seconds, not {given['start']}"
        raise ParameterError(message, param="start", value=given["start"])
    words = given.get("words")
    timed = None if words is None else [Word(each["start"], each["end"], each["word"], 0.0) for each in words]
    return Segment(0, 0, given["start"], given["end"], given["text"], [], 0.0, 0.0, 0.0, 0.0, words=timed)
