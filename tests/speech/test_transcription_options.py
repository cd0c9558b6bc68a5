"""What faster-whisper documents of its options, required of ours in both modes, on recordings of our own."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from transept import Transcriber
from transept.errors import ParameterError
from transept.speech.options import TranscriptionOptions
from transept.speech.vad.options import VadOptions

RATE = 16_000
SENTENCE = "He might even have been made amiable himself."
MODES = [pytest.param({"mode": mode}, id=mode) for mode in ("auto", "sequential", "batched")]


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> dict[str, np.ndarray]:
    files = [*(speech_dir / "librivox").glob("*.flac"), *(speech_dir / "prompts-en").glob("*.flac")]
    return {file.stem: soundfile.read(file, dtype="float32")[0] for file in files}


@pytest.fixture(scope="module")
def talk(clips: dict[str, np.ndarray]) -> tuple[np.ndarray, int]:
    """A minute and a half, so several windows: 15 prompts with a second of silence after each."""
    names = [name for name in sorted(clips) if not name.startswith("austen")][:15]
    pause = np.zeros(RATE, np.float32)
    return np.concatenate([part for name in names for part in (clips[name], pause)]), RATE


def test_hotwords_without_room_are_counted(transcriber: Transcriber, caplog: pytest.LogCaptureFixture) -> None:
    nothing = np.zeros(0, np.float32)
    assert not transcriber.transcribe(nothing, hotwords="Dashwood, Norland").warnings
    assert not caplog.messages
    for words in ("word " * 300, "word " * 5_000_000):  # the second takes no longer
        (warning,) = transcriber.transcribe(nothing, hotwords=words).warnings
        assert warning.startswith(
            f"transcribed with the first 223 of {len(words) // 5} hotwords, for which a prompt has room"
        )
        assert caplog.messages.pop() == f"each recording is {warning}"


@pytest.mark.parametrize("mode", MODES)
def test_a_known_clip_has_its_exact_text_and_times(transcriber: Transcriber, clips, mode: dict) -> None:
    transcript = transcriber.transcribe((clips["austen-0930"], RATE), word_timestamps=True, **mode)
    (segment,) = transcript.segments
    assert transcript.text == SENTENCE
    assert "".join(word.word for word in segment.words) == segment.text == f" {SENTENCE}"
    assert (segment.start, segment.end) == (segment.words[0].start, segment.words[-1].end)
    assert 0.0 <= segment.start < 0.5
    assert 2.5 < segment.end <= transcript.duration == pytest.approx(3.29)
    assert all(0.0 < word.probability <= 1.0 for word in segment.words)


@pytest.mark.parametrize("mode", MODES)
def test_options_come_back_with_the_result(transcriber: Transcriber, clips, mode: dict) -> None:
    given = {
        "beam_size": 2,
        "temperature": (0.0, 0.5),
        "initial_prompt": "A novel.",
        "vad": True,
        "vad_options": VadOptions(threshold=0.4),
        "max_new_tokens": 50,
        **mode,
    }
    transcript = transcriber.transcribe((clips["austen-0930"], RATE), **given)
    assert transcript.options == TranscriptionOptions(**given)
    assert transcript.options.vad_options.threshold == 0.4
    assert transcript.language == "en"


@pytest.mark.parametrize("mode", MODES)
def test_empty_audio_gives_nothing(transcriber: Transcriber, mode: dict) -> None:
    transcript = transcriber.transcribe((np.zeros(0, np.float32), RATE), **mode)
    assert (transcript.text, transcript.segments, transcript.duration) == ("", [], 0.0)
    assert list(transcriber.stream((np.zeros(0, np.float32), RATE), **mode)) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_prefix_opens_the_text_and_keeps_the_times(transcriber: Transcriber, clips, mode: dict) -> None:
    plain = transcriber.transcribe((clips["austen-0930"], RATE), **mode)
    prefixed = transcriber.transcribe((clips["austen-0930"], RATE), prefix="He might even have", **mode)
    (segment,) = prefixed.segments
    assert segment.text == f" {SENTENCE}"
    assert segment.start == pytest.approx(plain.segments[0].start, abs=0.3)
    assert segment.end == pytest.approx(plain.segments[-1].end, abs=0.3)


def test_a_prefix_and_conditions_that_cannot_be_together_are_refused(transcriber: Transcriber, clips) -> None:
    with pytest.raises(ParameterError, match="no option 'prefixx'"):
        transcriber.transcribe((clips["austen-0930"], RATE), prefixx="He")


@pytest.mark.parametrize("mode", MODES)
def test_channels_of_a_stereo_file_can_be_transcribed_apart(
    transcriber: Transcriber, clips, tmp_path: Path, mode: dict
) -> None:
    left, right = clips["austen-0930"], clips["vm-tooshort"]
    stereo = np.zeros((max(len(left), len(right)), 2), np.float32)
    stereo[: len(left), 0], stereo[: len(right), 1] = left, right
    path = tmp_path / "call.wav"
    soundfile.write(path, stereo, RATE)
    samples, rate = soundfile.read(path, dtype="float32")
    apart = transcriber.transcribe_many([(channel, rate) for channel in samples.T], **mode)
    assert [transcript.text for transcript in apart] == [SENTENCE, "Your message is too short."]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_hotwords_make_a_name_heard(transcriber: Transcriber, clips, mode: dict) -> None:
    recording = (clips["demo-abouttotry"], RATE)
    assert "Asterisk" not in transcriber.transcribe(recording, **mode).text
    assert "Inter Asterisk " in transcriber.transcribe(recording, hotwords="Inter Asterisk", **mode).text


def test_keywords_make_a_name_heard_among_a_thousand(transcriber: Transcriber, clips) -> None:
    recording = (clips["demo-abouttotry"], RATE)
    others = [f"Vantis{index}quor" for index in range(1000)]
    heard = transcriber.transcribe(recording, keywords=["Inter-Asterisk Exchange", *others])
    assert "Inter-Asterisk Exchange" in heard.text
    assert heard.options.keywords[0] == ("Inter-Asterisk Exchange", None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("word_timestamps", [False, True], ids=["segments", "words"])
@pytest.mark.parametrize("mode", MODES)
def test_times_only_rise(transcriber: Transcriber, talk, mode: dict, word_timestamps: bool) -> None:
    transcript = transcriber.transcribe(talk, word_timestamps=word_timestamps, **mode)
    assert len(transcript.segments) > 10
    assert [segment.id for segment in transcript.segments] == list(range(len(transcript.segments)))
    assert transcript.segments[0].start >= 0.0
    assert transcript.segments[-1].end <= transcript.duration
    for segment, following in pairwise(transcript.segments):
        assert segment.start <= segment.end <= following.start <= following.end
    words = [word for segment in transcript.segments for word in segment.words or ()]
    assert bool(words) == word_timestamps
    for word, following_word in pairwise(words):
        assert word.start <= word.end <= following_word.start <= following_word.end


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", MODES)
def test_clip_timestamps_restrict_what_is_transcribed(transcriber: Transcriber, clips, mode: dict) -> None:
    parts = [clips[name] for name in ("vm-tooshort", "austen-0930", "conf-kicked", "austen-0880")]
    ends = np.cumsum([len(part) for part in parts]) / RATE
    recording = (np.concatenate(parts), RATE)
    transcript = transcriber.transcribe(recording, clip_timestamps=(ends[0], ends[1], ends[2], ends[3]), **mode)
    assert SENTENCE in transcript.text
    assert "young man" in transcript.text
    assert "message" not in transcript.text
    assert "kicked" not in transcript.text
    for segment in transcript.segments:
        middle = (segment.start + segment.end) / 2
        assert ends[0] < middle < ends[1] or ends[2] < middle < ends[3]
    as_dicts = [{"start": ends[0], "end": ends[1]}, {"start": ends[2], "end": ends[3]}]
    assert transcriber.transcribe(recording, clip_timestamps=as_dicts, **mode).segments == transcript.segments
    as_text = ",".join(str(end) for end in ends)
    assert transcriber.transcribe(recording, clip_timestamps=as_text, **mode).segments == transcript.segments


@pytest.mark.parametrize("mode", MODES)
def test_without_timestamps_a_window_is_one_segment(transcriber: Transcriber, clips, mode: dict) -> None:
    pause = np.zeros(RATE, np.float32)
    recording = np.concatenate([clips["austen-0930"], pause, clips["vm-tooshort"]])
    transcript = transcriber.transcribe((recording, RATE), without_timestamps=True, **mode)
    (segment,) = transcript.segments
    assert segment.text.startswith(f" {SENTENCE[:-1]}")
    assert "too short" in segment.text
