"""Whisper with more tokens than openai-whisper's: what was added is text, and moves no control token and no time."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile
import torch
from grown_whisper import grow_ctranslate2, grow_huggingface
from transformers import WhisperConfig, WhisperFeatureExtractor
from transformers import WhisperForConditionalGeneration as Reference
from views import view_of
from whisper.tokenizer import get_tokenizer

from transept import Engine, SamplingParams, Transcriber
from transept.errors import CheckpointError
from transept.plugins.whisper.control_tokens import ControlTokens, decoder_prompt, languages

WORDS = {"Geheimwort": " password", "two": ""}  # the first is said in place of " password", the second never
CLIP = "prompts-en/auth-incorrect.flac"  # "Password incorrect. Please enter your password followed by the pound key."
VOCABULARIES = [  # multilingual, languages, tokens
    pytest.param(False, 99, 51864, id="english"),
    pytest.param(True, 99, 51865, id="multilingual"),
    pytest.param(True, 100, 51866, id="large-v3"),
]


@pytest.fixture(scope="module")
def grown(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("grown")
    return {
        "ctranslate2": grow_ctranslate2(tiny_en_dir, folder / "ctranslate2", WORDS),
        "huggingface": grow_huggingface(tiny_en_dir, folder / "huggingface", WORDS),
        "padded": grow_huggingface(tiny_en_dir, folder / "padded", WORDS, multiple=64),
        "as published": grow_huggingface(tiny_en_dir, folder / "published", {}),
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["ctranslate2", "huggingface", "padded"])
@pytest.mark.parametrize(
    "options", [{}, {"word_timestamps": True}, {"batched": True}], ids=["plain", "words", "batched"]
)
def test_a_transcript_with_an_added_word_is_otherwise_the_same(form, options, grown, tiny_en_dir, speech_dir):
    published = tiny_en_dir if form == "ctranslate2" else grown["as published"]
    as_published = Transcriber(published).transcribe(speech_dir / CLIP, **options)
    transcriber = Transcriber(grown[form])
    assert (transcriber.model.languages, transcriber.model.target_languages) == ({}, [])
    found = transcriber.transcribe(speech_dir / CLIP, **options)
    assert found.language == "en"
    assert found.text == as_published.text.replace(" password", "Geheimwort")
    times, before = ([t for each in one.segments for t in (each.start, each.end)] for one in (found, as_published))
    assert times == pytest.approx(before, abs=0.021)  # words of other letters are cut a little apart
    if "word_timestamps" in options:
        words, before = ([word for each in one.segments for word in each.words] for one in (found, as_published))
        assert len(words) in (len(before), len(before) - 1)  # an added word may not begin with a blank
        assert all(0 < word.probability <= 1 for word in words)


@pytest.mark.parametrize("form", ["huggingface", "padded"])
def test_tokens_are_those_of_transformers(form, grown, speech_dir):
    reference = Reference.from_pretrained(grown[form]).eval()
    waveform = soundfile.read(speech_dir / CLIP, dtype="float32")[0]
    features = WhisperFeatureExtractor()(waveform, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.inference_mode():
        expected = reference.generate(features, decoder_input_ids=torch.tensor([[50257, 50362]]))[0].tolist()
    prompt = {"multi_modal_data": {"audio": (waveform, 16_000)}}
    (output,) = Engine(grown[form]).generate(prompt, SamplingParams(temperature=0.0))
    end = 50256
    assert output.prompt_token_ids == [50257, 50362]
    assert [token for token in output.outputs[0].token_ids if token != end] == [
        token for token in expected if token not in (50257, 50362, end)
    ]


@pytest.mark.parametrize("more", [0, 1, 2, 64, 5000])
@pytest.mark.parametrize(("multilingual", "num_languages", "vocab_size"), VOCABULARIES)
def test_names_tell_where_control_tokens_are(multilingual, num_languages, vocab_size, more):
    theirs = get_tokenizer(multilingual, num_languages=num_languages)
    config = WhisperConfig(vocab_size=vocab_size + more, decoder_start_token_id=theirs.sot)
    ours = ControlTokens(config, token_id=theirs.special_tokens.get)
    assert ours.multilingual == multilingual
    assert (ours.start_of_transcript, ours.translate, ours.transcribe) == (
        theirs.sot,
        theirs.translate,
        theirs.transcribe,
    )
    assert (ours.start_of_lm, ours.start_of_previous) == (theirs.sot_lm, theirs.sot_prev)
    assert (ours.no_speech, ours.no_timestamps) == (theirs.no_speech, theirs.no_timestamps)
    assert (ours.first_timestamp, ours.last_timestamp) == (theirs.timestamp_begin, vocab_size - 1)
    assert ours.languages == dict(zip(theirs.all_language_codes, theirs.all_language_tokens, strict=True))


def test_the_generation_config_says_which_languages_and_tasks_there_are():
    settings = SimpleNamespace(
        no_timestamps_token_id=50363,
        lang_to_id={"<|de|>": 50261, "<|en|>": 50259, "<|gsw|>": 51870},
        task_to_id={"transcribe": 50360, "translate": 50358},
        prev_sot_token_id=50359,
    )
    view = view_of(WhisperConfig(vocab_size=51872, decoder_start_token_id=50258), generation_config=settings)
    assert languages(view) == {"en": 50259, "de": 50261, "gsw": 51870}
    assert list(languages(view)) == ["en", "de", "gsw"]
    assert decoder_prompt(view, language="gsw") == [50258, 51870, 50360, 50363]


@pytest.mark.parametrize(
    "wrong", [["<|en|>"], {"<|en|>": "50259"}, {"<|en|>": 51865}, {"<|en|>": -1}, {"<|en|>": True}]
)
def test_languages_that_cannot_be_are_refused(wrong):
    config = WhisperConfig(vocab_size=51865, decoder_start_token_id=50258)
    with pytest.raises(CheckpointError, match="lang_to_id of the generation config"):
        ControlTokens(config, SimpleNamespace(lang_to_id=wrong))


def test_a_names_id_that_the_model_does_not_have_counts_for_nothing():
    config = WhisperConfig(vocab_size=2008, decoder_start_token_id=401)
    theirs = get_tokenizer(multilingual=False)
    expected = vars(ControlTokens(config))
    assert vars(ControlTokens(config, token_id=theirs.special_tokens.get)) == expected
    assert expected["no_timestamps"] == 506
