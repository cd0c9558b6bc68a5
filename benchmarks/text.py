"""BART and T5 on a CPU: Transept, transformers and CTranslate2.

    python -m benchmarks.text [--runs 3] [--models bart-large-cnn t5-base] [--documents 32]
        [--weights float32 int8] [--alone] [--beams 4] [--lengths 64 1000] [--new-tokens 128]

Models of the shape of facebook/bart-large-cnn and t5-base with random weights, drawn so wide that the engines'
different roundings do not change the argmax, and kept in the temporary directory. Each engine goes from token ids to
token ids, greedily or with --beams: documents of 64 to 1000 tokens, 128 new tokens each, the end-of-sequence token
forbidden, so that all do equal work. t5-64 is a T5 of width 64 and two layers, where an engine's own work counts more
than the model's: `--models t5-64 --beams 4 --documents 64 --lengths 64 256 --new-tokens 64`, and for many short lines
`--documents 1000 --lengths 8 24 --new-tokens 16`. --alone gives them one document after the other. In int8 CTranslate2
rounds activations, too; transformers has no int8 on CPUs. The engines take turns, each in a process of its own; ratios
are medians over the turns.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import describe_bound, gemm_rate, read_bandwidth
from benchmarks.turns import Record, Runner, add_json_option, print_table, take_turns
from benchmarks.weights import CTRANSLATE2, TRANSEPT

LENGTHS = (64, 1000)  # tokens of the shortest and the longest document
NEW_TOKENS = 128
FIRST_TOKEN = 4  # those before are special
CACHE = Path(tempfile.gettempdir()) / "transept-benchmarks"
BYTES = {"float32": (4, 4), "int8": (1, 2)}  # of a weight, and of a number in the cache


@dataclass(frozen=True)
class Search:
    """How every engine decodes."""

    beams: int = 1
    new_tokens: int = NEW_TOKENS


GREEDY = Search()


@dataclass(frozen=True)
class Model:
    """One model's shape under the names of the papers, and how transformers builds it.

    inner: heads times their width. special: the special tokens, in the order of their ids. start, eos, pad: token ids.
    """

    class_name: str
    config: Callable[[], Any]
    vocab_size: int
    d_model: int
    inner: int
    d_ff: int
    layers: int  # of each side
    special: dict[str, str]
    start: int
    eos: int
    pad: int


BART_LARGE_CNN = {
    "vocab_size": 50264, "forced_bos_token_id": None, "forced_eos_token_id": None, "normalize_before": False
}  # fmt: skip


def bart_large_cnn() -> Any:
    from transformers import BartConfig

    return BartConfig(**BART_LARGE_CNN)


def t5_base() -> Any:
    from transformers import T5Config

    return T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)


def t5_64() -> Any:
    from transformers import T5Config

    return T5Config(d_model=64, d_kv=16, d_ff=256, num_layers=2, num_heads=4, vocab_size=4000, decoder_start_token_id=0)


MODELS = {
    "bart-large-cnn": Model(
        "BartForConditionalGeneration", bart_large_cnn, 50264, 1024, 1024, 4096, 12,
        {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}, start=2, eos=2, pad=1,
    ),
    "t5-base": Model(
        "T5ForConditionalGeneration", t5_base, 32128, 768, 768, 3072, 12,
        {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}, start=0, eos=1, pad=0,
    ),
    "t5-64": Model(
        "T5ForConditionalGeneration", t5_64, 4000, 64, 64, 256, 2,
        {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}, start=0, eos=1, pad=0,
    ),
}  # fmt: skip


def checkpoint(name: str) -> Path:
    """A Hugging Face directory of random weights, with a CTranslate2 directory of the same weights in it."""
    directory = CACHE / name
    if (directory / "ctranslate2" / "model.bin").exists():
        return directory
    import transformers
    from ctranslate2.converters import TransformersConverter

    model = MODELS[name]
    torch.manual_seed(0)
    network = getattr(transformers, model.class_name)(model.config())
    draw(network)
    network.save_pretrained(directory)
    converter = TransformersConverter(str(directory))
    converter.load_tokenizer = lambda *_, **__: tokenizer(model)  # type: ignore[method-assign]
    converter.convert(str(directory / "ctranslate2"), force=True)
    return directory


def standard_deviation(name: str, parameter: torch.Tensor) -> float:
    """The standard deviation to draw a matrix with, so that attention picks some tokens and ignores others."""
    if "relative_attention_bias" in name:
        return 1.0
    if name == "shared.weight":
        return 1.0  # T5 scales its outputs, not its embeddings
    fan_in = parameter.shape[1] ** -0.5
    if name.endswith(("out_proj.weight", "fc2.weight", ".o.weight", ".wo.weight")):
        return 0.2 * fan_in  # a sublayer's output: little, so that its input is not forgotten
    return 2.0 * fan_in / (8.0 if name.endswith(".q.weight") else 1.0)  # T5 divides its queries by √64, not its scores


@torch.no_grad()
def draw(network: torch.nn.Module) -> None:
    """Weights under which the next token depends on all before it."""
    for name, parameter in network.named_parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, standard_deviation(name, parameter))
        elif name.endswith("weight"):
            parameter.bernoulli_().mul_(2).sub_(1)  # a norm's: signs, else tied embeddings repeat the token before


def tokenizer(model: Model) -> Any:
    """What CTranslate2's converter asks for: token N of the ordinary ones is the text ``tN``."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    vocabulary = {text: token for token, text in enumerate(texts(model))}
    words = Tokenizer(WordLevel(vocabulary, unk_token=model.special["unk_token"]))
    return PreTrainedTokenizerFast(tokenizer_object=words, **model.special)


