"""SpeakerOptions: the options of a transcription about speakers. TranscriptionOptions extends them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from transept.errors import ParameterError
from transept.options import Option, refusal
from transept.speech.voices.store import Voices, checked_name, known_voices
from transept.writable import why_unwritable

EACH = "each"  # of the channels, as `transept.multimodal.channels` calls them
SPEAKERS = "speakers"
MOST_SPEAKERS = 1000
OF_VOICES = ("speakers", "min_speakers", "max_speakers", "voices", "same_speakers", "add_voices")  # each needs diarize
OF_SEVERAL = ("same_speakers", "add_voices")  # for calls that take several recordings
OF_SPEAKERS = ("diarize", *OF_VOICES, "speaker_names")
speakers = partial(Option, group=SPEAKERS)


def listed_names(name: str, given: Any) -> tuple[str, ...]:
    """Return names given as a list, or as a text with commas. Raises ParameterError for an empty or a repeated name."""
    if given is None:
        return ()
    names = given.split(",") if isinstance(given, str) else given
    if isinstance(names, Mapping) or not isinstance(names, list | tuple):
        message = f"{{{name}}} must be names in the order in which their speakers first speak, not {{{name}!}}"
        raise ParameterError(message, param=name, value=given)
    checked = tuple(checked_name(name, each) for each in names)
    if len({*checked}) < len(checked):
        raise ParameterError(f"{{{name}}} has a name twice: {{{name}!}}", param=name, value=given)
    return checked


@dataclass(frozen=True)
class SpeakerOptions:
    """Options of speakers: their channels, number and names."""

    channel: Annotated[
        Literal["mix", "left", "right", "each"],
        speakers(
            "left, right, or each: every channel is a speaker of one transcript", metavar="WHICH", default="mix, of all"
        ),
    ] = "mix"
    diarize: Annotated[
        bool,
        speakers(
            "tell speakers apart by voice; needs transept[speakers]",
            "A diarizer plugin may replace transept[speakers]. Segments are cut where the speaker changes, between "
            "words. The options below turn it on.",
        ),
    ] = False
    speakers: Annotated[
        int | None,
        speakers(
            "number of speakers, if it is known",
            "None: detected by the diarizer.",
            aliases=("num_speakers", "speakers_expected"),
            metavar="N",
            ge=1,
            le=MOST_SPEAKERS,
        ),
    ] = None
    min_speakers: Annotated[int | None, speakers("lowest number of speakers", metavar="N", ge=1, le=MOST_SPEAKERS)] = (
        None
    )
    max_speakers: Annotated[int | None, speakers("highest number of speakers", metavar="N", ge=1, le=MOST_SPEAKERS)] = (
        None
    )
    speaker_names: Annotated[
        tuple[str, ...],
        speakers(
            "names of the speakers, in the order in which they first speak: Ann,Bob",
            'With channel="each": names of the channels, in their order. Further speakers keep their names.',
            metavar="NAME,...",
            default="",
            parse=listed_names,
            also="str | None",
        ),
    ] = ()
    voices: Annotated[
        Voices | None,
        speakers(
            "file of known voices that names their speakers; the word default: your own file, of `transept voices`",
            "Voices, or in Python the pathlib.Path of a file; over HTTP the file's JSON. Unknown speakers keep the "
            "diarizer's names.",
            metavar="FILE",
            default="",
            parse=known_voices,
            also="pathlib.Path | Mapping[str, Any] | str",
        ),
    ] = None
    same_speakers: Annotated[
        bool,
        speakers(
            "a voice has the same name in all files",
            "Speakers are numbered in the order of the files, even if a later file is finished first.",
        ),
    ] = False
    add_voices: Annotated[
        bool,
        speakers(
            "add unknown voices to the file of --voices, so that later runs name them alike",
            "Sets same_speakers. The file may be missing at first.",
        ),
    ] = False

    def refuse_speakers(self) -> None:
        """Raise ParameterError for options about speakers, in calls that return no transcript."""
        given = next((name for name in (*OF_VOICES, "speaker_names", "diarize") if getattr(self, name)), "")
        if self.channel == EACH or given:
            advice = "{channel='left'} or {channel='right'} is one channel"
            message = f"{{channel='each'}} and {{diarize}} are for transcripts; {advice}"
            raise refusal(self, message, "channel" if self.channel == EACH else given)

    def refuse_several(self, advice: str) -> None:
        """Raise ParameterError for options that only calls with several recordings have. advice: ends the message."""
        for name in OF_SEVERAL:
            if getattr(self, name):
                raise refusal(self, f"{{{name}=}} {advice}", name)

    def without_speakers(self) -> Self:
        """Return the options for a recording of one channel and one speaker."""
        defaults: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(SpeakerOptions)}
        return dataclasses.replace(self, **defaults)

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The lowest and the highest number of speakers, each None if it is unknown."""
        return self.speakers or self.min_speakers, self.speakers or self.max_speakers

    def _take_speakers(self) -> None:
        """Check the options about speakers against each other, and set those that others imply."""
        freeze = object.__setattr__
        if self.add_voices:
            freeze(self, "same_speakers", True)
        given = [name for name in OF_VOICES if getattr(self, name)]
        if self.channel == EACH and (given or self.diarize):
            name = given[0] if given else "diarize"
            named = "{voices}" if name == "voices" else f"{{{name}=}}"  # whose value is long
            raise refusal(self, f"{{channel=}} tells speakers apart by their channels; leave {named} out")
        for name in ("min_speakers", "max_speakers"):
            if self.speakers is not None and getattr(self, name) is not None:
                raise refusal(self, f"{{speakers=}} is the exact number; leave {{{name}=}} out", name)
        if (self.min_speakers or 1) > (self.max_speakers or MOST_SPEAKERS):
            raise refusal(self, "{min_speakers=} is more than {max_speakers=}; exchange them")
        for name in ("voices", "same_speakers"):
            if self.speaker_names and getattr(self, name):
                message = f"{{speaker_names}} are in the order of speech, and {{{name}}} names speakers by their voices"
                raise refusal(self, f"{message}; leave one out", "speaker_names")
        if self.add_voices and (self.voices is None or self.voices.file is None):
            raise refusal(self, "{add_voices} needs a file of {voices} to add to; name one", "add_voices")
        file = None if self.voices is None else self.voices.file
        if self.add_voices and file is not None and (why := why_unwritable(file)) is not None:
            message = f'{{voices}}: cannot write "{file}": {why}'
            raise ParameterError(message, param="voices", value=str(file), others=["add_voices"])
        if self.voices is not None and file is not None and not (self.voices.voices or self.add_voices):
            message = f'{{voices}}: "{file}" has no voices; `transept voices enroll NAME FILE` adds one'
            raise ParameterError(message, param="voices", value=str(file))
        if given or (self.speaker_names and self.channel != EACH):
            freeze(self, "diarize", True)
