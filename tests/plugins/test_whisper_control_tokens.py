"""Whisper's control tokens against openai-whisper's own tokenizers, for every vocabulary that was released."""

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration
from views import view_of
from whisper.tokenizer import get_tokenizer

from transept.errors import CheckpointError, ParameterError, PromptError
from transept.plugins.whisper import control_tokens
from transept.plugins.whisper.control_tokens import ControlTokens

VOCABULARIES = [  # vocab_size, multilingual, num_languages, id of <|startoftranscript|>
    pytest.param(51864, False, 99, 50257, id="english"),
    pytest.param(51865, True, 99, 50258, id="multilingual"),
    pytest.param(51866, True, 100, 50258, id="large-v3"),
]
MULTILINGUAL = VOCABULARIES[1:]


def config_of(vocab_size, start):
    return WhisperConfig(vocab_size=vocab_size, decoder_start_token_id=start)


@pytest.mark.parametrize(("vocab_size", "multilingual", "num_languages", "start"), VOCABULARIES)
def test_layout(vocab_size, multilingual, num_languages, start):
    theirs = get_tokenizer(multilingual, num_languages=num_languages)
    ours = ControlTokens(config_of(vocab_size, start))
    assert ours.multilingual == multilingual
    assert ours.start_of_transcript == theirs.sot
    assert ours.translate == theirs.translate
    assert ours.transcribe == theirs.transcribe
    assert ours.start_of_previous == theirs.sot_prev
    assert ours.no_speech == theirs.no_speech
    assert ours.no_timestamps == theirs.no_timestamps
    assert ours.first_timestamp == theirs.timestamp_begin
    assert vocab_size == theirs.encoding.n_vocab


@pytest.mark.parametrize(("vocab_size", "multilingual", "num_languages", "start"), VOCABULARIES)
def test_every_language(vocab_size, multilingual, num_languages, start):
    theirs = get_tokenizer(multilingual, num_languages=num_languages)
    expected = dict(zip(theirs.all_language_codes, theirs.all_language_tokens, strict=True))
    assert len(expected) == num_languages
    assert ControlTokens(config_of(vocab_size, start)).languages == expected
    assert control_tokens.languages(view_of(config_of(vocab_size, start))) == (expected if multilingual else {})


@pytest.mark.parametrize(("vocab_size", "multilingual", "num_languages", "start"), MULTILINGUAL)
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_decoder_prompt_of_every_language(vocab_size, multilingual, num_languages, start, task):
    view = view_of(config_of(vocab_size, start))
    for language in control_tokens.languages(view):
        theirs = get_tokenizer(multilingual, num_languages=num_languages, language=language, task=task)
        plain = control_tokens.decoder_prompt(view, language=language, task=task)
        timed = control_tokens.decoder_prompt(view, language=language, task=task, timestamps=True)
        assert tuple(plain) == theirs.sot_sequence_including_notimestamps
        assert tuple(timed) == theirs.sot_sequence


@pytest.mark.parametrize(("vocab_size", "multilingual", "num_languages", "start"), VOCABULARIES)
def test_default_decoder_prompt(vocab_size, multilingual, num_languages, start):
    view = view_of(config_of(vocab_size, start))
    theirs = get_tokenizer(multilingual, num_languages=num_languages)
    assert tuple(control_tokens.decoder_prompt(view)) == theirs.sot_sequence_including_notimestamps
    assert tuple(control_tokens.decoder_prompt(view, timestamps=True)) == theirs.sot_sequence
    assert control_tokens.language_prompt(view) == [theirs.sot]


SETTINGS = {
    "none": {},
    "a language by its code": {"language": "de"},
    "a language by its name": {"language": "French"},
    "a language by its token": {"language": "<|ja|>"},
    "a task": {"language": "es", "task": "translate"},
    "forced tokens": {"forced_decoder_ids": [[1, 50266], [2, 50359], [3, 50363]]},
    "a forced translation": {"forced_decoder_ids": [[1, 50261], [2, 50358], [3, 50363]]},
    "forced tokens that leave the language open": {"forced_decoder_ids": [[1, None], [2, 50359]]},
}


