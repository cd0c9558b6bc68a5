"""BART whose decoder's layers have windows, in place of the plugin's."""

import dataclasses
from typing import Any

import pytest

from transept.core.model_shape import ModelShape
from transept.plugins.bart.model import BartForConditionalGeneration


def put_windows(monkeypatch: pytest.MonkeyPatch, window: int, declared: int | None) -> None:
    """Engines made from now on have them. declared: what the model's shape says of its windows."""

    class WindowedBart(BartForConditionalGeneration):
        def __init__(self, config: Any, context: Any) -> None:
            super().__init__(config, context)
            for layer in self.decoder.layers:
                layer.self_attn.attn.window = window

        @classmethod
        def shape(cls, config: Any) -> ModelShape:
            return dataclasses.replace(super().shape(config), window=declared)

    monkeypatch.setattr("transept.plugins.bart.model.BartForConditionalGeneration", WindowedBart)
