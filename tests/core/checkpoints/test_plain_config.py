"""PlainConfig beside the transformers classes that it stands for, by the configs of CTranslate2 Whisper checkpoints."""

import copy
import pickle

import pytest
from transformers import GenerationConfig, WhisperConfig

from transept import Engine, SamplingParams, TokensPrompt
from transept.authoring import PlainConfig
from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
from transept.core.request.generation_defaults import complete
from transept.core.request.ignored_settings import UNSUPPORTED
from transept.errors import ParameterError
from transept.plugins.whisper.model import WhisperForConditionalGeneration
from transept.plugins.whisper.weights import whisper_config, whisper_generation_config


@pytest.fixture(scope="module", params=["tiny_en_dir", "base_dir"])
def configs(request):
    checkpoint = CTranslate2Checkpoint(request.getfixturevalue(request.param))
    config = whisper_config(checkpoint)
    return config, whisper_generation_config(checkpoint, config)


def test_the_derived_config_is_a_whisper_config(configs):
    config, _ = configs
    theirs = WhisperConfig(**config.to_dict())
    known = theirs.to_dict()
    assert {name: known[name] for name in config.to_dict()} == config.to_dict()
    assert theirs.activation_function == WhisperConfig().activation_function == "gelu"
    assert WhisperForConditionalGeneration.shape(config) == WhisperForConditionalGeneration.shape(theirs)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.7, "seed": 1},
        {"num_beams": 3},
        {"n": 2, "temperature": 1.0, "seed": 1},
        {"max_tokens": 7, "min_tokens": 2, "suppress_tokens": ()},
    ],
)
def test_requests_decode_as_by_a_generation_config(configs, params):
    config, ours = configs
    theirs = GenerationConfig(**ours.to_dict())
    shape = {"prompt_token_ids": [5, 6], "max_positions": 448, "vocab_size": config.vocab_size}
    assert complete(SamplingParams(**params), ours, **shape) == complete(SamplingParams(**params), theirs, **shape)
    for name, (neutral, _) in UNSUPPORTED.items():  # nothing to warn of
        assert getattr(theirs, name, None) in (None, neutral)


def test_what_is_not_given():
    with pytest.raises(AttributeError):
        _ = PlainConfig(height=3).width
    sampled = PlainConfig(do_sample=True)  # which leaves open the temperature and what ends a sequence
    theirs = GenerationConfig(do_sample=True)
    shape = {"prompt_token_ids": [5], "max_positions": 30, "vocab_size": 90, "eos_token_ids": (2,)}
    params = SamplingParams(seed=3, top_k=5)
    assert complete(params, sampled, **shape) == complete(params, theirs, **shape)


def test_copies_are_equal_and_apart():
    config = PlainConfig(height=3, sizes=[1, 2])
    for copied in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert copied == config
        copied.update(height=4)
        copied.sizes.append(3)
    assert config.to_dict() == {"height": 3, "sizes": [1, 2]}
    assert config != PlainConfig(height=4, sizes=[1, 2])


def test_a_request_may_bring_one(tiny_en_dir):
    engine = Engine(tiny_en_dir)
    prompt = {"encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": ([0.0] * 1600, 16_000)}}}
    prompt["decoder_prompt"] = TokensPrompt(prompt_tokens=[50257, 50362])
    outputs = [
        engine.generate(prompt, SamplingParams(), generation_config=made(eos_token_id=50256, max_length=6))[0]
        for made in (PlainConfig, GenerationConfig)
    ]
    assert outputs[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids
    assert len(outputs[0].outputs[0].token_ids) <= 4
    with pytest.raises(ParameterError, match="GenerationConfig of transformers or a PlainConfig, not dict"):
        engine.generate(prompt, generation_config={"max_length": 6})
