"""Transcription over HTTP with OpenAI's own client: every format is what the library and the command line give."""

import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from patience import PATIENCE
from speech.recordings import RATE, joined
from timed_media import timed_file

from transept import Transcriber, Transcript
from transept.serving.http.transcription_answers import segment_logprobs
from transept.speech.segments import Segment

CLIP = "austen-0870.flac"
LEFT, RIGHT = "librivox/austen-0890.flac", "prompts-en/vm-mailboxfull.flac"


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / CLIP


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def expected(transcriber: Transcriber, clip: Path) -> Transcript:
    return transcriber.transcribe(clip, word_timestamps=True)


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def transcribe(client: openai.OpenAI, clip: Path, **fields: Any) -> Any:
    return client.audio.transcriptions.create(**{"model": "tiny.en", "file": clip, **fields})


def test_json_has_the_text_and_the_seconds(client: openai.OpenAI, clip: Path, expected: Transcript) -> None:
    answer = transcribe(client, clip)
    assert answer.text == expected.text
    assert answer.usage.type == "duration"
    assert answer.usage.seconds == pytest.approx(expected.duration)


def test_text_and_subtitles_are_the_files_of_the_command_line(
    client: openai.OpenAI, clip: Path, transcriber: Transcriber, tmp_path: Path
) -> None:
    transcript = transcriber.transcribe(clip)
    assert transcribe(client, clip, response_format="text") == transcript.text + "\n"
    for name in ("srt", "vtt", "tsv", "csv", "lrc", "ass", "ttml", "html"):
        transcript.write(tmp_path / f"clip.{name}")
        assert transcribe(client, clip, response_format=name) == (tmp_path / f"clip.{name}").read_text()


