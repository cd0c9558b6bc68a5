"""Values of config.json and generation_config.json that no model or request can be made of, for each built-in family.

Each is a CheckpointError that names the file and the key, raised while the engine is made.
"""

import json
import math
import shutil
import time
from pathlib import Path

import pytest
from peak_memory import grows_by_less_than
from random_whisper import save_random_whisper
from safetensors import safe_open

from transept import Engine, Transcriber
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.model_shape import ModelShape
from transept.errors import CheckpointError, PromptError

CMUDICT = Path(__file__).parents[2] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 20}
MOST_MEMORY = 500  # MiB that an error may take
MOST_SECONDS = 20  # of a slow processor, all threads together; building a million layers takes many minutes


@pytest.fixture
def checkpoint(request, tmp_path) -> Path:
    """A small checkpoint of the family that a test names."""
    if request.param == "whisper":
        return save_random_whisper(tmp_path / "model")
    return Path(shutil.copytree(CMUDICT / f"{request.param}-g2p", tmp_path / "model"))


def edit(file: Path, **values: object) -> None:
    """Other values in a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def drop_generation_setting(checkpoint: Path, key: str) -> None:
    """So that the config's value counts."""
    file = checkpoint / "generation_config.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != key}))


def linked(directory: Path, path: Path, **values: object) -> None:
    """The same checkpoint with other values in its config.json."""
    for file in directory.iterdir():
        if file.name != "config.json":
            (path / file.name).symlink_to(file)
    shutil.copyfile(directory / "config.json", path / "config.json")
    edit(path / "config.json", **values)


def rows(family: str, **values: list[object]) -> list[tuple[str, str, object]]:
    return [(family, key, value) for key, several in values.items() for value in several]


SIZE = ["64", None, -1, 0, 1.5, [64], {}, True, 10**30]

CONFIG = [
    *rows(
        "bart",
        d_model=SIZE,
        vocab_size=SIZE,
        decoder_layers=SIZE,
        decoder_attention_heads=SIZE,
        encoder_attention_heads=SIZE,
        encoder_ffn_dim=SIZE,
        max_position_embeddings=SIZE,
        encoder_layers=["3", None, 1.5, 10**30],
        decoder_start_token_id=[127, -1, "2", 1.5, [2]],
        bos_token_id=[127, "0", [0]],
        eos_token_id=["</s>", 2.5, [[2]]],
        activation_function=["nope", None, 3],
        architectures=["BartForConditionalGeneration", 3],
        model_type=[["bart"]],
        num_labels=[2**31],
        scale_embedding=["yes"],
    ),
    *rows(
        "t5",
        d_model=SIZE,
        d_kv=SIZE,
        d_ff=SIZE,
        num_heads=SIZE,
        vocab_size=SIZE,
        num_decoder_layers=["2", -1, 0, 1.5, [2], True, 10**30],
        relative_attention_num_buckets=["32", None, -1, 0, 1, 3],
        relative_attention_max_distance=["128", None, -1, 0, 1],
        layer_norm_epsilon=["small", None, -1.0, math.nan],
        feed_forward_proj=[None, 3],
        decoder_start_token_id=[10**6, -1, "0"],
        pad_token_id=["0"],
    ),
    *rows(
        "whisper",
        d_model=SIZE,
        num_mel_bins=["80", None, -1, 1.5, True, 10**30],
        decoder_layers=SIZE,
        vocab_size=[*SIZE, 1000],
        decoder_attention_heads=SIZE,
        max_source_positions=SIZE,
        max_target_positions=SIZE,
        decoder_start_token_id=[10**6, -1, "start"],
    ),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("checkpoint", "key", "value"), CONFIG, indirect=["checkpoint"])
def test_config_value(checkpoint, key, value):
    edit(checkpoint / "config.json", **{key: value})
    drop_generation_setting(checkpoint, key)
    with grows_by_less_than(MOST_MEMORY), pytest.raises(CheckpointError) as raised:
        Engine(checkpoint, **SMALL)
    assert f'{checkpoint / "config.json"}"' in str(raised.value)
    assert key in str(raised.value)


@pytest.mark.parametrize("checkpoint", ["bart"], indirect=True)
def test_a_default_decoder_prompt_may_be_open_where_requests_bring_theirs(checkpoint):
    edit(checkpoint / "config.json", decoder_start_token_id=None)
    drop_generation_setting(checkpoint, "decoder_start_token_id")
    engine = Engine(checkpoint, **SMALL)
    with pytest.raises(PromptError, match="config lacks decoder_start_token_id or bos_token_id"):
        engine.add_request("a", {"prompt_token_ids": [5, 6]})


GENERATION = rows(
    "bart",
    num_beams=["4", 0, -1, 1.5, [4], True],
    num_return_sequences=[0, "1"],
    max_length=["32", -1, 1.5, [32]],
    max_new_tokens=["32", -1],
    min_length=["1", -1],
    length_penalty=["2", [], math.nan, 10**6],
    early_stopping=["soon", [], 2],
    repetition_penalty=["1", 0, -1.0, 10**400],
    no_repeat_ngram_size=["3", -1, 1.5],
    encoder_no_repeat_ngram_size=["3", -1],
    eos_token_id=["</s>", 2.5, [[2]], {}],
    forced_bos_token_id=["0", 1.5],
    forced_eos_token_id=["2", {}],
    suppress_tokens=["1", ["1"], [[1]]],
    begin_suppress_tokens=[[1.5], {"a": 1}],
    bad_words_ids=[[1], [[]], [["a"]], "ab", 3],
    do_sample=["no", 1, []],
)


