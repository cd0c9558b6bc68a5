"""What each prompt form gives the encoder and the decoder, for families like BART, T5 and Whisper."""

import dataclasses

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BartConfig, PreTrainedTokenizerFast, T5Config, WhisperConfig
from views import preprocessor_of, view_of
from whisper.tokenizer import get_tokenizer

from transept.core.request.limits import Limits
from transept.core.request.prompts import ExplicitEncoderDecoderPrompt, MultiModalPrompt, TextPrompt, TokensPrompt
from transept.core.scheduling.sequence import Sequence
from transept.errors import MediaError, PluginError, PromptError
from transept.multimodal.mapping import MappedInput
from transept.registry.plugins import discover
from transept.registry.spec import ModelSpec

TEXT = "The rain in spain falls mainly on the"
AUDIO = (np.sin(np.arange(8000, dtype=np.float32) / 10), 16_000)
TRANSCRIBE = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
MAX_SOURCE, MAX_TARGET = 64, 16


def byte_level_tokenizer(special_tokens, template):
    """A small byte-level BPE, special tokens first; `template` is what an encoder's text is wrapped in."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special_tokens, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in special_tokens]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def image_mapper(data, view):
    return MappedInput({"pixels": data}, 3)


BART_SPEC = ModelSpec(
    name="bart",
    architectures=("BartForConditionalGeneration",),
    model_class="nowhere:Bart",
    input_mappers={"image": image_mapper},
)
T5_SPEC = ModelSpec(
    name="t5",
    architectures=("T5ForConditionalGeneration",),
    model_class="nowhere:T5",
    default_decoder_prompt=lambda view: [view.config.decoder_start_token_id],
)


def marked(given, token_ids, view):
    """An input beside text: 1 at the given places."""
    mask = torch.zeros(len(token_ids), dtype=torch.int64)
    mask[given or []] = 1
    return mask


MARKING_SPEC = dataclasses.replace(BART_SPEC, encoder_inputs={"marks": marked})


@pytest.fixture(scope="module")
def bart_tokenizer():
    return byte_level_tokenizer(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<s> $A </s>")


@pytest.fixture(scope="module")
def bart(bart_tokenizer):
    config = BartConfig(vocab_size=len(bart_tokenizer))
    return preprocessor_of(
        BART_SPEC, view_of(config, bart_tokenizer), max_source_positions=MAX_SOURCE, max_target_positions=MAX_TARGET
    )


@pytest.fixture(scope="module")
def t5():
    tokenizer = byte_level_tokenizer(["<pad>", "</s>", "<unk>"], "$A </s>")
    return preprocessor_of(T5_SPEC, view_of(T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0), tokenizer))


@pytest.fixture(scope="module")
def whisper_tokenizer(tiny_en_dir):
    return PreTrainedTokenizerFast(tokenizer_file=str(tiny_en_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def whisper(whisper_tokenizer):
    (report,) = (
        report for report in discover().reports if report.distribution == "transept" and report.name == "whisper"
    )
    (spec,) = report.models
    config = WhisperConfig(vocab_size=51864, decoder_start_token_id=50257)
    return preprocessor_of(
        spec,
        view_of(config, whisper_tokenizer),
        max_source_positions=config.max_source_positions,
        max_target_positions=config.max_target_positions,
        encoder_takes_text=False,
    )


def encoder_ids(tokenizer, text):
    return tokenizer.convert_tokens_to_ids(["<s>", *tokenizer.tokenize(text), "</s>"])


def plain_ids(tokenizer, text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def test_the_test_tokenizer_is_laid_out_like_barts(bart_tokenizer):
    assert bart_tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>"]) == [0, 1, 2]
    assert len(bart_tokenizer) > 178
    assert bart_tokenizer(TEXT).input_ids == encoder_ids(bart_tokenizer, TEXT)


# --- text models ---


@pytest.mark.parametrize(
    "prompt",
    [
        TEXT,
        TextPrompt(prompt=TEXT),
        {"prompt": TEXT},
        {"prompt": TEXT, "multi_modal_data": None},
        {"prompt": TEXT, "multi_modal_data": {}},
        {"prompt": TEXT, "prompt_tokens": None},
        ExplicitEncoderDecoderPrompt(encoder_prompt=TEXT, decoder_prompt=None),
        ExplicitEncoderDecoderPrompt(encoder_prompt=TextPrompt(prompt=TEXT), decoder_prompt=None),
        {"encoder_prompt": TEXT},
    ],
)
def test_a_lone_text_goes_to_the_encoder_and_the_decoder_gets_the_default(bart, bart_tokenizer, prompt):
    inputs = bart(prompt)
    assert inputs.encoder.prompt == TEXT
    assert inputs.encoder.token_ids == encoder_ids(bart_tokenizer, TEXT)
    assert inputs.encoder.num_tokens == len(inputs.encoder.token_ids)
    assert inputs.encoder.features == {}
    assert inputs.decoder.token_ids == [2, 0]
    assert inputs.decoder.prompt == "</s><s>"


@pytest.mark.parametrize(
    "prompt",
    [
        TokensPrompt(prompt_tokens=[5, 7, 9]),
        TokensPrompt(prompt_token_ids=[5, 7, 9]),
        {"prompt_tokens": [5, 7, 9]},
        {"prompt_tokens": (5, 7, 9)},
        {"prompt_token_ids": np.array([5, 7, 9])},
        {"prompt_token_ids": torch.tensor([5, 7, 9])},
        {"prompt_token_ids": [5, 7, 9], "prompt_tokens": None},
        ExplicitEncoderDecoderPrompt(encoder_prompt=TokensPrompt(prompt_tokens=[5, 7, 9]), decoder_prompt=None),
        {"encoder_prompt": {"prompt_token_ids": [5, 7, 9]}, "decoder_prompt": None},
    ],
)
def test_lone_tokens_go_to_the_encoder_unmodified(bart, bart_tokenizer, prompt):
    inputs = bart(prompt)
    assert inputs.encoder.token_ids == [5, 7, 9]
    assert all(type(token) is int for token in inputs.encoder.token_ids)
    assert inputs.encoder.num_tokens == 3
    assert inputs.encoder.prompt == bart_tokenizer.decode([5, 7, 9])
    assert inputs.decoder.token_ids == [2, 0]


@pytest.mark.parametrize(
    ("decoder_prompt", "expected"),
    [
        (None, [2, 0]),
        ({"prompt_tokens": [2, 0, 51, 178, 2]}, [2, 0, 51, 178, 2]),
        ({"prompt_tokens": [0, 51]}, [2, 0, 51]),
        (TokensPrompt(prompt_token_ids=[0, 51]), [2, 0, 51]),
        ({"prompt_tokens": [51, 2]}, [2, 51, 2]),
        ({"prompt_tokens": [2]}, [2]),
        ({"prompt_tokens": []}, [2]),
        ("", [2]),
        ("</s><s>", [2, 0]),
        ("<s>", [2, 0]),
        (TextPrompt(prompt="</s>"), [2]),
    ],
)
@pytest.mark.parametrize("encoder_prompt", [TEXT, {"prompt_tokens": [5]}, {"multi_modal_data": {"image": "an image"}}])
def test_the_decoder_prompt_starts_with_the_decoder_start_token(bart, encoder_prompt, decoder_prompt, expected):
    explicit = ExplicitEncoderDecoderPrompt(encoder_prompt=encoder_prompt, decoder_prompt=decoder_prompt)
    assert bart(explicit).decoder.token_ids == expected


def test_a_decoder_text_is_tokenized_without_the_encoders_special_tokens(bart, bart_tokenizer):
    inputs = bart({"encoder_prompt": "a", "decoder_prompt": "The rain"})
    assert inputs.decoder.token_ids == [2, *plain_ids(bart_tokenizer, "The rain")]
    assert inputs.encoder.token_ids == encoder_ids(bart_tokenizer, "a")


def test_an_empty_text_is_still_the_encoders_special_tokens(bart):
    assert bart("").encoder.token_ids == [0, 2]


@pytest.mark.parametrize(
    ("decoder_prompt", "expected"),
    [(None, [0]), ({"prompt_tokens": [51]}, [0, 51]), ({"prompt_tokens": [0, 51]}, [0, 51])],
)
def test_a_family_with_its_own_default_decoder_prompt(t5, decoder_prompt, expected):
    inputs = t5({"encoder_prompt": TEXT, "decoder_prompt": decoder_prompt})
    assert inputs.encoder.token_ids == [*plain_ids(t5.tokenizer, TEXT), 1]
    assert inputs.decoder.token_ids == expected


def test_tokens_need_no_tokenizer():
    preprocess = preprocessor_of(BART_SPEC, view_of(BartConfig(vocab_size=300)))
    inputs = preprocess({"prompt_tokens": [5, 7]})
    assert (inputs.encoder.prompt, inputs.encoder.token_ids) == (None, [5, 7])
    assert (inputs.decoder.prompt, inputs.decoder.token_ids) == (None, [2, 0])


def test_a_sequence_takes_either_side(bart, bart_tokenizer):
    inputs = bart({"encoder_prompt": TEXT, "decoder_prompt": {"prompt_tokens": [0, 51]}})
    decoder, encoder = Sequence(1, inputs), Sequence(2, inputs, from_decoder_prompt=False)
    assert decoder.prompt_token_ids == Sequence(3, inputs, from_decoder_prompt=True).prompt_token_ids == [2, 0, 51]
    assert decoder.prompt == bart_tokenizer.decode([2, 0, 51])
    assert decoder.num_tokens == 3
    assert encoder.prompt == TEXT
    assert encoder.prompt_token_ids == encoder_ids(bart_tokenizer, TEXT)
    assert encoder.num_tokens == len(encoder.prompt_token_ids)


# --- multimodal data ---


@pytest.mark.parametrize(
    ("prompt", "decoder_ids"),
    [
        ({"multi_modal_data": {"image": "an image"}}, [2, 0]),
        (MultiModalPrompt(multi_modal_data={"image": "an image"}), [2, 0]),
        (TokensPrompt(prompt_tokens=[0, 51], multi_modal_data={"image": "an image"}), [2, 0, 51]),
        (TokensPrompt(prompt_token_ids=[2, 51], multi_modal_data={"image": "an image"}), [2, 51]),
        (TextPrompt(prompt="<s>", multi_modal_data={"image": "an image"}), [2, 0]),
        ({"prompt": "", "multi_modal_data": {"image": "an image"}}, [2, 0]),
        ({"prompt_tokens": [], "multi_modal_data": {"image": "an image"}}, [2, 0]),
    ],
)
def test_multimodal_data_goes_to_the_encoder_and_the_rest_to_the_decoder(bart, prompt, decoder_ids):
    inputs = bart(prompt)
    assert (inputs.encoder.prompt, inputs.encoder.token_ids) == (None, [])
    assert inputs.encoder.num_tokens == 3
    assert inputs.encoder.features == {"pixels": "an image"}
    assert Sequence(1, inputs, from_decoder_prompt=False).num_tokens == 3
    assert inputs.decoder.token_ids == decoder_ids


def test_data_is_known_by_its_content_or_by_the_name_that_it_is_given(bart):
    def key(image, **names):
        return bart({"multi_modal_data": {"image": image}, **names}).encoder.content_key

    def named(image, name):
        return key(image, multi_modal_uuids={"image": name})

    assert key("an image") == key("an image") != key("another")
    assert named("an image", "one") == named("another", "one") != named("an image", "two")
    assert named("an image", "one") not in (key("an image"), key("one"))
    explicit = {"multi_modal_data": {"image": "an image"}, "multi_modal_uuids": {"image": "one"}}
    assert bart({"encoder_prompt": explicit, "decoder_prompt": "x"}).encoder.content_key == named("another", "one")
    beside_text = {"prompt": "x", **explicit}
    assert bart(beside_text).encoder.content_key == named("another", "one")


CONTROLS = get_tokenizer(multilingual=False).special_tokens
SOT, NO_TIMESTAMPS = CONTROLS["<|startoftranscript|>"], CONTROLS["<|notimestamps|>"]
FOUR = [SOT, CONTROLS["<|en|>"], CONTROLS["<|transcribe|>"], NO_TIMESTAMPS]
HELLO = get_tokenizer(multilingual=False).encode(" Hello there")


@pytest.mark.parametrize(
    ("prompt", "decoder_ids"),
    [
        ({"multi_modal_data": {"audio": AUDIO}}, [SOT, NO_TIMESTAMPS]),
        ({"prompt": TRANSCRIBE, "multi_modal_data": {"audio": AUDIO}}, FOUR),
        (TextPrompt(prompt=TRANSCRIBE, multi_modal_data={"audio": AUDIO}), FOUR),
        (TextPrompt(prompt=" Hello there", multi_modal_data={"audio": AUDIO}), [SOT, *HELLO]),
        (TokensPrompt(prompt_tokens=FOUR, multi_modal_data={"audio": AUDIO}), FOUR),
        (TokensPrompt(prompt_tokens=[NO_TIMESTAMPS], multi_modal_data={"audio": AUDIO}), [SOT, NO_TIMESTAMPS]),
        (
            {"prompt": "<|startofprev|> Hello there" + TRANSCRIBE, "multi_modal_data": {"audio": AUDIO}},
            [CONTROLS["<|startofprev|>"], *HELLO, *FOUR],
        ),
        ({"encoder_prompt": {"multi_modal_data": {"audio": AUDIO}}, "decoder_prompt": None}, [SOT, NO_TIMESTAMPS]),
        ({"encoder_prompt": {"multi_modal_data": {"audio": AUDIO}}, "decoder_prompt": TRANSCRIBE}, FOUR),
        (
            ExplicitEncoderDecoderPrompt(
                encoder_prompt=TextPrompt(prompt="", multi_modal_data={"audio": AUDIO}),
                decoder_prompt=TokensPrompt(prompt_tokens=FOUR),
            ),
            FOUR,
        ),
    ],
)
def test_audio(whisper, whisper_tokenizer, prompt, decoder_ids):
    inputs = whisper(prompt)
    assert inputs.encoder.num_tokens == 1500
    assert (inputs.encoder.prompt, inputs.encoder.token_ids) == (None, [])
    assert inputs.encoder.features["input_features"].shape == (80, 3000)
    assert inputs.decoder.token_ids == decoder_ids


def test_a_default_decoder_prompt_is_also_told_as_text(whisper):
    assert whisper({"multi_modal_data": {"audio": AUDIO}}).decoder.prompt == "<|startoftranscript|><|notimestamps|>"


# --- text beside data, for an encoder that reads both ---


def question_mapper(data, view, prompt):
    text_ids = view.tokenizer(prompt.text).input_ids if prompt.text is not None else prompt.token_ids or []
    return MappedInput({"pixels": data}, 2 + len(text_ids), [PLACEHOLDER, PLACEHOLDER, *text_ids])


PLACEHOLDER = 3
ASKED_SPEC = ModelSpec(
    name="asked",
    architectures=("Asked",),
    model_class="nowhere:Asked",
    input_mappers={"image": question_mapper},
    prompted_modalities=("image",),
)


def asked(bart_tokenizer, **options):
    config = BartConfig(decoder_start_token_id=2, vocab_size=options.pop("vocab_size", 300))
    return preprocessor_of(ASKED_SPEC, view_of(config, bart_tokenizer), encoder_takes_text=False, **options)


def test_text_beside_data_goes_to_an_encoder_that_reads_both(bart_tokenizer):
    preprocess, image = asked(bart_tokenizer), {"multi_modal_data": {"image": "an image"}}
    ids = bart_tokenizer(TEXT).input_ids
    for prompt in (
        {"prompt": TEXT, **image},
        {"encoder_prompt": {"prompt": TEXT, **image}, "decoder_prompt": None},
        {"encoder_prompt": {"prompt_tokens": ids, **image}},
    ):
        inputs = preprocess(prompt)
        assert inputs.encoder.token_ids == [PLACEHOLDER, PLACEHOLDER, *ids]
        assert inputs.encoder.num_tokens == 2 + len(ids)
        assert inputs.encoder.prompt in (TEXT, None)
        assert inputs.decoder.token_ids == [2, 0]
    both = preprocess({"encoder_prompt": {"prompt": TEXT, **image}, "decoder_prompt": {"prompt_tokens": [51]}})
    assert both.decoder.token_ids == [2, 51]
    silent = preprocess(image).encoder
    assert (silent.prompt, silent.token_ids) == (None, [PLACEHOLDER, PLACEHOLDER])


def test_text_beside_data_has_the_limits_of_text(bart_tokenizer):
    prompt = {"prompt": TEXT, "multi_modal_data": {"image": "an image"}}
    with pytest.raises(PromptError, match="the prompt has 37 characters"):
        asked(bart_tokenizer, limits=Limits(max_text_characters=20))(prompt)
    with pytest.raises(PromptError, match="no tokenizer; pass token ids"):
        asked(None)(prompt)
    with pytest.raises(PromptError, match=r'"image" mapper .* made token id 3 .* ids go from 0 to 2'):
        asked(bart_tokenizer, vocab_size=3)(prompt)
    with pytest.raises(PromptError, match="this model reads 4: shorten it"):
        asked(bart_tokenizer, max_source_positions=4)(prompt)


# --- what is refused ---


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        # form
        (None, "a string or a dict.*not NoneType"),
        ([1, 2, 3], "a string or a dict.*not list"),
        (b"bytes", "a string or a dict.*not bytes"),
        (7, "a string or a dict.*not int"),
        ({}, "empty; give prompt, prompt_tokens or multi_modal_data"),
        ({"prompt": None}, "empty"),
        ({"multi_modal_data": {}}, "empty"),
        ({"promt": "x"}, "no 'promt'.*mean 'prompt'"),
        ({"prompt": "x", "multimodal_data": {}}, "no 'multimodal_data'.*mean 'multi_modal_data'"),
        ({"prompt_tokens_ids": [1]}, "no 'prompt_tokens_ids'.*mean 'prompt_token"),
        ({"encoder_promt": "x"}, "no 'encoder_promt'.*mean 'encoder_prompt'"),
        ({"prompt": "x", "prompt_tokens": [1]}, "both 'prompt' and 'prompt_tokens'"),
        ({"prompt": "x", "prompt_token_ids": [1]}, "both 'prompt' and 'prompt_token_ids'"),
        ({"prompt_tokens": [1], "prompt_token_ids": [1]}, "both 'prompt_tokens' and 'prompt_token_ids'"),
        ({"prompt": [1, 2]}, "must be a string, not list; token ids go into prompt_tokens"),
        ({"prompt_tokens": "123"}, "prompt_tokens must be a list of token ids, not '123'"),
        ({"prompt_token_ids": ["1"]}, "prompt_token_ids must be a list of token ids"),
        ({"prompt_tokens": [1.5]}, "must be a list of token ids"),
        ({"prompt_tokens": [1, None]}, "must be a list of token ids"),
        ({"prompt_tokens": 5}, "must be a list of token ids"),
        ({"prompt_tokens": [[1, 2]]}, "must be a list of token ids"),
        # explicit
        ({"encoder_prompt": None, "decoder_prompt": "x"}, "encoder_prompt is missing"),
        ({"decoder_prompt": "x"}, "encoder_prompt is missing"),
        ({"encoder_prompt": "x", "decoder_promt": "y"}, "no 'decoder_promt'.*mean 'decoder_prompt'"),
        ({"encoder_prompt": "x", "prompt": "y"}, "no 'prompt'"),
        ({"encoder_prompt": {"encoder_prompt": "x"}}, "no 'encoder_prompt'"),
        ({"encoder_prompt": "x", "decoder_prompt": {}}, "empty"),
        ({"encoder_prompt": "x", "decoder_prompt": [1]}, "a string or a dict.*not list"),
        ({"encoder_prompt": "x", "decoder_prompt": {"prompt": "y", "prompt_tokens": [1]}}, "both"),
        # multimodal data
        (
            {"encoder_prompt": "x", "decoder_prompt": {"multi_modal_data": {"image": 1}}},
            "decoder_prompt holds multi_modal_data.*move it",
        ),
        (
            {"encoder_prompt": "x", "decoder_prompt": {"prompt": "y", "multi_modal_data": {"image": 1}}},
            "decoder_prompt holds multi_modal_data",
        ),
        (
            {"encoder_prompt": {"prompt": "x", "multi_modal_data": {"image": 1}}, "decoder_prompt": None},
            "put the text into decoder_prompt",
        ),
        ({"multi_modal_data": {"image": 1, "audio": 2}}, r"\['audio', 'image'\]; give exactly one"),
        ({"multi_modal_data": "talk.flac"}, "modality: data.*not a str"),
        ({"multi_modal_data": []}, "modality: data.*not a list"),
        ({"prompt": "x", "multi_modal_data": np.zeros(3)}, "modality: data.*not a ndarray"),
        ({"multi_modal_data": {"image": 1}, "multi_modal_uuids": {"audio": "one"}}, "names 'audio', which"),
        (
            {"prompt": "x", "multi_modal_uuids": {"image": "one"}},
            "names 'image', which multi_modal_data does not have",
        ),
        ({"multi_modal_data": {"image": 1}, "multi_modal_uuids": "one"}, "modality: your name for its data"),
        ({"multi_modal_data": {"image": 1}, "multi_modal_uuids": {"image": 1}}, "modality: your name"),
        # vocabulary
        ({"prompt_tokens": [5, -1]}, "token id -1 is outside of the vocabulary, 0 to 2"),
        ({"prompt_tokens": [100_000]}, "token id 100000 is outside"),
        ({"encoder_prompt": "x", "decoder_prompt": {"prompt_tokens": [100_000]}}, "token id 100000 is outside"),
        # length
        ({"prompt_tokens": []}, "encoder's prompt is empty"),
        ({"prompt_tokens": [5] * (MAX_SOURCE + 1)}, f"has {MAX_SOURCE + 1} tokens; this model reads {MAX_SOURCE}"),
        ({"prompt": "xyz" * MAX_SOURCE}, rf"has \d+ tokens; this model reads {MAX_SOURCE}"),
        (
            {"encoder_prompt": "x", "decoder_prompt": {"prompt_tokens": [2] * MAX_TARGET}},
            f"decoder's prompt has {MAX_TARGET} tokens; this model has {MAX_TARGET} positions",
        ),
        (
            {"encoder_prompt": "x", "decoder_prompt": {"prompt_tokens": [5] * (MAX_TARGET - 1)}},
            f"decoder's prompt has {MAX_TARGET} tokens",
        ),
    ],
)
def test_malformed_prompts(bart, prompt, message):
    with pytest.raises(PromptError, match=message):
        bart(prompt)


def test_prompts_as_long_as_the_model_allows(bart):
    inputs = bart(
        {
            "encoder_prompt": {"prompt_tokens": [5] * MAX_SOURCE},
            "decoder_prompt": {"prompt_tokens": [5] * (MAX_TARGET - 2)},
        }
    )
    assert inputs.encoder.num_tokens == MAX_SOURCE
    assert len(inputs.decoder.token_ids) == MAX_TARGET - 1


@pytest.mark.parametrize("prompt", ["x", {"encoder_prompt": {"prompt_tokens": [5]}, "decoder_prompt": "x"}])
def test_text_without_a_tokenizer(prompt):
    preprocess = preprocessor_of(BART_SPEC, view_of(BartConfig(vocab_size=300)))
    with pytest.raises(PromptError, match=r"no tokenizer; pass token ids: TokensPrompt\(prompt_tokens="):
        preprocess(prompt)


def test_a_tokenizer_larger_than_the_model(bart_tokenizer):
    preprocess = preprocessor_of(BART_SPEC, view_of(BartConfig(vocab_size=10), bart_tokenizer))
    with pytest.raises(PromptError, match="outside of the vocabulary, 0 to 9"):
        preprocess(TEXT)


@pytest.mark.parametrize(
    "prompt",
    [
        "Hello",
        {"prompt": "Hello"},
        {"prompt_tokens": FOUR},
        {"encoder_prompt": "Hello", "decoder_prompt": TRANSCRIBE},
        {"encoder_prompt": {"prompt_tokens": FOUR}, "decoder_prompt": None},
    ],
)
def test_text_for_an_encoder_that_only_hears(whisper, prompt):
    with pytest.raises(PromptError, match=r'"whisper" models takes no text; pass {"multi_modal_data": {"audio": ...}}'):
        whisper(prompt)


def test_an_unknown_modality(bart, t5):
    with pytest.raises(MediaError, match=r'no mapper for "audio" data\. They take: "image"'):
        bart({"multi_modal_data": {"audio": AUDIO}})
    with pytest.raises(MediaError, match="text only"):
        t5({"multi_modal_data": {"audio": AUDIO}})


@pytest.mark.parametrize("prompt", [TEXT, {"encoder_prompt": "a", "decoder_prompt": TEXT}], ids=["encoder", "decoder"])
def test_text_beyond_the_limit_is_refused_before_it_is_tokenized(bart_tokenizer, prompt):
    view = view_of(BartConfig(vocab_size=len(bart_tokenizer)), bart_tokenizer)
    limits = Limits(max_text_characters=len(TEXT))
    preprocessor_of(BART_SPEC, view, limits=limits)(prompt)
    limits = Limits(max_text_characters=len(TEXT) - 1)
    with pytest.raises(PromptError, match="the prompt has 37 characters, more than the 36 of max_text_characters"):
        preprocessor_of(BART_SPEC, view, limits=limits)(prompt)


def test_further_inputs_of_the_encoder_are_made_of_what_the_prompt_says(bart_tokenizer):
    preprocess = preprocessor_of(MARKING_SPEC, view_of(BartConfig(vocab_size=len(bart_tokenizer)), bart_tokenizer))
    plain = preprocess({"prompt_tokens": [0, 9, 8, 2]}).encoder
    marked, other = (
        preprocess({"encoder_prompt": {"prompt_tokens": [0, 9, 8, 2], "encoder_inputs": given}, "decoder_prompt": "a"})
        for given in ({"marks": [0, 2]}, {"marks": [0, 1]})
    )
    assert plain.features["marks"].tolist() == [0, 0, 0, 0]
    assert marked.encoder.features["marks"].tolist() == [1, 0, 1, 0]
    assert marked.encoder.token_ids == plain.token_ids
    assert len({plain.content_key, marked.encoder.content_key, other.encoder.content_key}) == 3
    assert preprocess({"prompt": TEXT, "encoder_inputs": {"marks": [1]}}).encoder.features["marks"].sum() == 1


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"prompt": TEXT, "encoder_inputs": {"mark": [1]}}, "\"bart\" models have no 'mark'. Did you mean 'marks'?"),
        (
            {"prompt": TEXT, "encoder_inputs": [1]},
            r"encoder_inputs is {name: value}, with .* not \[1\]",
        ),
        ({"multi_modal_data": {"image": 1}, "encoder_inputs": {"marks": [1]}}, "this prompt holds multi_modal_data"),
        (
            {"encoder_prompt": TEXT, "decoder_prompt": {"prompt": "a", "encoder_inputs": {"marks": [1]}}},
            "holds encoder_inputs.*move it to encoder_prompt",
        ),
    ],
)
def test_further_inputs_that_cannot_be_are_refused(bart_tokenizer, prompt, message):
    preprocess = preprocessor_of(MARKING_SPEC, view_of(BartConfig(vocab_size=len(bart_tokenizer)), bart_tokenizer))
    with pytest.raises(PromptError, match=message):
        preprocess(prompt)


def test_a_further_input_that_is_no_tensor_is_the_plugins_fault(bart_tokenizer):
    spec = dataclasses.replace(BART_SPEC, encoder_inputs={"marks": lambda given, token_ids, view: [1]})
    preprocess = preprocessor_of(spec, view_of(BartConfig(vocab_size=len(bart_tokenizer)), bart_tokenizer))
    with pytest.raises(
        PluginError, match=r'encoder_inputs\["marks"\] of plugin family "bart" returned list, no tensor'
    ):
        preprocess(TEXT)


def test_what_a_plugins_function_raises_names_it(bart_tokenizer):
    spec = dataclasses.replace(BART_SPEC, encoder_inputs={"marks": lambda given: None})
    preprocess = preprocessor_of(spec, view_of(BartConfig(vocab_size=len(bart_tokenizer)), bart_tokenizer))
    with pytest.raises(PluginError, match=r'"marks"\] of plugin family "bart" raised TypeError: .*takes 1'):
        preprocess(TEXT)


def test_each_side_has_its_tokenizer_and_its_vocabulary(bart_tokenizer):
    source = byte_level_tokenizer(["</s>", "<pad>"], "$A </s>")
    spec = dataclasses.replace(BART_SPEC, tokenizers=lambda view: (source, view.tokenizer))
    config = BartConfig(vocab_size=len(bart_tokenizer), decoder_start_token_id=2)
    preprocess = preprocessor_of(
        spec, view_of(config, bart_tokenizer), vocab_size=len(bart_tokenizer), source_vocab_size=len(source) + 9
    )
    inputs = preprocess({"encoder_prompt": TEXT, "decoder_prompt": TEXT})
    assert inputs.encoder.token_ids == source(TEXT).input_ids
    assert inputs.decoder.token_ids == [2, *plain_ids(bart_tokenizer, TEXT)]
    assert inputs.encoder.token_ids[:-1] != inputs.decoder.token_ids[1:]
    ids = plain_ids(source, TEXT)
    assert preprocess({"prompt_tokens": ids}).encoder.prompt == TEXT
    preprocess({"prompt_tokens": [len(source) + 8]})
    with pytest.raises(PromptError, match=f"outside of the vocabulary, 0 to {len(source) + 8}"):
        preprocess({"prompt_tokens": [len(source) + 9]})
    with pytest.raises(PromptError, match=f"outside of the vocabulary, 0 to {len(bart_tokenizer) - 1}"):
        preprocess({"encoder_prompt": TEXT, "decoder_prompt": {"prompt_tokens": [len(bart_tokenizer)]}})