def test_subtitles_are_laid_out(client: openai.OpenAI, clip: Path, expected: Transcript, tmp_path: Path) -> None:
    layout = {"max_line_width": 20, "max_line_count": 1, "highlight_words": True}
    expected.write(tmp_path / "clip.srt", **layout)
    fields = {name: str(value) for name, value in layout.items()}
    for words in ({}, {"word_timestamps": "true"}):
        answer = transcribe(client, clip, response_format="srt", extra_body={**words, **fields})
        assert answer == (tmp_path / "clip.srt").read_text()
    for name, value in {"highlight_words": True, "max_line_width": 20, "max_words_per_line": 3, "style": "bbc"}.items():
        expected.write(tmp_path / "clip.vtt", **{name: value})
        answer = transcribe(client, clip, response_format="vtt", extra_body={name: str(value)})
        assert answer == (tmp_path / "clip.vtt").read_text(), name


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("json", "application/json"),
        ("verbose_json", "application/json"),
        ("text", "text/plain; charset=utf-8"),
        ("srt", "application/x-subrip; charset=utf-8"),
        ("vtt", "text/vtt; charset=utf-8"),
        ("tsv", "text/tab-separated-values; charset=utf-8"),
        ("csv", "text/csv; charset=utf-8"),
        ("lrc", "text/plain; charset=utf-8"),
        ("ass", "text/x-ssa; charset=utf-8"),
        ("ttml", "application/ttml+xml; charset=utf-8"),
    ],
)
def test_every_format_has_its_media_type(name: str, media_type: str, server: Any, clip: Path) -> None:
    answer = httpx.post(
        f"{server.url}/v1/audio/transcriptions",
        files={"file": clip.read_bytes()},
        data={"model": "tiny.en", "response_format": name},
        timeout=PATIENCE,
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type


def test_verbose_json_has_segments_and_words(client: openai.OpenAI, clip: Path, expected: Transcript) -> None:
    answer = transcribe(
        client, clip, response_format="verbose_json", timestamp_granularities=["word", "segment"], temperature=0
    )
    assert (answer.text, answer.language, answer.duration) == (expected.text, "english", expected.duration)
    for ours, theirs in zip(expected.segments, answer.segments, strict=True):
        assert (theirs.id, theirs.seek, theirs.tokens, theirs.text) == (ours.id, ours.seek, ours.tokens, ours.text)
        assert (theirs.start, theirs.end) == (ours.start, ours.end)
        assert theirs.avg_logprob == pytest.approx(ours.avg_logprob, abs=1e-5)
    words = [word for segment in expected.segments for word in segment.words]
    assert [(word.word, word.start, word.end) for word in answer.words] == [
        (word.word.strip(), word.start, word.end) for word in words
    ]


@pytest.mark.parametrize(
    ("granularities", "names"),
    [(["word"], {"words"}), (["segment"], {"segments"}), (["word, segment"], {"words", "segments"})],
)
def test_verbose_json_has_the_times_that_were_asked_for(
    granularities: list[str], names: set[str], client: openai.OpenAI, clip: Path
) -> None:
    answer = transcribe(client, clip, response_format="verbose_json", timestamp_granularities=granularities)
    assert {name for name in ("segments", "words") if getattr(answer, name) is not None} == names


def test_logprobs_are_those_of_the_tokens(client: openai.OpenAI, clip: Path, transcriber: Transcriber) -> None:
    answer = transcribe(client, clip, include=["logprobs"])
    transcript = transcriber.transcribe(clip, token_logprobs=True)
    expected = [
        logprob
        for segment in transcript.segments
        for token, logprob in zip(segment.tokens, segment.token_logprobs, strict=True)
        if token in transcriber.model.tokenizer.text_tokens
    ]
    assert [each.logprob for each in answer.logprobs] == pytest.approx(expected, abs=1e-5)
    assert "".join(each.token for each in answer.logprobs).strip() == transcript.text
    assert bytes(map(int, answer.logprobs[0].bytes)).decode() == answer.logprobs[0].token


def test_parts_of_characters_have_their_bytes(transcriber: Transcriber) -> None:
    text = " Déjà vu 🎉."
    tokens = transcriber.model.tokenizer.encode(text)
    segment = Segment(0, 0, 0.0, 1.0, text, tokens, 0.0, -0.5, 1.0, 0.0, token_logprobs=[-0.5] * len(tokens))
    listed = segment_logprobs(transcriber.model, segment)
    assert bytes(byte for each in listed for byte in each["bytes"]).decode() == text
    for each in listed:
        is_whole = bytes(each["bytes"]).decode(errors="replace") == each["token"]
        assert is_whole or each["token"] == "".join(f"\\x{byte:02x}" for byte in each["bytes"])
    assert any("\\xf0\\x9f" in each["token"] for each in listed)


def test_a_stream_grows_to_the_whole_text(
    client: openai.OpenAI, transcriber: Transcriber, speech_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "joined.flac"
    soundfile.write(path, np.tile(joined(speech_dir / "librivox"), 3), RATE)
    expected = transcriber.transcribe(path)
    assert len(expected.segments) > 5
    events = list(transcribe(client, path, stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == expected.text
    segments = [event for event in events if event.type == "transcript.text.segment"]
    assert [(each.start, each.end, each.text) for each in segments] == [
        (each.start, each.end, each.text) for each in expected.segments
    ]
    assert {each.speaker for each in segments} == {""}
    (done,) = [event for event in events if event.type == "transcript.text.done"]
    assert done is events[-1]
    assert done.text == expected.text
    assert done.usage.seconds == pytest.approx(expected.duration)


def test_a_stream_is_corrected_and_redacted(client: openai.OpenAI, clip: Path, expected: Transcript) -> None:
    first = expected.text.split()[0]
    more = {"glossary": f"# names\n{first} = At 12", "redact": "numbers"}
    events = list(transcribe(client, clip, stream=True, extra_body=more))
    text = expected.text.replace(first, "At [number]")
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == text
    assert events[-1].text == text
    with pytest.raises(openai.BadRequestError, match=r"must be .*wrong = right.*terms.txt"):
        transcribe(client, clip, extra_body={"glossary": "terms.txt"})


@pytest.fixture(scope="module")
def call(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people on a channel each, who speak at once."""
    clips = [soundfile.read(speech_dir / name, dtype="float32")[0] for name in (LEFT, RIGHT)]
    path = tmp_path_factory.mktemp("call") / "call.flac"
    soundfile.write(path, np.stack([np.pad(each, (0, max(map(len, clips)) - len(each))) for each in clips], 1), RATE)
    return path


def test_speakers_are_the_channels_of_a_call(
    client: openai.OpenAI, transcriber: Transcriber, call: Path, tmp_path: Path
) -> None:
    fields = {"extra_body": {"channel": "each", "word_timestamps": "true"}}
    expected = transcriber.transcribe(call, channel="each", word_timestamps=True)
    spoken = [(each.speaker, each.start, each.text) for each in expected.segments]
    assert {speaker for speaker, _, _ in spoken} == {"left", "right"}
    diarized = transcribe(client, call, response_format="diarized_json", **fields)
    assert [(each.speaker, each.start, each.text) for each in diarized.segments] == spoken
    assert diarized.text == expected.text
    verbose = transcribe(client, call, response_format="verbose_json", timestamp_granularities=["word"], **fields)
    words = [(each.speaker, word.start) for each in expected.segments for word in each.words or ()]
    assert [(each.speaker, each.start) for each in verbose.words] == words
    for name in ("text", "vtt"):
        expected.write(tmp_path / f"call.{name}", {"text": "txt"}.get(name))
        assert transcribe(client, call, response_format=name, **fields) == (tmp_path / f"call.{name}").read_text()
    events = list(transcribe(client, call, stream=True, **fields))
    assert [
        (each.speaker, each.start, each.text) for each in events if each.type == "transcript.text.segment"
    ] == spoken
    assert "".join(each.delta for each in events if each.type == "transcript.text.delta") == expected.text


def test_a_stream_tells_its_progress_and_the_words(server: Any, clip: Path, expected: Transcript) -> None:
    fields = {"model": "tiny.en", "stream": "true", "progress": "true", "timestamp_granularities[]": "word"}
    request = {"files": {"file": clip.read_bytes()}, "data": fields, "timeout": 120}
    with httpx.stream("POST", f"{server.url}/v1/audio/transcriptions", **request) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    assert events[0] == {"type": "transcript.opened", "duration": expected.duration}
    known = {"language": "en", "language_probability": None}
    assert events[1] == {
        "type": "transcript.info",
        **known,
        "duration": expected.duration,
        "duration_after_vad": expected.duration_after_vad,
        "warnings": [],
    }
    kinds = {event["type"] for event in events}
    assert kinds >= {"transcript.progress", "transcript.text.segment", "transcript.text.done"}
    words = [word for event in events for word in event.get("words", ())]
    assert [word["word"] for word in words] == [word.word for each in expected.segments for word in each.words]


def test_any_option_of_transcription_is_a_field(client: openai.OpenAI, clip: Path, transcriber: Transcriber) -> None:
    given = {
        "patience": "1",
        "temperature": "0,0.4,0.8",
        "language": "en-US",
        "suppress_numerals": "true",
        "suppress_regex": r" ?[A-Z]\.",
        "chunk_length": "3.5",
        "suppress_tokens": "null",
        "condition_on_previous_text": "false",
        "hotwords": "Dashwood",
        "keywords": "Norland, Henry",
        "keyword_boost": "2.5",
        "clip_timestamps": '[{"start": 0, "end": 4}]',
        "max_initial_timestamp": "none",
        "vad": "yes",
        "vad_options": '{"threshold": 0.4}',
    }
    options = {
        "beam_size": 5,
        "temperature": (0.0, 0.4, 0.8),
        "suppress_numerals": True,
        "suppress_regex": r" ?[A-Z]\.",
        "chunk_length": 3.5,
        "suppress_tokens": None,
        "condition_on_previous_text": False,
        "hotwords": "Dashwood",
        "keywords": ["Norland", "Henry"],
        "keyword_boost": 2.5,
        "clip_timestamps": (0.0, 4.0),
        "max_initial_timestamp": None,
        "vad": True,
        "vad_options": {"threshold": 0.4},
    }
    answer = transcribe(client, clip, response_format="verbose_json", extra_body=given)
    expected = transcriber.transcribe(clip, **options)
    assert [segment.tokens for segment in answer.segments] == [segment.tokens for segment in expected.segments]
    given |= {"vad_options": {"threshold": 0.4}}  # which OpenAI's client sends as vad_options[threshold]
    answer = transcribe(client, clip, response_format="verbose_json", extra_body=given)
    assert [segment.tokens for segment in answer.segments] == [segment.tokens for segment in expected.segments]


def test_hotwords_without_room_are_a_warning(client: openai.OpenAI, clip: Path) -> None:
    fields = {
        "hotwords": "word " * 300,
        "max_new_tokens": "1",
        "mode": "sequential",
        "quality": "fast",
        "temperature": "0,",
    }
    answer = transcribe(client, clip, response_format="verbose_json", extra_body=fields)
    (warning,) = answer.warnings
    assert warning.startswith("transcribed with the first 223 of 300 hotwords")


def test_a_list_of_temperatures_is_all_that_is_tried(client: openai.OpenAI, clip: Path) -> None:
    for temperatures, last in (("0,0.5,1", 1.0), ("0,0.5", 0.5), ("0,", 0.0), ("0", 1.0)):
        doubtful = {"compression_ratio_threshold": "0.01", "temperature": temperatures}
        answer = transcribe(client, clip, response_format="verbose_json", extra_body=doubtful)
        assert {segment.temperature for segment in answer.segments} == {last}


def test_openais_own_words_for_options(client: openai.OpenAI, clip: Path, transcriber: Transcriber) -> None:
    answer = transcribe(
        client,
        clip,
        model="whisper-1",
        language="en",
        prompt="Sense and Sensibility",
        chunking_strategy={"type": "server_vad", "threshold": 0.4, "silence_duration_ms": 100},
        response_format="verbose_json",
    )
    expected = transcriber.transcribe(
        clip,
        language="en",
        initial_prompt="Sense and Sensibility",
        vad_options={"threshold": 0.4, "min_silence_duration_ms": 100},
    )
    assert [segment.tokens for segment in answer.segments] == [segment.tokens for segment in expected.segments]


@pytest.mark.parametrize(
    ("fields", "status", "param", "message"),
    [
        ({"model": "nobody"}, 404, "model", "tiny.en"),
        ({"language": "xx"}, 400, "language", "English"),
        ({"response_format": "xml"}, 400, "response_format", "verbose_json"),
        ({"temperature": -1}, 400, "temperature", "at least 0"),
        ({"temperature": "warm"}, 400, "temperature", "numbers"),
        ({"timestamp_granularities": ["line"]}, 400, "timestamp_granularities[]", "word"),
        ({"include": ["all"]}, 400, "include[]", "logprobs"),
        ({"chunking_strategy": "sometimes"}, 400, "chunking_strategy", "auto"),
        ({"file": b"no audio"}, 400, "file", "cannot be decoded"),
        ({"file": b""}, 400, "file", "empty"),
        ({"stream": True, "response_format": "srt"}, 400, "stream", "srt"),
        ({"extra_body": {"beam_size": "0"}}, 400, "beam_size", "at least 1"),
        ({"extra_body": {"beam_size": "1000"}}, 400, "beam_size", "beam_size=1000 needs 1000 sequences"),
        ({"extra_body": {"best_of": "1000"}}, 400, "best_of", "max_num_seqs is"),
        ({"extra_body": {"patience": "2", "best_of": "1000", "beam_size": "2"}}, 400, "best_of", "max_num_seqs is"),
        ({"extra_body": {"chunk_length": "31"}}, 400, "chunk_length", "has at most 30"),
        ({"extra_body": {"suppress_regex": "("}}, 400, "suppress_regex", "not a regular expression"),
        ({"extra_body": {"beam_size": "two"}}, 400, "beam_size", "an integer"),
        ({"extra_body": {"vad": "perhaps"}}, 400, "vad", "true or false"),
        ({"extra_body": {"vad_options": "[1]"}}, 400, "vad_options", "JSON object"),
        ({"extra_body": {"vad": "yes", "vad_options": {"loudness": 1}}}, 400, "vad_options.loudness", "loudness"),
        (
            {"extra_body": {"vad": "yes", "vad_options": {"threshold": "x"}}},
            *(400, "vad_options.threshold", "threshold"),
        ),
        ({"extra_body": {"vad_options": '{"threshold": 7}'}}, 400, "vad_options.threshold", "threshold"),
        (
            {"chunking_strategy": {"type": "server_vad", "threshold": 7}},
            *(400, "chunking_strategy.threshold", "must be a number above 0"),
        ),
        ({"languages": ["xx"]}, 400, "languages", "English"),
        ({"extra_body": {"audio_track": "3"}}, 400, "audio_track", "has no track 3"),
        ({"extra_body": {"audio_track": "-1"}}, 400, "audio_track", "the number of a track"),
        ({"extra_body": {"clip_timestamps": [{"start": 0, "end": 4}]}}, 400, "clip_timestamps", "is a single value"),
        ({"extra_body": {"language": {"code": "en"}}}, 400, "language", "is a single value"),
        ({"extra_body": {"beam_sizes": "2"}}, 400, "beam_sizes", "beam_size"),
        ({"extra_body": {"batch_size": "0"}}, 400, "batch_size", "at least 1"),
        ({"extra_body": {"vad_filter": "perhaps"}}, 400, "vad_filter", "true or false"),
        (
            {"extra_body": {"num_beams": "2", "beam_size": "3"}},
            400,
            "beam_size",
            "beam_size and num_beams are the same",
        ),
        (
            {"extra_body": {"max_line_width": "20", "word_timestamps": "no"}, "response_format": "srt"},
            *(400, "max_line_width", "word_timestamps"),
        ),
        ({"known_speaker_names": ["me"]}, 400, "known_speaker_references", "one recording for each name"),
        (
            {"known_speaker_names": ["me"], "known_speaker_references": ["file:///etc/passwd"]},
            *(400, "known_speaker_references[]", "data:audio/wav;base64"),
        ),
        ({"extra_body": {"voices": "/etc/passwd"}}, 400, "voices", "JSON of such a file"),
        ({"extra_body": {"speakers": "two"}}, 400, "speakers", "must be an integer of at least 1"),
        ({"extra_body": {"same_speakers": "true"}}, 400, "same_speakers", "no field"),
        ({"extra_body": {"channel": "centre"}}, 400, "channel", '"mix", "left", "right" or "each"'),
        ({"extra_body": {"channel": "each"}}, 400, "channel", "has one channel"),
        ({"extra_body": {"diarize": "true"}}, 400, "diarize", "none is installed"),
        ({"response_format": "diarized_json"}, 400, "response_format", "response_format=diarized_json needs a plugin"),
        ({"languages": ["en", "de"]}, 400, "languages", "one language"),
    ],
)
def test_what_cannot_be_is_told_with_its_field(
    fields: dict[str, Any], status: int, param: str | None, message: str, client: openai.OpenAI, clip: Path
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        transcribe(client, clip, **fields)
    error = raised.value.body
    assert raised.value.status_code == status
    assert error["param"] == param
    assert message in error["message"]
    assert error["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert raised.value.response.headers["x-request-id"]


def test_what_fails_before_a_stream_begins_has_its_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be decoded"):
        list(transcribe(client, ("nothing.wav", b"no audio"), stream=True))


def test_translation_is_refused_by_a_model_of_one_language(client: openai.OpenAI, clip: Path) -> None:
    with pytest.raises(openai.BadRequestError, match="multilingual"):
        client.audio.translations.create(model="tiny.en", file=clip)


def test_translations_refuse_the_other_task_by_name(client: openai.OpenAI, clip: Path) -> None:
    with pytest.raises(openai.BadRequestError, match="task is 'transcribe', but /v1/audio/translations") as raised:
        client.audio.translations.create(model="tiny.en", file=clip, extra_body={"task": "transcribe"})
    assert raised.value.param == "task"
    with pytest.raises(openai.BadRequestError, match="multilingual"):  # the same as without it
        client.audio.translations.create(model="tiny.en", file=clip, extra_body={"task": "translate"})


def test_the_target_language_is_a_field(client: openai.OpenAI, clip: Path, expected: Transcript) -> None:
    for response_format in ("json", "verbose_json"):
        answer = transcribe(client, clip, response_format=response_format, extra_body={"target_language": "en"})
        assert answer.text == expected.text
    assert (answer.language, answer.target_language) == ("english", "en")
    with pytest.raises(openai.BadRequestError, match='no target languages, so "fr" is not one') as raised:
        transcribe(client, clip, extra_body={"target_language": "fr"})
    assert raised.value.param == "target_language"


def test_many_clients_get_what_each_gets_alone(server: Any, clips: list[Path], transcriber: Transcriber) -> None:
    expected = {clip: transcriber.transcribe(clip).text for clip in clips}
    ready = threading.Barrier(32)

    def one(index: int) -> bool:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as own:
            ready.wait()
            clip = clips[index % len(clips)]
            if index % 3:
                return transcribe(own, clip).text == expected[clip]
            return list(transcribe(own, clip, stream=True))[-1].text == expected[clip]

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(one, range(32)))


def test_a_large_upload_is_kept_in_a_file_that_goes_with_its_request(
    server: Any, client: openai.OpenAI, clip: Path, expected: Transcript
) -> None:
    waveform, _ = soundfile.read(clip, dtype="float32")
    wav = io.BytesIO()
    soundfile.write(wav, np.tile(waveform, 10), 16_000, format="WAV")
    assert wav.tell() > 1 << 21
    answer = transcribe(client, ("long.wav", wav.getvalue()), extra_body={"clip_timestamps": "0,7.1"})
    assert answer.text == expected.text
    with pytest.raises(openai.BadRequestError) as raised:
        transcribe(client, ("../my secret.wav", b"x" * (2 << 20)))
    assert "my secret.wav" in raised.value.body["message"]
    assert "/tmp" not in raised.value.body["message"]
    server.wait_until_idle()  # no file is left either


def test_damage_and_the_reason_of_an_empty_text_are_told(server: Any, clip: Path, transcriber: Transcriber) -> None:
    samples = soundfile.read(clip, dtype="float32")[0]
    whole, silent = io.BytesIO(), io.BytesIO()
    soundfile.write(whole, samples, RATE, format="WAV")
    soundfile.write(silent, np.zeros(RATE), RATE, format="WAV")
    cut = whole.getvalue()[: len(whole.getvalue()) // 2]
    for data in (cut, silent.getvalue()):
        expected = transcriber.transcribe(data)
        answers = [
            httpx.post(
                f"{server.url}/v1/audio/transcriptions",
                files={"file": ("a.wav", data)},
                data={"model": "tiny.en", "response_format": "verbose_json", **fields},
                timeout=PATIENCE,
            )
            for fields in ({}, {"stream": "true", "progress": "true"})
        ]
        verbose = answers[0].json()
        assert (verbose["warnings"], verbose["reason"]) == (expected.warnings, expected.reason)
        events = [json.loads(line[6:]) for line in answers[1].text.splitlines() if line.startswith("data: {")]
        (info,) = [event for event in events if event["type"] == "transcript.info"]
        assert info["warnings"] == expected.warnings
        assert (events[-1]["warnings"], events[-1]["reason"]) == (expected.warnings, expected.reason)
    assert transcriber.transcribe(cut).warnings[0].startswith("damaged: truncated at ")
    assert (transcriber.transcribe(silent.getvalue()).reason or "").startswith("the recording is silent")


def test_a_track_is_chosen_by_number_or_language(
    client: openai.OpenAI, clip: Path, transcriber: Transcriber, tmp_path: Path
) -> None:
    samples = soundfile.read(clip, dtype="float32")[0]
    video = tmp_path / "video.mkv"
    video.write_bytes(timed_file("matroska", "pcm_s16le", [[(0, np.zeros_like(samples))], [(0, samples)]]))
    expected = transcriber.transcribe(video, audio_track=1).text
    assert expected
    for track, text in (("1", expected), ("spa", expected), ("es", expected), ("0", ""), ("eng", ""), ("", expected)):
        assert transcribe(client, video, extra_body={"audio_track": track}).text == text
    for track in ("2", "fr"):
        with pytest.raises(openai.BadRequestError, match="no track") as raised:
            transcribe(client, video, extra_body={"audio_track": track})
        assert raised.value.param == "audio_track"
    with pytest.raises(openai.BadRequestError, match="audio_track must be the number of a track"):
        transcribe(client, video, extra_body={"audio_track": "-1"})
