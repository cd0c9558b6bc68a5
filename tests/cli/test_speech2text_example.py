"""examples/transept-speech2text, installed: recordings as transformers hears them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import soundfile
import torch
from fresh_environment import FreshEnvironment
from transformers import (
    Speech2TextConfig,
    Speech2TextFeatureExtractor,
    Speech2TextForConditionalGeneration,
    Speech2TextProcessor,
    Speech2TextTokenizer,
)

CLIPS = sorted((Path(__file__).parents[1] / "data" / "speech" / "librivox").glob("*.flac"))
LANGUAGES = ("pt", "fr", "ru", "nl", "ro", "it", "es", "de")  # of MuST-C, in transformers' order
TEXTS = [f"the {noun} {verb} {where}" for noun in ("door", "ship", "nave") for verb in ("is", "has") for where in "ab"]
GREEDY = ("--temperature", "0", "--temperature-increment-on-fallback", "None", "--beam-size", "1")
REFUSED = """
import json, sys
import numpy, transept
transcribers = {path: transept.Transcriber(path) for path in sys.argv[1:]}
sound = (numpy.random.default_rng(0).normal(0, 0.1, 16000).astype(numpy.float32), 16000)
for path, options in json.loads(sys.stdin.read()):
    try:
        ask = transcribers[path].align if "text" in options else transcribers[path].transcribe
        print(ask(sound, **options).language)
    except transept.TranseptError as error:
        print(f"{type(error).__name__}: {error}")
"""
SERVED = """
import asyncio, sys
from transept.serving.async_tasks import AsyncTranscriber

async def main():
    transcriber = await AsyncTranscriber.load(sys.argv[1])
    await transcriber.engine.warm_up()
    await transcriber.close()

asyncio.run(main())
"""


def save_checkpoint(directory: Path, lang_codes: str | None) -> Path:
    """A small random model with its tokenizer and its settings, of one language or of MuST-C's eight targets."""
    codes = [f"<lang:{language}>" for language in LANGUAGES] if lang_codes else []
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(directory / "sentencepiece.bpe"),
        vocab_size=48,
        model_type="bpe",
        user_defined_symbols=codes,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "sentencepiece.bpe.model"))
    vocabulary = {pieces.id_to_piece(index): index for index in range(pieces.get_piece_size())}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = Speech2TextTokenizer(
        str(directory / "vocab.json"), str(directory / "sentencepiece.bpe.model"), lang_codes=lang_codes
    )
    Speech2TextProcessor(Speech2TextFeatureExtractor(), tokenizer).save_pretrained(directory)
    torch.manual_seed(0)
    config = Speech2TextConfig(
        vocab_size=len(vocabulary),
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        conv_channels=64,
        max_target_positions=60,
        init_std=0.4,
    )
    model = Speech2TextForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.decoder.embed_tokens.weight, std=0.1)  # or every token predicts itself
    if codes:
        model.generation_config.forced_bos_token_id = vocabulary["<lang:fr>"]
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("recognizer"), None)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("translator"), "mustc")


def heard(checkpoint: Path, waveform: np.ndarray, target: str | None = None) -> str:
    """What transformers makes of a recording, but for tokens that are no text."""
    model = Speech2TextForConditionalGeneration.from_pretrained(checkpoint)
    processor = Speech2TextProcessor.from_pretrained(checkpoint)
    tokenizer = processor.tokenizer
    given = processor(waveform, sampling_rate=16_000, return_tensors="pt")
    languages = tokenizer.lang_code_to_id
    ids = model.generate(
        **given,
        decoder_input_ids=torch.tensor([[2] if target is None else [2, languages[target]]]),
        max_length=60,
        num_beams=1,
        suppress_tokens=[0, 1, 3, *languages.values()],
        forced_bos_token_id=None,
    )
    return str(tokenizer.decode(ids[0], skip_special_tokens=True)).strip()


def samples(clip: Path) -> np.ndarray:
    waveform, rate = soundfile.read(clip, dtype="float32")
    assert rate == 16_000
    return waveform


def lines(output: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.stdout.splitlines()]


@pytest.fixture(scope="module")
def recording() -> np.ndarray:
    """Two windows of 30 s."""
    return np.concatenate([samples(clip) for clip in (*CLIPS, *CLIPS)])