def texts(model: Model) -> list[str]:
    """CTranslate2's texts of all tokens."""
    special = list(model.special.values())
    return special + [f"t{token}" for token in range(len(special), model.vocab_size)]


def documents(name: str, count: int, lengths_between: tuple[int, int] = LENGTHS) -> list[list[int]]:
    """Random token ids with an end-of-sequence token, of lengths evenly distributed between two."""
    model, draws = MODELS[name], random.Random(0)
    low, high = lengths_between
    lengths = [low + (high - low) * index // max(count - 1, 1) for index in range(count)]
    draws.shuffle(lengths)
    return [
        [draws.randrange(FIRST_TOKEN, model.vocab_size) for _ in range(length - 1)] + [model.eos] for length in lengths
    ]


def transept_runner(name: str, directory: Path, weights: str, search: Search = GREEDY) -> Runner:
    from transept import Engine, SamplingParams

    engine = Engine(directory, **TRANSEPT[weights])
    model = MODELS[name]
    decoding = {"num_beams": search.beams} if search.beams > 1 else {"temperature": 0.0}
    params = SamplingParams(max_tokens=search.new_tokens, suppress_tokens=[model.eos], **decoding)
    start = {"prompt_tokens": [model.start]}

    def run(inputs: list[list[int]]) -> list[list[int]]:
        engine.block_manager.reset()  # else the encoder's output would be there from the turn before
        prompts = [{"encoder_prompt": {"prompt_tokens": tokens}, "decoder_prompt": start} for tokens in inputs]
        return [output.outputs[0].token_ids for output in engine.generate(prompts, params, progress=False)]

    return run


def transformers_runner(name: str, directory: Path, weights: str, search: Search = GREEDY) -> Runner:
    import transformers

    model = MODELS[name]
    network = getattr(transformers, model.class_name).from_pretrained(directory).eval()

    @torch.inference_mode()
    def run(inputs: list[list[int]]) -> list[list[int]]:
        width = max(map(len, inputs))
        rows = torch.tensor([tokens + [model.pad] * (width - len(tokens)) for tokens in inputs])
        mask = torch.tensor([[1] * len(tokens) + [0] * (width - len(tokens)) for tokens in inputs])
        generated = network.generate(
            rows,
            attention_mask=mask,
            max_new_tokens=search.new_tokens,
            suppress_tokens=[model.eos],
            do_sample=False,
            num_beams=search.beams,
        )
        return generated[:, 1:].tolist()

    return run


def ctranslate2_runner(name: str, directory: Path, weights: str, search: Search = GREEDY) -> Runner:
    import ctranslate2

    model = MODELS[name]
    vocabulary = texts(model)
    translator = ctranslate2.Translator(
        str(directory / "ctranslate2"), compute_type=CTRANSLATE2[weights], intra_threads=torch.get_num_threads()
    )

    def run(inputs: list[list[int]]) -> list[list[int]]:
        results = translator.translate_batch(
            [[vocabulary[token] for token in tokens] for tokens in inputs],
            beam_size=search.beams,
            max_batch_size=CTRANSLATE2_BATCH,
            max_decoding_length=search.new_tokens,
            min_decoding_length=search.new_tokens,
        )
        ids = {text: token for token, text in enumerate(vocabulary)}
        return [[ids[text] for text in result.hypotheses[0]] for result in results]

    return run


CTRANSLATE2_BATCH = 16  # documents, of similar lengths since it sorts them
ENGINES: dict[str, dict[str, Callable[[str, Path, str, Search], Runner]]] = {
    "float32": {
        "transept": transept_runner,
        "transformers": transformers_runner,
        "ctranslate2": ctranslate2_runner,
    },
    "int8": {"transept": transept_runner, "ctranslate2": ctranslate2_runner},
}


def bounds(
    model: Model, lengths: list[int], weights: str, alone: bool, rate: float, bandwidth: float
) -> tuple[float, float]:
    """Seconds that the arithmetic and the memory traffic need at least.

    Arithmetic: encoder, and cross-attention's keys and values, at the rate of a large matrix product in float32; in
    int8 linear layers at twice that rate. Memory: each sequence's caches once a token. The decoder's weights are read
    once a step, all documents being decoded together unless `alone`: the time of that, or of the arithmetic on them,
    whichever is longer.
    """
    d, inner, layers, tokens = model.d_model, model.inner, model.layers, sum(lengths)
    ffn = 2 * d * model.d_ff
    encoder = layers * (4 * d * inner + ffn)
    attention = layers * 4 * inner * sum(length**2 for length in lengths)
    cross = layers * 2 * d * inner
    linear_rate = 2 * rate if weights == "int8" else rate
    weight_bytes, key_bytes = BYTES[weights]
    arithmetic = 2 * tokens * (encoder + cross) / linear_rate + attention / rate
    own = len(lengths) * NEW_TOKENS / 2  # tokens in the self-attention caches, on average
    memory = NEW_TOKENS * layers * 2 * inner * key_bytes * (tokens + own) / bandwidth
    decoder = layers * (6 * d * inner + ffn) + model.vocab_size * d
    products = 2 * len(lengths) * NEW_TOKENS * decoder / linear_rate
    reads = NEW_TOKENS * (len(lengths) if alone else 1) * decoder * weight_bytes / bandwidth
    return (arithmetic + products, memory) if products > reads else (arithmetic, memory + reads)


def compare(
    name: str, inputs: list[list[int]], weights: str, alone: bool, runs: int, record: Record, search: Search = GREEDY
) -> None:
    """Print and record one table: a row an engine."""
    directory, count = checkpoint(name), len(inputs)
    engines = {engine: partial(load, name, directory, weights, search) for engine, load in ENGINES[weights].items()}
    turns = take_turns(engines, inputs, runs, alone)
    print(
        f"\n{name}, {weights}: {count} documents{', one by one' * alone}, {sum(map(len, inputs))} tokens, "
        f"{search.new_tokens} new ones each, {search.beams} beams, {runs} runs in turn"
    )
    if search == GREEDY:
        rate, bandwidth = gemm_rate(), read_bandwidth()
        lengths = [len(tokens) for tokens in inputs]
        print(describe_bound(*bounds(MODELS[name], lengths, weights, alone, rate, bandwidth), rate, bandwidth))
    rows = print_table(turns, count * search.new_tokens, "new tokens")
    task = f"{count} documents{', one by one' * alone}{f', {search.beams} beams' * (search.beams > 1)}"
    record.add(f"{name}, {weights}, {task}", count * search.new_tokens, "new tokens", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["bart-large-cnn", "t5-base"])
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--weights", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--lengths", nargs=2, type=int, default=LENGTHS)
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    add_json_option(parser)
    arguments = parser.parse_args()
    versions = {name: __import__(name).__version__ for name in ("torch", "transformers", "ctranslate2")}
    record = Record(arguments.json, f"python -m benchmarks.text, {arguments.runs} runs in turn", versions)
    print(f"{torch.get_num_threads()} threads, {json.dumps(versions)}")
    for name, weights in product(arguments.models, arguments.weights):
        inputs = documents(name, arguments.documents, tuple(arguments.lengths))
        search = Search(arguments.beams, arguments.new_tokens)
        compare(name, inputs, weights, arguments.alone, arguments.runs, record, search)


if __name__ == "__main__":
    main()
