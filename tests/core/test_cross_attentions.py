"""What a model says of its decoder layers' cross-attention, by which the engine writes keys and values."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from transept import Engine, SamplingParams
from transept.core.layers.norm import norm_of_sum
from transept.core.layers.transformer import DecoderLayer
from transept.errors import PluginError
from transept.plugins.bart.model import BartForConditionalGeneration

PROMPTS = [{"prompt_tokens": [5, 6, 7, 8, 9]}, {"prompt_tokens": [11, 12]}]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2)


def put(monkeypatch: pytest.MonkeyPatch, model_class: type[BartForConditionalGeneration]) -> None:
    """Engines made from now on take it in place of BART."""
    monkeypatch.setattr("transept.plugins.bart.model.BartForConditionalGeneration", model_class)


def said(directory: Path) -> list[Any]:
    return [output.outputs for output in Engine(directory, kv_cache_bytes=1 << 24).generate(PROMPTS, GREEDY)]


def edited(source: Path, target: Path, edit: Callable[[dict[str, Tensor]], None]) -> Path:
    """A checkpoint with other weights."""
    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    edit(weights)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


class OneLayerLess(BartForConditionalGeneration):
    def cross_attentions(self) -> list[Any]:
        return list(super().cross_attentions())[1:]


class Modules(BartForConditionalGeneration):
    def cross_attentions(self) -> list[Any]:
        return [layer.ffn for layer in self.decoder.layers]


class Raises(BartForConditionalGeneration):
    def cross_attentions(self) -> list[Any]:
        return [layer.no_such_part for layer in self.decoder.layers]


@pytest.mark.parametrize(
    ("model_class", "message"),
    [
        (OneLayerLess, r"returned 1 modules; its shape has 2 decoder layers\. Give each layer a CrossAttention"),
        (Modules, "returned a FeedForward without keys_and_values"),
        (Raises, "OneLayer|Raises.cross_attentions .* raised AttributeError"),
    ],
)
def test_a_model_that_cannot_tell_is_refused(
    model_class: type, message: str, bart_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, model_class)
    with pytest.raises(PluginError, match=message):
        Engine(bart_dir)


def test_layers_may_share_their_weights(bart_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if ".decoder.layers.0." in name]:
            weights[name.replace("layers.0.", "layers.1.")] = weights[name].clone()

    class Shared(BartForConditionalGeneration):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.decoder.layers[1] = self.decoder.layers[0]

        def cross_attentions(self) -> list[Any]:
            return [layer.cross_attn for layer in self.decoder.layers]

    def drop(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if ".decoder.layers.1." in name]:
            del weights[name]

    expected = said(edited(bart_dir, tmp_path / "twice", repeat))
    put(monkeypatch, Shared)
    assert said(edited(bart_dir, tmp_path / "once", drop)) == expected


def test_a_layer_may_have_none(bart_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(weights: dict[str, Tensor]) -> None:
        for name in weights:
            if ".decoder.layers.1.encoder_attn.out_proj" in name:
                weights[name] = torch.zeros_like(weights[name])

    class SelfOnly(DecoderLayer):
        def forward(self, x: Tensor, kv_cache: Tensor, metadata: Any, *others: Any) -> Tensor:
            x = norm_of_sum(x, self.self_attn(x, kv_cache, metadata, *others), self.self_attn_norm)
            x = self.cross_attn_norm(x)
            return norm_of_sum(x, self.ffn(x), self.ffn_norm)

    class LastWithout(BartForConditionalGeneration):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.decoder.layers[1].__class__ = SelfOnly

        def cross_attentions(self) -> list[Any]:
            return [self.decoder.layers[0].cross_attn, None]

    directory = edited(bart_dir, tmp_path / "bart", silence)
    expected = said(directory)
    put(monkeypatch, LastWithout)
    ours = said(directory)
    assert [one.token_ids for (one,) in ours] == [one.token_ids for (one,) in expected]
    for (one,), (other,) in zip(ours, expected, strict=True):
        assert one.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-4)
