"""Two installed plugins run one architecture: what config.json nests in it decides which of them loads a checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from plugin_environment import THIRD_PARTY
from transformers import BartConfig, BartForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

from transept.errors import UnsupportedModelError
from transept.testing import Parity

PLUGINS = ("pairbart", "pairmbart", "anypair")
KINDS = {"bart": (BartConfig, BartForConditionalGeneration), "mbart": (MBartConfig, MBartForConditionalGeneration)}
SIZES = {
    "vocab_size": 200,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 160,
    "init_std": 0.3,
    "decoder_start_token_id": 2,
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Plugin -> the folder in which pip installed it."""
    made = {}
    for name in PLUGINS:
        source, site = tmp_path_factory.mktemp("source") / name, tmp_path_factory.mktemp("site")
        shutil.copytree(THIRD_PARTY / name, source)  # building writes beside the sources
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--target", str(site), str(source)], check=True)
        made[name] = str(site)
    return made


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What puts a plugin's folder where this process finds it; modules of one are forgotten afterwards."""
    yield monkeypatch
    for name in PLUGINS:
        sys.modules.pop(f"transept_{name}", None)


def parity(kind: str, directory: Path, plugin: str | None = None) -> Parity:
    """A checkpoint of one architecture, whatever the kind."""
    config_class, model_class = KINDS[kind]
    torch.manual_seed(0)
    made = Parity(model_class(config_class(**SIZES)), directory, plugin=plugin)
    file = directory / "config.json"
    shared = {
        "architectures": ["EncoderDecoderModel"],
        "encoder": {"model_type": kind},
        "decoder": {"model_type": kind},
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **shared}))
    return made


@pytest.mark.parametrize("kinds", [("bart", "mbart"), ("mbart", "bart")], ids=" then ".join)
def test_each_plugin_loads_its_own_checkpoint(kinds, sites, path, tmp_path):
    for kind in kinds:
        path.syspath_prepend(sites[f"pair{kind}"])
    for kind in kinds:
        pair = parity(kind, tmp_path / kind)
        assert pair.engine.spec.name == f"pair{kind}"
        pair.check_prefill()


def test_a_plugin_that_claims_all_is_in_conflict_with_each(sites, path, tmp_path):
    for name in PLUGINS:
        path.syspath_prepend(sites[name])
    with pytest.raises(UnsupportedModelError, match=r'2 plugins run "EncoderDecoderModel".*anypair .* and pairmbart '):
        parity("mbart", tmp_path / "either").check_prefill()
    parity("mbart", tmp_path / "chosen", plugin="pairmbart").check_prefill()


def test_the_chosen_plugin_still_has_to_fit(sites, path, tmp_path):
    path.syspath_prepend(sites["pairbart"])
    with pytest.raises(UnsupportedModelError, match=r"decoder\.model_type 'mbart':\n  pairbart .* requires encoder"):
        parity("mbart", tmp_path, plugin="pairbart").check_prefill()
