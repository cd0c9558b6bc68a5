"""transept.testing: what is right passes, and each fault of a really installed plugin fails the check that sees it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from installed_plugin import installed
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from transept.errors import ParameterError, RequestFailedError
from transept.testing import Parity, step_by_step
from transept.testing.differences import prefill_cause

FAULTY_PLUGIN = Path(__file__).parent / "faulty_plugin"
SIZES = {
    "vocab_size": 320,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 150,
}
CHECKS = (
    "check_prefill",
    "check_decode",
    "check_batch",
    "check_preemption",
    "check_beam_search",
    "check_drafts",
    "check_low_precision",
)
FAULTS = {  # architecture -> (the first check that fails, words of its message)
    "LatePositions": ("check_prefill", r"logits differ by .*\n.*\n.*encoder's output is right.*positions"),
    "SharpEncoder": ("check_prefill", r"logits differ by .*\n.*\n.*encoder's output differs.*attention \(scale"),
    "NoFinalBias": ("check_prefill", r"logits differ by .*\n.*\n.*encoder's output is right.*a bias\?"),
    "HeadOfItsOwn": ("check_prefill", r"logits differ by .*\n.*\n.*encoder's output is right.*head \(tied\?"),
    "DoubledLogits": ("check_prefill", r"times 2: a scale before the head"),
    "NoStartToken": ("check_prefill", r"decoder prompt \[0\] does not start with 2.*\n.*default_decoder_prompt"),
    "StartTokenTwice": ("check_prefill", r"\[2, 0\] became \[2, 2, 0\].*\n.*prepare_decoder_prompt"),
    "StuckPositions": (
        "check_decode",
        r"prompt 0 \(33 encoder tokens.*step 1 of 64: logits differ .*\n.*\n.*positions",
    ),
    "ForgetsAfter128": (
        "check_decode",
        r"prompt 4 \(150 encoder tokens.*step 12\d of 140: logits differ .*\n.*\n.*decode",
    ),
    "MixedBatch": (
        "check_batch",
        r"ids differ first at step .*\n.*, the reference \d+\. The two best .* apart\.\n.*the batch",
    ),
    "ShortPrefill": ("check_preemption", r"recomputed with blocks of 8: prompt .* ids differ .*\n.*\n.*recomputed"),
    "SettingsLost": ("check_beam_search", r"alone: prompt 0 .*4 beams.*\n.*\n.*generation settings"),
    "CoarseInHalf": (
        "check_low_precision",
        r"in float16 \d+ of 320 steps .* 95% are asked for\. First at prompt \d .*the reference \d+,.*\n.*Ours loses",
    ),
    "OverflowsInHalf": ("check_low_precision", r"in float16 .*\n.*First at prompt 0 .* our logits are not finite"),
}


@pytest.fixture(scope="module", autouse=True)
def _faulty_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with installed(tmp_path_factory, FAULTY_PLUGIN):
        yield


def bart(**settings) -> BartForConditionalGeneration:
    torch.manual_seed(0)
    model = BartForConditionalGeneration(BartConfig(**{**SIZES, "init_std": 0.3, **settings}))
    model.final_logits_bias.normal_()
    model.generation_config.update(num_beams=4, forced_bos_token_id=0, no_repeat_ngram_size=2, length_penalty=2.0)
    return model


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    return Parity(bart(), tmp_path_factory.mktemp("right"))


def name_architecture(directory: Path, name: str) -> None:
    file = directory / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "architectures": [name]}))


@pytest.mark.parametrize("check", CHECKS)
def test_a_right_model_passes(right: Parity, check: str) -> None:
    getattr(right, check)()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_first_check_that_sees_it(fault: str, tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path)
    name_architecture(tmp_path, fault)
    failing, words = FAULTS[fault]
    before = CHECKS.index(failing) if failing != "check_low_precision" else 1  # others are in float32
    for check in CHECKS[:before]:
        getattr(parity, check)()
    with pytest.raises(AssertionError, match=words) as raised:
        getattr(parity, failing)()
    assert str(raised.value).startswith(failing)


def test_what_a_model_raises_is_not_hidden(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path)

    def decode(*inputs: object) -> None:
        raise RuntimeError("this decode is broken")

    parity.engine.executor.worker.runner.model.decode = decode
    with pytest.raises(RequestFailedError, match="this decode is broken"):
        parity.check_prefill()


def test_prompts_are_seeded_and_fit(right: Parity) -> None:
    assert [len(prompt) for prompt in right.prompts] == [33, 7, 1, 64, 150]
    assert not {0, 1, 2}.intersection(*right.prompts)  # BOS, padding, EOS
    assert right.decoder_prompt == [2, 0]


def test_a_decoder_prompt_of_the_callers_own(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path, decoder_prompt=[2, 17, 18])
    parity.check_prefill()
    parity.check_decode()


def test_a_config_that_does_not_say_how_decoders_start(tmp_path: Path) -> None:
    model = bart()
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id = config.bos_token_id = None
    with pytest.raises(
        AssertionError, match=r"default decoder prompt is \[None, .*\n.*decoder_start_token_id, or declare"
    ):
        Parity(model, tmp_path).check_prefill()


def test_the_two_sides_of_a_difference_are_shown_with_the_reference_margin(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path)
    name_architecture(tmp_path, "SharpEncoder")
    with pytest.raises(AssertionError) as raised:
        parity.check_prefill()
    ours, theirs = map(float, re.search(r"ours (\S+), reference (\S+)\.\n", str(raised.value)).groups())
    difference = float(re.search(r"logits differ by (\S+)", str(raised.value))[1])
    assert abs(ours - theirs) == pytest.approx(difference, rel=0.05)
    logits = parity.reference.logits(parity.inputs[0], [2, 0])[-1]
    token = int(re.search(r"most at token (\d+)", str(raised.value))[1])
    assert float(logits[token]) == pytest.approx(theirs, abs=1e-4)


def test_a_reference_that_ignores_its_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"the same tokens after every prompt.*init_std=0\.3"):
        Parity(bart(init_std=0.0001), tmp_path).check_decode()


def whisper() -> WhisperForConditionalGeneration:
    """Windows of a second: 50 encoder tokens."""
    torch.manual_seed(0)
    sizes = {name: size for name, size in SIZES.items() if name not in ("vocab_size", "max_position_embeddings")}
    config = WhisperConfig(**sizes, max_source_positions=50, max_target_positions=150, init_std=0.3)
    return WhisperForConditionalGeneration(config)


def test_an_encoder_that_takes_features_needs_to_be_given_some(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r'encoder of "whisper" takes no text; give Parity inputs='):
        Parity(whisper(), tmp_path).check_prefill()
    with pytest.raises(ParameterError, match="several inputs"):
        Parity(whisper(), tmp_path, inputs=[({"audio": (np.zeros(9), 16_000)}, {})])


def test_an_encoder_that_takes_features_is_compared_on_those_given(tmp_path: Path) -> None:
    extractor = WhisperFeatureExtractor(chunk_length=1)
    noise = np.random.default_rng(0)
    sounds = [noise.normal(0, 0.1, size).astype(np.float32) for size in (16_000, 5_000, 11_000)]
    inputs = [
        ({"audio": (sound, 16_000)}, {**extractor(sound, sampling_rate=16_000, return_tensors="pt")})
        for sound in sounds
    ]
    parity = Parity(whisper(), tmp_path, inputs=inputs, decoder_prompt=[50257, 17, 18], tolerance=1e-2)
    for check in CHECKS[:3]:  # all windows are equally long, and generate of Whisper is an algorithm of its own
        getattr(parity, check)()
    swapped = [(inputs[0][0], inputs[1][1]), (inputs[1][0], inputs[0][1])]
    parity = Parity(whisper(), tmp_path, inputs=swapped, decoder_prompt=[50257])
    with pytest.raises(AssertionError, match=r"prompt 0 \(50 encoder tokens.*\n.*\n.*encoder's output differs"):
        parity.check_prefill()


def test_an_encoder_is_not_blamed_for_a_width_that_a_projection_explains() -> None:
    ours, theirs = torch.arange(5.0), torch.ones(5)
    cause = prefill_cause(torch.ones(7, 48), torch.ones(7, 32), ours, theirs)
    assert cause.startswith("Look at the decoder's embedding")
    assert "its layers" not in cause
    cause = prefill_cause(torch.ones(7, 48), torch.ones(8, 48), ours, theirs)
    assert cause == "The encoder's output is [7, 48], the reference's [8, 48]: look at its layers."


class Blind(BartForConditionalGeneration):
    """Does not hand on what its encoder gives, as a reference does whose encoder is run elsewhere."""

    def forward(self, encoder_outputs, **others):
        encoder_outputs.last_hidden_state = torch.ones(1, 1, self.config.d_model)
        return super().forward(encoder_outputs=encoder_outputs, **others)


class Crowded(BartForConditionalGeneration):
    """Its logits depend on how many tokens it sees at once, as those of experts with a capacity do."""

    def forward(self, decoder_input_ids, **others):
        output = super().forward(decoder_input_ids=decoder_input_ids, **others)
        output.logits = output.logits * (1.0 if decoder_input_ids.shape[1] < 9 else 0.5)
        return output


class TableInFloat32(BartForConditionalGeneration):
    """Raises in any other dtype, as TrOCR does with sinusoidal positions."""

    def get_encoder(self, *modality):
        assert self.dtype is torch.float32
        return super().get_encoder(*modality)


class Broken(BartForConditionalGeneration):
    def get_encoder(self, *modality):
        raise KeyError("pixel_values")


def of_class(kind: type[BartForConditionalGeneration], directory: Path, **options) -> Parity:
    """BART in Transept, beside a reference that differs."""
    model = bart()
    model.__class__ = kind
    parity = Parity(model, directory, **options)
    name_architecture(directory, "BartForConditionalGeneration")
    return parity


def test_a_reference_that_did_not_see_its_input_is_told_before_any_difference(tmp_path: Path) -> None:
    parity = of_class(Blind, tmp_path)
    for check in CHECKS[:2]:
        with pytest.raises(
            AssertionError, match=r"did not see them: it was given input_ids, .*\n.*run_reference="
        ) as told:
            getattr(parity, check)()
        assert "float64" not in str(told.value)


def test_a_reference_that_raises_is_told_with_how_it_was_run(tmp_path: Path) -> None:
    words = (
        r"Broken in float32, raised KeyError: 'pixel_values'\n.*get_encoder\(\).*input_ids\..*run_reference=function"
    )
    with pytest.raises(AssertionError, match=words) as raised:
        of_class(Broken, tmp_path).check_prefill()
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_reference_that_runs_in_float32_alone_is_compared_in_that(tmp_path: Path) -> None:
    parity = of_class(TableInFloat32, tmp_path)
    with pytest.raises(AssertionError, match=r"where 100% are asked for.*\n.*which runs in that alone\. Look for"):
        parity.check_low_precision(("bfloat16",), share=1.0)


def whole(model, keywords, decoder_input_ids):
    return model(**keywords, decoder_input_ids=decoder_input_ids, use_cache=False).logits


def test_a_reference_is_run_as_its_author_says(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path, run_reference=whole)
    for check in CHECKS[:3]:
        getattr(parity, check)()
    parity = Parity(bart(), tmp_path / "sharp", run_reference=whole)
    name_architecture(tmp_path / "sharp", "SharpEncoder")
    with pytest.raises(AssertionError, match=r"logits differ by .*\n.*\n.*run by run_reference, so the encoders'"):
        parity.check_prefill()


def test_a_reference_with_a_capacity_is_told_or_run_step_by_step(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"check_decode: .*\n.*\n.*change when it sees later ones.*step_by_step"):
        of_class(Crowded, tmp_path / "at once", decoder_prompt=[2, 0]).check_decode()
    parity = of_class(Crowded, tmp_path / "step by step", run_reference=step_by_step)
    parity.check_prefill()
    parity.check_decode()


def test_decoder_prompts_and_encoder_inputs_of_chosen_lengths(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path, encoder_lengths=(140, 3), prompt_lengths=(9, 131))
    assert [len(prompt) for prompt in parity.prompts] == [140, 3]
    assert [len(prompt) for prompt in parity.decoder_prompts] == [2, 9, 131]
    for check in CHECKS[:3]:
        getattr(parity, check)()
    with pytest.raises(ParameterError, match=r"prompt_lengths holds 150; .* more than 2 tokens, .* and less than 150"):
        Parity(bart(), tmp_path, prompt_lengths=(150,)).check_prefill()
    with pytest.raises(ParameterError, match="several inputs"):
        Parity(bart(), tmp_path, encoder_lengths=(9,))


def test_longer_prompts_find_what_the_short_one_hides(tmp_path: Path) -> None:
    parity = Parity(bart(), tmp_path, prompt_lengths=(9, 131))
    name_architecture(tmp_path, "ShortPrefill")
    with pytest.raises(AssertionError, match=r"check_prefill: prompt 0 .* decoder prompt of 131"):
        parity.check_prefill()


def test_weights_that_are_all_the_same_are_drawn_unless_told_otherwise(tmp_path: Path) -> None:
    drawn, left = bart(), bart()
    drawn.register_buffer("running_var", torch.ones(3))
    Parity(drawn, tmp_path / "drawn")
    Parity(left, tmp_path / "left", draw_constants=False)
    new = bart().state_dict()
    assert all(torch.equal(weight, new[name]) for name, weight in left.state_dict().items())
    changed = {
        name for name, weight in drawn.state_dict().items() if name in new and not torch.equal(weight, new[name])
    }
    assert "model.encoder.layernorm_embedding.weight" in changed
    assert "model.decoder.layers.0.fc1.bias" in changed
    assert not [name for name in changed if new[name].unique().numel() > 1]
    assert torch.equal(drawn.running_var, torch.ones(3))


def test_a_share_of_ones_own(right: Parity) -> None:
    with pytest.raises(AssertionError, match=r"in bfloat16 .* where 100% are asked for.*\n.*Both lose about as much"):
        right.check_low_precision(("bfloat16",), share=1.0)


def test_weights_that_magnify_rounding_are_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"away from its logits in float64.*\n?.*narrower"):
        Parity(bart(init_std=3.0), tmp_path).check_decode()
