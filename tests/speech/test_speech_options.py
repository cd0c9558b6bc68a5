"""TranscriptionOptions: what they accept, and what an error says."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transept import TranscriptionOptions, VadOptions
from transept.errors import ParameterError
from transept.options import declared
from transept.speech.option_values import rising_temperatures
from transept.speech.voices.store import Voices


def test_defaults_are_openai_whispers() -> None:
    import whisper

    theirs = {name: each.default for name, each in inspect.signature(whisper.transcribe).parameters.items()}
    decoding = whisper.DecodingOptions()
    ours = TranscriptionOptions()
    names = set(theirs) & set(declared(TranscriptionOptions)) - {"clip_timestamps"}
    assert len(names) == 11
    assert {name: getattr(ours, name) for name in names} == {name: theirs[name] for name in names}
    assert (ours.task, decoding.task) == (None, "transcribe")  # which a target_language may turn into "translate"
    for name in ("language", "patience", "length_penalty", "suppress_blank", "max_initial_timestamp"):
        assert getattr(ours, name) == getattr(decoding, name)


def test_values_become_hashable() -> None:
    options = TranscriptionOptions(
        temperature=[0, 0.5], clip_timestamps="1, 2.5", suppress_tokens=[-1, 7], initial_prompt=[5, 6]
    )
    assert options.temperatures == (0.0, 0.5)
    assert options.clip_timestamps == (1.0, 2.5)
    assert options.suppress_tokens == (-1, 7)
    assert options.initial_prompt == (5, 6)
    assert hash(options) == hash(TranscriptionOptions(**vars(options)))
    assert TranscriptionOptions(temperature=0.3).temperatures == (0.3,)
    assert TranscriptionOptions(clip_timestamps="").clip_timestamps == ()
    assert TranscriptionOptions(suppress_tokens="-1,50").suppress_tokens == (-1, 50)
    assert TranscriptionOptions(suppress_tokens="").suppress_tokens == ()
    assert TranscriptionOptions(suppress_tokens=None).suppress_tokens == ()


@pytest.mark.parametrize(
    "clips",
    [
        "1,2.5,4",
        (1, 2.5, 4.0),
        [{"start": 1, "end": 2.5}, {"start": 4}],
        '[{"start": 1, "end": 2.5}, {"start": 4.0}]',
        iter([{"end": 2.5, "start": 1}, {"start": 4}]),
    ],
)
def test_clips_have_several_forms(clips: Any) -> None:
    assert TranscriptionOptions(clip_timestamps=clips).clip_timestamps == (1.0, 2.5, 4.0)
    assert TranscriptionOptions(clip_timestamps=None).clip_timestamps == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clip_timestamps": [{"start": 1}, {"start": 4, "end": 5}]}, r'must be \{"start": ..., "end": ...\} for each'),
        ({"clip_timestamps": [{"start": 1, "end": 4, "text": ""}]}, "not {'start': 1, 'end': 4, 'text': ''}"),
        ({"clip_timestamps": [1.0, {"start": 4}]}, "for each clip, in seconds, not 1.0"),
        ({"clip_timestamps": '[{"start": 1'}, "clip_timestamps must be numbers"),
        ({"clip_timestamps": [{"start": 4, "end": 1}]}, "rising times in seconds"),
        ({"beam": 5}, "no option 'beam'. Did you mean 'beam_size'"),
        ({"task": "sing"}, '"transcribe" or "translate"'),
        ({"temperature": -0.1}, "temperature must be numbers of at least 0"),
        ({"temperature": ()}, "temperature must be numbers"),
        ({"temperature": "warm"}, "temperature must be numbers"),
        ({"temperature": None}, "temperature must be numbers"),
        ({"beam_size": 0}, "beam_size must be an integer of at least 1"),
        ({"beam_size": 2.5}, "beam_size must be an integer"),
        ({"best_of": 0}, "best_of must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"length_penalty": 1e300}, "length_penalty must be a number of at least -32 and at most 32"),
        ({"gnmt_length_penalty": 101}, "gnmt_length_penalty must be a number of at least 0 and at most 100"),
        (
            {"gnmt_length_penalty": 1, "length_penalty": 1},
            "length_penalty=1 and gnmt_length_penalty=1 are two formulas",
        ),
        ({"compression_ratio_threshold": "2"}, "compression_ratio_threshold must be a number"),
        ({"logprob_threshold": float("nan")}, "logprob_threshold must be a number"),
        ({"word_timestamps": "yes"}, "word_timestamps must be True or False"),
        ({"language": 5}, "language must be text"),
        ({"prepend_punctuations": None}, "prepend_punctuations must be text"),
        ({"clip_timestamps": (5.0, 1.0)}, "rising times in seconds"),
        ({"clip_timestamps": (-1.0, 1.0)}, "rising times in seconds"),
        ({"clip_timestamps": "from 1 to 2"}, "clip_timestamps must be numbers"),
        ({"suppress_tokens": (-2,)}, "suppress_tokens holds -2"),
        ({"suppress_tokens": "quiet"}, "suppress_tokens must be a list of token ids"),
        ({"initial_prompt": (-1,)}, "initial_prompt holds -1"),
        ({"beam_size": 5, "patience": 0}, "patience must be a number above 0, not 0"),
        ({"beam_size": 5, "patience": -1}, "patience must be a number above 0, not -1"),
        ({"temperature_increment_on_fallback": 0.2}, "Here that is 'temperature'. It takes all temperatures"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"vad_threshold": 0.3}, "Here that is 'vad_options'"),
        ({"beams": 2}, "Here that is 'beam_size'"),
        ({"min_speaker_count": 2}, "Here that is 'min_speakers'"),
        ({"speakers": 0}, "speakers must be an integer of at least 1 and at most 1000, not 0"),
        ({"num_speakers": 2, "max_speakers": 3}, "num_speakers=2 is the exact number; leave max_speakers=3 out"),
        ({"min_speakers": 3, "max_speakers": 2}, "min_speakers=3 is more than max_speakers=2"),
        ({"speakers": 2, "channel": "each"}, "tells speakers apart by their channels; leave speakers=2 out"),
        ({"speaker_names": "Ann,,Bob"}, "speaker_names must be a name on one line"),
        ({"speaker_names": "Ann,Ann"}, "speaker_names has a name twice"),
        ({"speaker_names": "Ann", "same_speakers": True}, "leave one out"),
        ({"add_voices": True}, "add_voices needs a file of voices to add to"),
        ({"voices": "voices.json"}, "voices must be the pathlib.Path of a file"),
        ({"voices": '{"version": 2}'}, "version must be 1: the format of this file is unknown"),
        ({"voices": Path("no-such-file.json")}, '"no-such-file.json" has no voices'),
        ({"diarize": 1}, "diarize must be True or False, not 1"),
        ({"diarize": True, "channel": "each"}, "leave diarize=True out"),
        ({"channel": "Left"}, 'channel must be "mix", "left", "right" or "each", not \'Left\'. Did you mean "left"'),
        ({"channel": None}, 'channel must be "mix", "left", "right" or "each", not None'),
        ({"multilingual": True, "language": "de"}, "language='de' has no meaning"),
        ({"vad_options": 0.5, "vad": True}, "vad_options must be VadOptions or a dict of them, not 0.5"),
        ({"vad_options": {"treshold": 0.4}, "vad": True}, "vad_options has no 'treshold'. Did you mean 'threshold'"),
        ({"vad_options": VadOptions(threshold=0.4), "mode": "sequential"}, "set vad=True to leave it out"),
        ({"silero": True}, "no option 'silero'. Here that is 'vad'"),
        ({"logprob_thold": -1.0}, "no option 'logprob_thold'. Here that is 'logprob_threshold'"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TranscriptionOptions(**given)


@pytest.mark.parametrize(
    ("options", "num_beams"),
    [
        ({}, 3),
        ({"mode": "sequential"}, 1),
        ({"mode": "batched"}, 1),
        ({"mode": "batched", "quality": "balanced"}, 3),
        ({"quality": "fast"}, 1),
        ({"quality": "best"}, 5),
        ({"quality": "best", "beam_size": 2}, 2),
        ({"quality": "fast", "patience": 2.0}, 1),
    ],
)
def test_quality_is_a_number_of_beams(options: dict[str, Any], num_beams: int) -> None:
    assert TranscriptionOptions(**options).num_beams == num_beams


def test_patience_without_a_width_is_of_five_beams() -> None:
    assert TranscriptionOptions(patience=2.0).num_beams == 5
    assert TranscriptionOptions(patience=1.0, beam_size=1).num_beams == 1
    assert TranscriptionOptions(beam_size=3).num_beams == 3


@pytest.mark.parametrize("first", [0.0, 0.3, 1.0, 1.5])
@pytest.mark.parametrize("increment", [0.01, 0.2, 0.35, 5.0])
def test_temperatures_rise_by_the_increment_as_in_openai_whispers_command(first: float, increment: float) -> None:
    temperatures = rising_temperatures(first, increment)
    expected = np.arange(first, 1.0 + 1e-6, increment) if first <= 1 else [first]
    np.testing.assert_allclose(temperatures, expected, rtol=0, atol=1e-6)
    assert TranscriptionOptions(temperature=temperatures).temperatures == temperatures


def test_several_temperatures_take_no_increment() -> None:
    assert rising_temperatures("0,0.4", None) == (0.0, 0.4)
    with pytest.raises(ParameterError, match="all temperatures to try; leave temperature_increment_on_fallback out"):
        rising_temperatures("0,0.4", 0.1)
    assert rising_temperatures(0.3, None) == (0.3,)


@pytest.mark.parametrize("language", ["auto", "AUTO", "None", "none", "", " "])
def test_a_language_that_is_to_be_detected(language: str) -> None:
    assert TranscriptionOptions(language=language).language is None
    assert TranscriptionOptions(language=language, multilingual=True).language is None


@pytest.mark.parametrize("mode", ["vad", "batched"])
def test_vad_options_may_be_a_dict(mode: str) -> None:
    given = TranscriptionOptions(vad_options={"threshold": 0.4}, **{mode: True})  # type: ignore[arg-type]
    assert given.vad_options == VadOptions(threshold=0.4)
    assert given == dataclasses.replace(given)


def test_the_signature_shows_the_options() -> None:
    assert [*inspect.signature(TranscriptionOptions).parameters] == [*declared(TranscriptionOptions)]


def test_none_is_no_threshold() -> None:
    options = TranscriptionOptions(
        compression_ratio_threshold=None,
        logprob_threshold=None,
        no_speech_threshold=None,
        max_initial_timestamp=None,
    )
    assert options.logprob_threshold is None


def test_numbers_of_numpy_are_numbers() -> None:
    options = TranscriptionOptions(temperature=np.float32(0.5), beam_size=np.int64(3), patience=np.float64(2))
    assert options == TranscriptionOptions(temperature=0.5, beam_size=3, patience=2.0)
    assert TranscriptionOptions(temperature=np.array([0.0, 0.5])).temperatures == (0.0, 0.5)


@pytest.mark.parametrize(
    ("option", "most"),
    [("seed", 2**64 - 1), ("patience", 1e6), ("beam_size", 2**31 - 1), ("best_of", 2**31 - 1)],
)
def test_numbers_that_no_request_may_have_are_refused_at_once(option: str, most: float) -> None:
    TranscriptionOptions(**{option: most})
    with pytest.raises(ParameterError, match=f"{option} must be at most"):
        TranscriptionOptions(**{option: most * 2})


def test_an_option_that_looks_at_words_finds_their_times() -> None:
    assert TranscriptionOptions(hallucination_silence_threshold=1.0).word_timestamps is True
    assert TranscriptionOptions().word_timestamps is False


@pytest.mark.parametrize(
    "given",
    [
        {"speakers": 2},
        {"max_speakers": 3},
        {"speaker_names": "Ann, Bob"},
        {"voices": Voices()},
        {"same_speakers": True},
    ],
)
def test_options_about_speakers_tell_them_apart(given: dict[str, Any]) -> None:
    options = TranscriptionOptions(**given)
    assert options.diarize
    assert options.without_speakers() == TranscriptionOptions()


def test_bounds_of_the_number_of_speakers() -> None:
    assert TranscriptionOptions(speakers=2).bounds == (2, 2)
    assert TranscriptionOptions(max_speakers=4).bounds == (None, 4)
    assert TranscriptionOptions(diarize=True).bounds == (None, None)


def test_channels_may_have_names() -> None:
    options = TranscriptionOptions(channel="each", speaker_names=["Agent", " Customer "])
    assert options.speaker_names == ("Agent", "Customer")
    assert not options.diarize