UNDETECTED = [SETTINGS["none"], SETTINGS["forced tokens that leave the language open"]]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_default_decoder_prompt_is_transformers_for_the_checkpoints_settings(settings):
    config = WhisperConfig(
        vocab_size=51865, decoder_start_token_id=50258, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    )  # fmt: skip
    plain = ControlTokens(config)
    generation_config = GenerationConfig(
        decoder_start_token_id=50258, eos_token_id=50257, is_multilingual=True, no_timestamps_token_id=50363,
        lang_to_id={f"<|{code}|>": token for code, token in plain.languages.items()},
        task_to_id={"transcribe": 50359, "translate": 50358}, **settings,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    if settings in UNDETECTED:
        generation_config.language = "en"  # which transformers would detect
    generation_config.return_timestamps = False
    expected = model._retrieve_init_tokens(
        torch.zeros(1, 80, 3000), batch_size=1, generation_config=generation_config, config=config,
        num_segment_frames=3000, kwargs={},
    )  # fmt: skip
    view = view_of(config, generation_config=SimpleNamespace(**settings))
    assert control_tokens.default_decoder_prompt(view) == expected.tolist()[0]


def test_a_default_language_that_the_checkpoint_lacks_waits_for_a_request():
    view = view_of(config_of(51865, 50258), generation_config=SimpleNamespace(language="yue"))
    with pytest.raises(PromptError, match=r"the generation config has language='yue' and task=None: .* no language"):
        control_tokens.default_decoder_prompt(view)


def test_an_english_checkpoint_has_neither_language_nor_task_tokens():
    view = view_of(config_of(51864, 50257))
    theirs = get_tokenizer(multilingual=False)
    prompt = control_tokens.decoder_prompt(view, language="en", task="transcribe")
    assert tuple(prompt) == theirs.sot_sequence_including_notimestamps == (50257, 50362)


@pytest.mark.parametrize(
    ("vocab_size", "start", "options", "message"),
    [
        (51865, 50258, {"language": "yue"}, "no language 'yue'"),
        (51865, 50258, {"language": "haww"}, "no language 'haww'.*mean 'haw'"),
        (51865, 50258, {"language": "xx"}, "no language 'xx'"),
        (51866, 50258, {"language": "English"}, "no language 'English'"),
        (51865, 50258, {"task": "transcript"}, '"transcribe" or "translate", not \'transcript\''),
        (51865, 50258, {"task": ""}, "not ''"),
        (51864, 50257, {"language": "de"}, "knows English only, not 'de'; use a multilingual one"),
        (51864, 50257, {"task": "translate"}, "English only and has no task='translate'"),
        (51864, 50257, {"language": "en", "task": "translate"}, "English only and has no task='translate'"),
        (51864, 50257, {"task": "sing"}, "not 'sing'"),
    ],
)
def test_languages_and_tasks_that_a_checkpoint_lacks(vocab_size, start, options, message):
    with pytest.raises(ParameterError, match=message):
        control_tokens.decoder_prompt(view_of(config_of(vocab_size, start)), **options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [50258]),
        ([50364], [50258, 50364]),
        ([50258], [50258]),
        ([50258, 50259, 50359], [50258, 50259, 50359]),
        ([50361, 400, 50258, 50259], [50361, 400, 50258, 50259]),  # <|startofprev|> and earlier text come first
        ([50361, 400], [50361, 400, 50258, 50259, 50359, 50363]),
        ((400,), [50258, 400]),
    ],
)
def test_a_users_decoder_prompt_starts_a_transcript(given, expected):
    assert control_tokens.prepare_decoder_prompt(given, view_of(config_of(51865, 50258))) == expected


@pytest.mark.parametrize(("vocab_size", "multilingual", "num_languages", "start"), VOCABULARIES)
def test_tokens_added_to_a_vocabulary_move_no_others(vocab_size, multilingual, num_languages, start):
    settings = SimpleNamespace(no_timestamps_token_id=vocab_size - 1502, is_multilingual=multilingual)
    expected = vars(ControlTokens(config_of(vocab_size, start)))
    assert vars(ControlTokens(config_of(vocab_size + 39, start), settings)) == expected
    view = view_of(config_of(vocab_size + 39, start), generation_config=settings)
    assert control_tokens.decoder_prompt(view) == control_tokens.decoder_prompt(view_of(config_of(vocab_size, start)))
    for wrong in (start, vocab_size - 1501 + 39):
        with pytest.raises(CheckpointError, match=f"no_timestamps_token_id of the generation config is {wrong}; it"):
            ControlTokens(config_of(vocab_size + 39, start), SimpleNamespace(no_timestamps_token_id=wrong))