@pytest.fixture(scope="module")
def done(
    examples: FreshEnvironment,
    recognizer: Path,
    translator: Path,
    recording: np.ndarray,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """The commands of the tests below, run where the plugin is installed."""
    long = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(long, recording, 16_000, subtype="FLOAT")
    commands = {
        "clips": ("transcribe", *CLIPS, "--model", recognizer),
        "long": ("transcribe", long, "--model", recognizer, "--mode", "sequential"),
        "batched": ("transcribe", *CLIPS[:2], "--model", recognizer, "--batched"),
        "without silence": ("transcribe", *CLIPS[:2], "--model", recognizer, "--vad"),
        "french": ("transcribe", *CLIPS, "--model", translator, "--target-language", "fr"),
        "german": ("transcribe", *CLIPS, "--model", translator, "--target-language", "German", "--language", "en"),
    }
    outputs = examples.commands(*((*command, "--json", *GREEDY) for command in commands.values()))
    for output in outputs:
        assert output.returncode == 0, output.stderr
    return dict(zip(commands, outputs, strict=True))


def test_recordings_are_transcribed_as_transformers_does(done: dict[str, Any], recognizer: Path) -> None:
    found = lines(done["clips"])
    assert [line["text"] for line in found] == [heard(recognizer, samples(clip)) for clip in CLIPS]
    assert len({line["text"] for line in found}) == len(CLIPS)
    for line in found:
        (segment,) = line["segments"]
        assert (line["language"], segment["start"]) == ("en", 0.0)
        assert segment["end"] == pytest.approx(line["duration"], abs=0.025)


def test_windows_of_a_long_recording_are_its_segments(
    done: dict[str, Any], recognizer: Path, recording: np.ndarray
) -> None:
    # What a request carries are whole frames, the last of which ends 15 ms after the window's last hop.
    windows = [recording[begin : begin + 480_240] for begin in range(0, len(recording), 480_000)]
    (line,) = lines(done["long"])
    assert [segment["text"].strip() for segment in line["segments"]] == [heard(recognizer, each) for each in windows]
    assert [segment["start"] for segment in line["segments"]] == [0.0, 30.0]


@pytest.mark.parametrize("way", ["batched", "without silence"])
def test_pieces_between_pauses_are_segments(done: dict[str, Any], way: str) -> None:
    for line in lines(done[way]):
        (segment,) = line["segments"]
        assert segment["text"].strip() == line["text"] != ""
        assert 0.0 <= segment["start"] < segment["end"] <= line["duration"]


def test_the_target_language_is_the_forced_token(done: dict[str, Any], translator: Path) -> None:
    for name, target in (("french", "fr"), ("german", "de")):
        found = lines(done[name])
        assert [line["text"] for line in found] == [heard(translator, samples(clip), target) for clip in CLIPS]
        assert {line["language"] for line in found} == {"en"}
    assert done["french"].stdout != done["german"].stdout


@pytest.mark.slow
def test_what_it_cannot_do_is_told(examples: FreshEnvironment, recognizer: Path, translator: Path) -> None:
    asked = (
        (recognizer, {"task": "translate"}, "writes the one language that it was trained for"),
        (recognizer, {"target_language": "fr"}, "no target languages, so 'fr' is not one; leave target_language out"),
        (recognizer, {"target_language": "English"}, "en"),
        (recognizer, {"language": "de"}, "de"),
        (recognizer, {"word_timestamps": True}, "times of words"),
        (recognizer, {"text": "a ship"}, "cannot time words, so it cannot align a text"),
        (recognizer, {"max_initial_timestamp": 2.0}, "no timestamps; leave max_initial_timestamp out"),
        (recognizer, {"multilingual": True}, "one language only; leave multilingual=True out"),
        (translator, {}, "say to which target_language: de, es, fr, it, nl, pt, ro, ru"),
        (translator, {"task": "translate"}, "to 'en'; target_language may be pt, fr, ru, nl, ro, it, es, de"),
        (translator, {"target_language": "pl"}, "to 'pl'; target_language may be pt, fr, ru, nl, ro, it, es, de"),
        (translator, {"target_language": "fr", "language": "de"}, "translates from English only, not 'de'"),
        (translator, {"target_language": "pt-BR", "task": "translate"}, "en"),
    )
    given = json.dumps([[str(path), options] for path, options, _ in asked])
    script = f"import io, sys; sys.stdin = io.StringIO({given!r})\n{REFUSED}"
    ran = examples.run("-c", script, recognizer, translator)
    assert ran.returncode == 0, ran.stderr
    for line, (_, options, told) in zip(ran.stdout.splitlines(), asked, strict=True):
        assert line == told if len(told) == 2 else line.startswith("ParameterError: ") and told in line, options


@pytest.mark.slow
def test_a_server_of_a_model_that_only_translates_gets_warm(examples: FreshEnvironment, translator: Path) -> None:
    ran = examples.run("-c", SERVED, translator)
    assert ran.returncode == 0, ran.stderr
