"""examples/transept-fsmt, installed: translations as transformers has them."""

import json
from pathlib import Path

import pytest
import torch
from fresh_environment import FreshEnvironment
from transformers import FSMTConfig, FSMTForConditionalGeneration, FSMTTokenizer

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PUNCTUATION = [f"{mark}</w>" for mark in ".,;!?"]
MERGES = [("t", "h"), ("th", "e</w>"), ("i", "n"), ("in", "g</w>"), ("s", "c"), ("sc", "h"), ("e", "n</w>"), ("u", "n")]
DOCUMENTS = {"short.txt": "the king sings.", "long.txt": "when the bell rings, the king is listening to nothing; " * 3}
BOTH_SIDES = """
import json, sys
import transept
from transept.cli import main
_, directory, text, target, *files = sys.argv
assert main(["translate", *files, "--model", directory, "--target", "de", "--json"]) == 0
engine = transept.Engine(directory)
ids = engine.source_tokenizer(text).input_ids
(output,) = engine.generate({"encoder_prompt": {"prompt_tokens": ids}, "decoder_prompt": target})
errors = []
for tokens in ([engine.shape.source_vocab_size], [engine.shape.source_vocab_size - 1]):
    try:
        engine.generate({"prompt_tokens": tokens})
    except transept.TranseptError as error:
        errors.append(str(error))
try:
    transept.translate(text, model=directory, target="fr")
except transept.TranseptError as error:
    errors.append(str(error))
print(json.dumps([output.encoder_prompt, output.prompt_token_ids, errors]))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model from English to German, whose vocabularies have the same pieces under other ids."""
    directory = tmp_path_factory.mktemp("checkpoint")
    pieces = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), *map("".join, MERGES), *PUNCTUATION]
    files = []
    for name, own in (
        ("src", [*pieces, *(f"{first}{second}" for first in "xyz" for second in "xyz")]),
        ("tgt", pieces),
    ):
        files.append(directory / f"vocab-{name}.json")
        ordered = own if name == "src" else own[::-1]
        files[-1].write_text(json.dumps({piece: index for index, piece in enumerate([*SPECIAL, *ordered])}))
    merges = directory / "merges.txt"
    merges.write_text("".join(f"{first} {second} 1\n" for first, second in MERGES))
    FSMTTokenizer(["en", "de"], *map(str, files), str(merges)).save_pretrained(directory)
    source, target = (len(json.loads(file.read_text())) for file in files)
    torch.manual_seed(0)
    config = FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=source,
        tgt_vocab_size=target,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=200,
        init_std=0.15,
    )
    model = FSMTForConditionalGeneration(config)
    with torch.no_grad():
        model.model.decoder.output_projection.weight[config.pad_token_id] = 0.0  # transformers skips padding
    model.generation_config.update(num_beams=4, max_length=50, early_stopping=True)
    model.save_pretrained(directory)
    return directory


@pytest.mark.slow
def test_each_side_has_its_vocabulary_and_translations_are_those_of_transformers(
    examples: FreshEnvironment, checkpoint: Path, tmp_path: Path
) -> None:
    tokenizer = FSMTTokenizer.from_pretrained(checkpoint)
    model = FSMTForConditionalGeneration.from_pretrained(checkpoint)
    expected = {}
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text)
        ids = model.generate(**tokenizer(text, return_tensors="pt"))[0]
        expected[name] = tokenizer.decode(ids, skip_special_tokens=True)
    assert len({*expected.values()}) == len(DOCUMENTS)
    text, begun = "the king sings.", "schon"
    files = [tmp_path / name for name in DOCUMENTS]
    done = examples.run("-c", BOTH_SIDES, checkpoint, text, begun, *files)
    assert done.returncode == 0, done.stderr
    *lines, (encoder_prompt, decoder_ids, errors) = map(json.loads, done.stdout.splitlines())
    assert {Path(line["file"]).name: line["text"] for line in lines} == expected
    vocabulary = json.loads((checkpoint / "vocab-tgt.json").read_text())
    assert encoder_prompt == f"{text} </s>"
    assert decoder_ids == [2, *(vocabulary[piece] for piece in ("sch", "o", "n</w>"))]
    source = len(json.loads((checkpoint / "vocab-src.json").read_text()))
    assert source > len(vocabulary)
    assert errors == [
        f"token id {source} is outside of the vocabulary, 0 to {source - 1}",
        "target is 'de' in this model, not 'fr'; it may be left out",
    ]
