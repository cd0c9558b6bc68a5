"""examples/transept-marian, installed: ids and texts as transformers has them, then nothing runs the model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
from fresh_environment import FreshEnvironment, make_environment
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "transept-marian"
SPEECH = Path(__file__).parents[1] / "data" / "speech"
DOCUMENTS = {
    "short.txt": "the conference is over",
    "code.txt": ">>loud<< please press one, or stay on the line.",
    "long.txt": "when you hear the tone, leave a message. " * 20,
}
IDS = """
import json, sys
import transept
_, directory, plain, *texts = sys.argv
outputs = transept.Engine(directory).generate(texts)
ids = [[out.encoder_prompt_token_ids, out.prompt_token_ids + out.outputs[0].token_ids] for out in outputs]
errors = []
for target in (None, "lout"):
    try:
        transept.translate(plain, model=directory, target=target)
    except transept.TranseptError as error:
        errors.append(f"{type(error).__name__}: {error}")
loud = transept.translate(plain, model=directory, target="loud").text
print(json.dumps({"ids": ids, "errors": errors, "loud": loud}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    folder = tmp_path_factory.mktemp("marian")
    environment = make_environment(folder / "venv")
    environment.install(shutil.copytree(EXAMPLE, folder / "source"))  # building writes beside the sources
    return environment


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model from spoken English to the same in capitals, saved as Helsinki-NLP's are."""
    directory = tmp_path_factory.mktemp("checkpoint")
    texts = [entry["text"].lower() for entry in json.loads((SPEECH / "prompts-en" / "transcripts.json").read_text())]
    source = train_pieces(directory / "source.spm", texts)
    target = train_pieces(directory / "target.spm", [text.upper() for text in texts])
    names = dict.fromkeys(["</s>", "<unk>", *source, *target, ">>loud<<", "<pad>"])
    vocabulary = {name: index for index, name in enumerate(names)}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    MarianTokenizer(
        str(directory / "source.spm"),
        str(directory / "target.spm"),
        str(directory / "vocab.json"),
        source_lang="en",
        target_lang="loud",
    ).save_pretrained(directory)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(vocabulary),
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        eos_token_id=0,
        forced_eos_token_id=0,
        pad_token_id=vocabulary["<pad>"],
        decoder_start_token_id=vocabulary["<pad>"],
        init_std=0.3,
    )
    model = MarianMTModel(config)
    torch.nn.init.normal_(model.model.shared.weight, std=0.1)  # or every token predicts itself, as it is scaled by 8
    torch.nn.init.normal_(model.final_logits_bias)
    model.generation_config.update(num_beams=4, max_length=60, bad_words_ids=[[vocabulary["<pad>"]]])
    model.save_pretrained(directory)
    return directory


def train_pieces(file: Path, texts: list[str]) -> list[str]:
    """Train a sentencepiece model on texts. Returns its pieces."""
    with file.open("wb") as opened:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=opened, vocab_size=160, model_type="bpe", minloglevel=2
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]  # after <unk>, <s>, </s>


@pytest.mark.slow
def test_installed_then_removed(environment: FreshEnvironment, checkpoint: Path, tmp_path: Path) -> None:
    tokenizer, model = MarianTokenizer.from_pretrained(checkpoint), MarianMTModel.from_pretrained(checkpoint)
    encoded = {name: tokenizer(text, return_tensors="pt") for name, text in DOCUMENTS.items()}
    expected = {name: model.generate(**inputs)[0].tolist() for name, inputs in encoded.items()}
    texts = {name: tokenizer.decode(ids, skip_special_tokens=True) for name, ids in expected.items()}
    assert len({*texts.values()}) == len(DOCUMENTS)
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in DOCUMENTS]

    done = environment.transept("generate", *files, "--model", checkpoint, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {Path(line["file"]).name: line["text"] for line in lines} == texts

    plain = DOCUMENTS["code.txt"].removeprefix(">>loud<< ")
    done = environment.run("-c", IDS, checkpoint, plain, *DOCUMENTS.values())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "ids": [[encoded[name].input_ids[0].tolist(), expected[name]] for name in DOCUMENTS],
        "errors": [
            "ParameterError: target is missing: this model translates to several languages. Known: loud.",
            "ParameterError: this model has no target 'lout'. Did you mean 'loud'?",
        ],
        "loud": texts["code.txt"],
    }

    pip = [sys.executable, "-m", "pip", "--python", environment.python]
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "transept-marian"], check=True)
    done = environment.transept("generate", *files, "--model", checkpoint)
    assert done.returncode == 1
    assert f'UnsupportedModelError: no plugin runs "MarianMTModel" (from {checkpoint}).' in done.stderr
    assert "Loaded: bart from transept " in done.stderr
    assert "`transept plugins check`" in done.stderr