@pytest.mark.parametrize(("checkpoint", "key", "value"), GENERATION, indirect=["checkpoint"])
@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_generation_value(checkpoint, key, value, name):
    if name == "config.json":  # where old checkpoints have them
        (checkpoint / "generation_config.json").unlink()
    edit(checkpoint / name, **{key: value})
    with pytest.raises(CheckpointError) as raised:
        Engine(checkpoint, **SMALL)
    assert f'{checkpoint / name}"' in str(raised.value)
    assert key in str(raised.value)


@pytest.mark.parametrize("key", ["num_beams", "suppress_tokens"])
def test_a_generation_value_that_a_family_reads_first_blames_its_own_file(key, tmp_path):
    save_random_whisper(tmp_path)
    edit(tmp_path / "generation_config.json", **{key: "4"})
    with pytest.raises(CheckpointError) as raised:
        Engine(tmp_path, **SMALL)
    assert str(raised.value).startswith(f'"{tmp_path / "generation_config.json"}": {key} must be ')


@pytest.mark.parametrize("checkpoint", ["bart"], indirect=True)
@pytest.mark.parametrize("setting", [{"temperature": "hot"}, {"top_k": -1}, {"top_p": 2.0}, {"min_p": "0.1"}])
def test_values_of_sampling_matter_where_the_checkpoint_samples(checkpoint, setting):
    edit(checkpoint / "generation_config.json", do_sample=False, **setting)
    Engine(checkpoint, **SMALL)
    edit(checkpoint / "generation_config.json", do_sample=True)
    with pytest.raises(CheckpointError, match=rf'generation_config\.json": {next(iter(setting))} must be'):
        Engine(checkpoint, **SMALL)


HUGE = [
    *rows(
        "bart",
        decoder_layers=[10**6, 10**9],
        encoder_layers=[10**6],
        vocab_size=[10**12, 10**8],
        d_model=[10**9, 10**5],
        encoder_ffn_dim=[10**9],
        max_position_embeddings=[10**12],
    ),
    *rows("t5", num_layers=[10**6], num_heads=[10**9], d_ff=[10**12], relative_attention_num_buckets=[10**12]),
    *rows("whisper", decoder_layers=[10**6], num_mel_bins=[10**10], max_source_positions=[10**12]),
]


@pytest.mark.parametrize(("checkpoint", "key", "value"), HUGE, indirect=["checkpoint"])
def test_sizes_that_the_weights_cannot_fill(checkpoint, key, value):
    edit(checkpoint / "config.json", **{key: value})
    start, told = time.process_time(), rf"the checkpoint has .*{key}={value}"
    with grows_by_less_than(MOST_MEMORY), pytest.raises(CheckpointError, match=told):
        Engine(checkpoint, **SMALL)
    assert time.process_time() - start < MOST_SECONDS


def test_sinusoidal_positions_that_no_weights_bound(tmp_path):
    """Pegasus computes its positions: nothing of them is in a checkpoint."""
    directory = Path(shutil.copytree(CMUDICT / "bart-g2p", tmp_path / "model"))
    for positions in (10**7, 10**12):
        edit(
            directory / "config.json",
            model_type="pegasus",
            architectures=["PegasusForConditionalGeneration"],
            max_position_embeddings=positions,
        )
        told = f"max_position_embeddings={positions}"
        with grows_by_less_than(MOST_MEMORY), pytest.raises(CheckpointError, match=told):
            Engine(directory, **SMALL)


@pytest.mark.parametrize("heads", [5, [5], [[1]], [[1, 2, 3]], [["a", 0]], {"a": 1}])
def test_alignment_heads_that_are_none(heads, tiny_en_dir, tmp_path):
    linked(tiny_en_dir, tmp_path, alignment_heads=heads)
    with pytest.raises(CheckpointError, match="alignment"):
        Transcriber(tmp_path, **SMALL)


def test_alignment_heads_of_a_teacher_with_more_layers(tiny_en_dir, tmp_path, caplog):
    for number, (heads, kept) in enumerate(
        [
            ([[1, 0], [25, 3], [0, 99], [-1, 0]], ((1, 0),)),
            ([[25, 3], [31, 1]], tuple((layer, head) for layer in (2, 3) for head in range(6))),
        ]
    ):
        (directory := tmp_path / str(number)).mkdir()
        linked(tiny_en_dir, directory, alignment_heads=heads)
        assert Transcriber(directory, **SMALL).model.alignment_heads == kept
    assert "its upper half times words" in caplog.text


@pytest.mark.parametrize(("key", "value"), [("suppress_ids", "abc"), ("suppress_ids_begin", [1.5])])
def test_values_of_a_ctranslate2_checkpoint(key, value, tiny_en_dir, tmp_path):
    linked(tiny_en_dir, tmp_path, **{key: value})
    with pytest.raises(CheckpointError, match=r"config\.json.*suppress_tokens must be"):
        Engine(tmp_path, **SMALL)


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", True, None])
def test_numbers_of_a_shape(value):
    sizes = {"num_decoder_layers": 2, "num_kv_heads": 2, "head_dim": 8, "vocab_size": 99}
    positions = {"max_source_positions": 20, "max_target_positions": None}
    ModelShape(**sizes, **positions)
    for name in sizes:
        with pytest.raises(CheckpointError, match=f"^{name} must be an integer of at least 1"):
            ModelShape(**{**sizes, name: value}, **positions)


def test_shapes_are_told_without_reading():
    directory = CMUDICT / "bart-g2p"
    with safe_open(directory / "model.safetensors", framework="pt") as opened:
        expected = {name: tuple(opened.get_tensor(name).shape) for name in opened.keys()}  # noqa: SIM118
    assert dict(open_checkpoint(directory).shapes()) == expected
