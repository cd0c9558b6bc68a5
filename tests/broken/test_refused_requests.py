"""Prompts, documents and parameters of which no request can be made: engines and tasks refuse them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_whisper import save_random_whisper
from refusal import Table, refused, table

from transept import (
    Engine,
    Limits,
    PromptProbe,
    SamplingParams,
    TextGenerator,
    Transcriber,
    TranscriptionOptions,
    VadOptions,
    generate,
    summarize,
    transcribe,
)

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 24}
RATE = 16_000
SOUND = (np.zeros(800, np.float32), RATE)
LONG = 10**400  # beyond any float


class Unshown:
    """A value that cannot be shown, nor iterated over."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __iter__(self) -> Iterator[int]:
        raise ValueError("no iterator")


class Given:
    """What rows call: one engine, or task, of each kind, made once."""

    def __init__(self, whisper: Path, tiny_en: Path) -> None:
        self.text = TextGenerator(CMUDICT / "bart-g2p", **SMALL, limits={"max_text_characters": 10_000})
        self.t5 = TextGenerator(CMUDICT / "t5-g2p", **SMALL)
        self.bart = self.text.engine
        self.whisper = Engine(whisper, **SMALL)
        self.transcriber = Transcriber(tiny_en, device="cpu", kv_cache_bytes=1 << 26)
        for generator in (self.text, self.t5):
            generator.generate("transept", max_tokens=2)
        self.whisper.generate({"multi_modal_data": {"audio": SOUND}}, SamplingParams(max_tokens=1))
        self.transcriber.transcribe((np.zeros(RATE, np.float32), RATE), temperature=0.0, max_new_tokens=1)

    def ask(self, prompt: Any) -> Any:
        return self.bart.generate(prompt, SamplingParams(max_tokens=1))

    def hear(self, prompt: Any) -> Any:
        return self.whisper.generate(prompt, SamplingParams(max_tokens=1))

    def both(self, encoder: Any, decoder: Any) -> Any:
        return self.ask({"encoder_prompt": encoder, "decoder_prompt": decoder})

    def sample(self, **params: Any) -> Any:
        return self.bart.generate("ox", SamplingParams(**params))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, tiny_en_dir: Path) -> Iterator[Given]:
    made = Given(save_random_whisper(tmp_path_factory.mktemp("whisper")), tiny_en_dir)
    yield made
    for engine in (made.bart, made.t5.engine, made.whisper, made.transcriber.engine):
        assert not engine.has_unfinished_requests
        engine.block_manager.check_integrity()


# ----------------------------------------------------------------------------------------------------------- prompts

PROMPTS: Table = {
    "None": (lambda it: it.ask(None), "NoneType"),
    "a number": (lambda it: it.ask(5), "int"),
    "bytes": (lambda it: it.ask(b"ox"), "int"),
    "a list of token ids": (lambda it: it.ask([5, 6]), "prompt 0"),
    "a list with None": (lambda it: it.ask(["ox", None]), "prompt 1"),
    "an empty dict": (lambda it: it.ask({}), "empty"),
    "a key that is misspelt": (lambda it: it.ask({"promt": "ox"}), "prompt"),
    "a key that is no string": (lambda it: it.ask({5: "ox"}), "5"),
    "text under prompt that is a list": (lambda it: it.ask({"prompt": ["ox"]}), "list"),
    "text and tokens at once": (lambda it: it.ask({"prompt": "ox", "prompt_tokens": [5]}), "both"),
    "tokens by two names": (lambda it: it.ask({"prompt_tokens": [5], "prompt_token_ids": [5]}), "both"),
    "tokens that are text": (lambda it: it.ask({"prompt_tokens": "ox"}), "'ox'"),
    "tokens that are a number": (lambda it: it.ask({"prompt_tokens": 5}), "5"),
    "tokens that are floats": (lambda it: it.ask({"prompt_tokens": [5.0]}), "5.0"),
    "tokens with None among them": (lambda it: it.ask({"prompt_tokens": [5, None]}), "None"),
    "tokens in a batch": (lambda it: it.ask({"prompt_tokens": [[5, 6]]}), "[[5, 6]]"),
    "no tokens": (lambda it: it.ask({"prompt_tokens": []}), "empty"),
    "a token below 0": (lambda it: it.ask({"prompt_tokens": [-1]}), "-1"),
    "a token beyond the vocabulary": (lambda it: it.ask({"prompt_tokens": [10**6]}), "1000000"),
    "a token beyond 64 bits": (lambda it: it.ask({"prompt_tokens": [1 << 70]}), "vocabulary"),
    "more tokens than positions": (lambda it: it.ask({"prompt_tokens": [5] * 5000}), "5000 tokens"),
    "more text than positions": (lambda it: it.ask("ox " * 3000), "tokens"),
    "more text than the limit": (lambda it: it.ask("ox " * 10_000), "max_text_characters"),
    "half a surrogate pair": (lambda it: it.ask("ox \ud800"), "surrogate"),
    "sound for a text model": (lambda it: it.ask({"multi_modal_data": {"audio": SOUND}}), "text only"),
    "a prompt that stands in both forms": (lambda it: it.ask({"encoder_prompt": "ox", "prompt": "ox"}), "prompt"),
    "a decoder prompt alone": (lambda it: it.ask({"decoder_prompt": "ox"}), "encoder_prompt"),
    "an encoder prompt of None": (lambda it: it.both(None, "ox"), "encoder_prompt"),
    "an encoder prompt that is a number": (lambda it: it.both(5, None), "int"),
    "an encoder prompt in an encoder prompt": (lambda it: it.both({"encoder_prompt": "ox"}, None), "encoder_prompt"),
    "a decoder prompt that is a list": (lambda it: it.both("ox", [5]), "list"),
    "a decoder prompt beyond the vocabulary": (lambda it: it.both("ox", {"prompt_tokens": [10**6]}), "1000000"),
    "a decoder prompt as long as the positions": (lambda it: it.both("ox", {"prompt_tokens": [5] * 5000}), "positions"),
    "sound for the decoder": (lambda it: it.both("ox", {"multi_modal_data": {"audio": SOUND}}), "decoder_prompt"),
    "text for a model that hears": (lambda it: it.hear("ox"), "takes no text"),
    "tokens for a model that hears": (lambda it: it.hear({"prompt_tokens": [5]}), "takes no text"),
    "a modality that is misspelt": (lambda it: it.hear({"multi_modal_data": {"audi": SOUND}}), "audio"),
    "a modality that is a number": (lambda it: it.hear({"multi_modal_data": {5: SOUND}}), "not [5]"),
    "a modality that no model has": (lambda it: it.hear({"multi_modal_data": {"smell": 1}}), "smell"),
    "two modalities": (lambda it: it.hear({"multi_modal_data": {"audio": SOUND, "audio_features": 1}}), "exactly one"),
    "modalities of two types": (lambda it: it.hear({"multi_modal_data": {"audio": SOUND, 5: 1}}), "not ['audio', 5]"),
    "modalities that are a list": (lambda it: it.hear({"multi_modal_data": [SOUND]}), "list"),
    "no modality": (lambda it: it.hear({"multi_modal_data": {}}), "empty"),
    "sound without its modality": (lambda it: it.hear({"multi_modal_data": SOUND}), "tuple"),
    "a name for data that is a number": (
        lambda it: it.hear({"multi_modal_data": {"audio": SOUND}, "multi_modal_uuids": {"audio": 5}}),
        "multi_modal_uuids",
    ),
    "a name for data that is not there": (
        lambda it: it.hear({"multi_modal_data": {"audio": SOUND}, "multi_modal_uuids": {"video": "a"}}),
        "video",
    ),
    "words for a decoder without a tokenizer": (
        lambda it: it.hear({"prompt": "ox", "multi_modal_data": {"audio": SOUND}}),
        "no tokenizer",
    ),
    "sound and text for an encoder": (
        lambda it: it.hear({"encoder_prompt": {"prompt": "ox", "multi_modal_data": {"audio": SOUND}}}),
        "decoder_prompt",
    ),
    "a request id that is taken": (
        lambda it: [it.bart.add_request("twin", "ox"), taken(it.bart)],
        "twin",
    ),
    "a request id that is a list": (lambda it: it.bart.add_request(["a"], "ox"), "['a']"),
}


def taken(engine: Engine) -> None:
    """Use an id that waits already, and let go of it."""
    try:
        engine.add_request("twin", "ox")
    finally:
        engine.abort_request("twin")


DOCUMENTS: Table = {
    "a document that is None": (lambda it: it.text.summarize(None), "NoneType"),
    "a document that is a number": (lambda it: it.text.summarize(5), "int"),
    "a document that is bytes": (lambda it: it.text.summarize(b"ox"), "string"),
    "a document that is empty": (lambda it: it.text.summarize(""), "empty"),
    "a document of blanks": (lambda it: it.text.generate(" \n\t"), "empty"),
    "a document that is too long": (lambda it: it.text.generate("transept " * 500), "truncate"),
    "a document beyond the limit": (lambda it: it.text.generate("ox " * 9999, chunk=True), "max_text_characters"),
    "a document with half a surrogate pair": (lambda it: it.text.generate("ox \ud800"), "surrogate"),
    "a document that streams and is a number": (lambda it: list(it.text.stream("generate", 5)), "int"),
    "a path to a document": (lambda it: it.text.generate(Path("letter.txt")), "Path"),
}


@table(PROMPTS)
def test_prompt(call, names, given):
    refused(lambda: call(given), names)


@table(DOCUMENTS)
def test_document(call, names, given):
    refused(lambda: call(given), names)


# ------------------------------------------------------------------------------------------------ sampling parameters


def raises(logits: Any, rows: Any) -> None:
    raise ValueError("this processor is broken")


def wants_more(logits: Any, rows: Any, more: Any) -> None:
    """Takes an argument that nobody gives."""


def too_wide(logits: Any, rows: Any) -> None:
    logits.add_(np.zeros(3))


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, logits: Any, rows: Any) -> None:
        """Do nothing."""


def probe(**fields: Any) -> Any:
    return lambda it: it.sample(max_tokens=1, prompt_probe=PromptProbe(**fields))


PARAMETERS: Table = {
    "an unknown parameter": (lambda it: it.sample(temprature=1.0), "temperature"),
    "a parameter of transformers": (lambda it: it.sample(max_length=5), "max_new_tokens"),
    "n of 0": (lambda it: it.sample(n=0), "n must be"),
    "n in text": (lambda it: it.sample(n="2"), "'2'"),
    "n beyond any memory": (lambda it: it.sample(n=10**9, temperature=1.0), "1000000000"),
    "max_tokens of 0": (lambda it: it.sample(max_tokens=0), "max_tokens"),
    "max_tokens of half a token": (lambda it: it.sample(max_tokens=1.5), "1.5"),
    "max_tokens of True": (lambda it: it.sample(max_tokens=True), "True"),
    "max_tokens of NaN": (lambda it: it.sample(max_tokens=math.nan), "nan"),
    "min_tokens below 0": (lambda it: it.sample(min_tokens=-1), "-1"),
    "min_tokens over max_tokens": (lambda it: it.sample(min_tokens=9, max_tokens=8), "min_tokens=9"),
    "a repetition of nothing": (lambda it: it.sample(stop_at_repetition=0), "stop_at_repetition"),
    "a repetition in a beam search": (lambda it: it.sample(stop_at_repetition=4, num_beams=2), "num_beams"),
    "a repetition with keywords": (
        lambda it: it.sample(stop_at_repetition=4, num_beams=1, keywords=[[5, 6]]),
        "keywords; leave",
    ),
    "a temperature below 0": (lambda it: it.sample(temperature=-0.1), "-0.1"),
    "a temperature of NaN": (lambda it: it.sample(temperature=math.nan), "temperature"),
    "a temperature of infinity": (lambda it: it.sample(temperature=math.inf), "temperature"),
    "a temperature beyond floats": (lambda it: it.sample(temperature=LONG), "temperature"),
    "a temperature in text": (lambda it: it.sample(temperature="hot"), "hot"),
    "a temperature that is a list": (lambda it: it.sample(temperature=[1.0]), "[1.0]"),
    "top_k below 0": (lambda it: it.sample(top_k=-5, temperature=1.0), "-5"),
    "top_k without sampling": (lambda it: it.sample(top_k=5), "set temperature above 0"),
    "top_p of 0": (lambda it: it.sample(top_p=0.0, temperature=1.0), "top_p"),
    "top_p over 1": (lambda it: it.sample(top_p=1.5, temperature=1.0), "1.5"),
    "min_p in text": (lambda it: it.sample(min_p="0.5", temperature=1.0), "0.5"),
    "several samples, greedily": (lambda it: it.sample(n=2, temperature=0.0), "n=2"),
    "beams of 0": (lambda it: it.sample(num_beams=0), "num_beams"),
    "beams beyond any integer": (lambda it: it.sample(num_beams=LONG), "num_beams must be at most"),
    "samples beyond any integer": (lambda it: it.sample(n=LONG, temperature=1.0), "n must be at most"),
    "a patience beyond any number of beams": (lambda it: it.sample(patience=1e308), "patience"),
    "a number that cannot be shown": (lambda it: it.sample(top_p=Unshown()), "a value of type Unshown"),
    "token ids that cannot be iterated over": (lambda it: it.sample(suppress_tokens=Unshown()), "suppress_tokens"),
    "allowed tokens without end": (
        lambda it: it.sample(allowed_token_ids=range(10**8)),
        "allowed_token_ids holds more",
    ),
    "suppressed tokens without end": (lambda it: it.sample(suppress_tokens=range(10**8)), "suppress_tokens holds more"),
    "first tokens without end": (
        lambda it: it.sample(begin_suppress_tokens=iter(int, 1)),
        "begin_suppress_tokens holds more",
    ),
    "beams beyond any memory": (lambda it: it.sample(num_beams=10**9), "1000000000"),
    "groups of drawn beams": (
        lambda it: it.sample(num_beams=2, num_beam_groups=2, diversity_penalty=1.0, temperature=0.5),
        "num_beam_groups=2",
    ),
    "beams with samples": (lambda it: it.sample(num_beams=2, n=2), "num_return_sequences"),
    "groups that do not divide the beams": (lambda it: it.sample(num_beams=4, num_beam_groups=3), "must divide"),
    "a diversity penalty below 0": (lambda it: it.sample(num_beams=2, diversity_penalty=-1.0), "-1.0"),
    "more hypotheses than beams": (lambda it: it.sample(num_beams=2, num_return_sequences=3), "num_return_sequences=3"),
    "hypotheses without beams": (lambda it: it.sample(num_beams=1, num_return_sequences=2), "beam search"),
    "a length penalty of infinity": (lambda it: it.sample(num_beams=2, length_penalty=math.inf), "length_penalty"),
    "early stopping of soon": (lambda it: it.sample(num_beams=2, early_stopping="soon"), "soon"),
    "early stopping that is an array": (lambda it: it.sample(early_stopping=np.zeros(2)), "early_stopping"),
    "a patience of 0": (lambda it: it.sample(num_beams=2, patience=0), "patience"),
    "a repetition penalty of 0": (lambda it: it.sample(repetition_penalty=0.0), "repetition_penalty"),
    "a presence penalty of None": (lambda it: it.sample(presence_penalty=None), "presence_penalty"),
    "a frequency penalty of 3": (lambda it: it.sample(frequency_penalty=3), "frequency_penalty"),
    "n-grams of half a token": (lambda it: it.sample(no_repeat_ngram_size=0.5), "no_repeat_ngram_size"),
    "a bias that is a list": (lambda it: it.sample(logit_bias=[1, 2]), "logit_bias"),
    "a bias on a word": (lambda it: it.sample(logit_bias={"ox": 1.0}), "ox"),
    "a bias of NaN": (lambda it: it.sample(logit_bias={5: math.nan}), "logit_bias"),
    "a bias beyond floats": (lambda it: it.sample(logit_bias={5: LONG}), "logit_bias"),
    "a bias on half a token": (lambda it: it.sample(logit_bias={5.5: 1.0}), "5.5"),
    "a bias on a token of infinity": (lambda it: it.sample(logit_bias={math.inf: 1.0}), "logit_bias"),
    "a bias beyond the vocabulary": (lambda it: it.sample(logit_bias={10**6: 1.0}), "1000000"),
    "no token allowed": (lambda it: it.sample(allowed_token_ids=[]), "allowed_token_ids"),
    "a token allowed and suppressed": (lambda it: it.sample(allowed_token_ids=[5], suppress_tokens=[5]), "allowed"),
    "allowed tokens in text": (lambda it: it.sample(allowed_token_ids="5"), "allowed_token_ids"),
    "every token suppressed": (lambda it: it.sample(suppress_tokens=range(it.bart.shape.vocab_size)), "suppress"),
    "suppressed tokens that are a number": (lambda it: it.sample(suppress_tokens=5), "suppress_tokens"),
    "suppressed tokens below 0": (lambda it: it.sample(suppress_tokens=[-1]), "-1"),
    "bad words of tokens in one list": (lambda it: it.sample(bad_words_ids=[1, 2]), "bad_words_ids"),
    "bad words with an empty one": (lambda it: it.sample(bad_words_ids=[[]]), "bad_words_ids"),
    "bad words that are numbers": (lambda it: it.sample(bad_words=[5]), "bad_words"),
    "bad words with half a surrogate pair": (lambda it: it.sample(bad_words=["\ud800"]), "bad_words"),
    "a forced token in text": (lambda it: it.sample(forced_bos_token_id="5"), "forced_bos_token_id"),
    "a forced token beyond the vocabulary": (lambda it: it.sample(forced_eos_token_id=10**6), "1000000"),
    "a stop string that is empty": (lambda it: it.sample(stop=["a", ""]), "stop"),
    "a stop string that is a number": (lambda it: it.sample(stop=5), "stop"),
    "a stop string without text": (lambda it: it.sample(stop="a", detokenize=False), "detokenize"),
    "stop tokens that are None": (lambda it: it.sample(stop_token_ids=None), "stop_token_ids"),
    "ends beyond the vocabulary": (lambda it: it.sample(eos_token_ids=[10**6]), "1000000"),
    "a seed of -1": (lambda it: it.sample(seed=-1), "seed"),
    "a seed over 64 bits": (lambda it: it.sample(seed=1 << 64), "seed"),
    "a seed in text": (lambda it: it.sample(seed="lucky"), "lucky"),
    "log probabilities of more tokens than there are": (lambda it: it.sample(logprobs=10**6), "1000000"),
    "ignore_eos in text": (lambda it: it.sample(ignore_eos="no"), "ignore_eos"),
    "detokenize in text": (lambda it: it.sample(detokenize="no"), "detokenize"),
    "skip_special_tokens of None": (lambda it: it.sample(skip_special_tokens=None), "skip_special_tokens"),
    "a processor that is text": (lambda it: it.sample(logits_processors="top"), "logits_processors"),
    "a processor that has no hash": (lambda it: it.sample(logits_processors=[Unhashable()]), "hashable"),
    "a processor that raises": (lambda it: it.sample(logits_processors=[raises]), "this processor is broken"),
    "a processor that wants more arguments": (lambda it: it.sample(logits_processors=[wants_more]), "more"),
    "a processor of another width": (lambda it: it.sample(logits_processors=[too_wide]), "failed"),
    "a probe that is a dict": (lambda it: it.sample(prompt_probe={"logprobs": [(0, 5)]}), "prompt_probe"),
    "a probe beyond the prompt": (probe(logprobs=((99, 5),)), "position 99"),
    "a probe before the prompt": (probe(logprobs=((-1, 5),)), "position -1"),
    "a probe of no token": (probe(logprobs=((0, 10**6),)), "1000000"),
    "a probe of no pairs": (probe(logprobs=(5,)), "logprobs must be pairs"),
    "a probe of a number": (probe(logprobs=5), "logprobs must be pairs"),
    "a probe of half a position": (probe(logprobs=((0.5, 5),)), "0.5"),
    "a probe of tokens in text": (probe(logprobs=((0, "5"),)), "'5'"),
    "a probe of no head": (probe(cross_attention_heads=((0, 99),)), "head 99"),
    "a probe of no layer": (probe(cross_attention_heads=((99, 0),)), "layer 99"),
    "a probe of heads in text": (probe(cross_attention_heads="all"), "cross_attention_heads"),
    "a probe of half a head": (probe(cross_attention_heads=((0, 0.5),)), "0.5"),
    "a probe of a vocabulary of 0": (probe(vocab_limit=0), "vocab_limit"),
    "a probe of a vocabulary in text": (probe(vocab_limit="all"), "vocab_limit"),
    "parameters that are a dict": (lambda it: it.bart.generate("ox", {"max_tokens": 1}), "SamplingParams(**"),
    "parameters that are a number": (lambda it: it.bart.generate("ox", 5), "int"),
    "parameters with None and a number": (lambda it: it.bart.generate(["ox", "ox"], [None, 5]), "int"),
    "parameters of another number": (lambda it: it.bart.generate(["ox"], [SamplingParams()] * 2), "2 sampling_params"),
    "parameters of text": (lambda it: it.bart.generate("ox", "greedy"), "sampling_params"),
    "a generation config that is a dict": (
        lambda it: it.bart.generate("ox", generation_config={"num_beams": 2}),
        "generation_config",
    ),
    "a generation config that is text": (lambda it: it.bart.generate("ox", generation_config="fast"), "str"),
}


@table(PARAMETERS)
def test_parameter(call, names, given):
    refused(lambda: call(given), names)


# ------------------------------------------------------------------------------------------- options of tasks, engines


def engine(**options: Any) -> Any:
    return lambda it: Engine(CMUDICT / "bart-g2p", **{**SMALL, **options})


def hears(**options: Any) -> Any:
    return lambda it: it.transcriber.transcribe(SOUND, **options)


def writes(**options: Any) -> Any:
    return lambda it: it.t5.translate("ox", **options)


OPTIONS: Table = {
    "an engine's option that is misspelt": (engine(block_sise=16), "block_size"),
    "an engine's option of another library": (engine(attn_implementation="sdpa"), "attention_backend"),
    "a device that nobody has": (engine(device="tpu"), "tpu"),
    "a GPU where there is none": (engine(device="cuda:999"), "cuda:999"),
    "a device that is a number": (engine(device=0), "device"),
    "a dtype that nobody has": (engine(dtype="float8"), "float8"),
    "a dtype that is None": (engine(dtype=None), "None"),
    "a quantization that nobody has": (engine(quantization="int3"), "int3"),
    "a quantization for GPUs": (engine(quantization="fp8"), "fp8"),
    "a cache in a dtype that nobody has": (engine(kv_cache_dtype="int2"), "int2"),
    "an attention backend that nobody has": (engine(attention_backend="flash9"), "flash9"),
    "a plugin that nobody has": (engine(plugin="barth"), "bart"),
    "a plugin for another model": (engine(plugin="whisper"), "whisper"),
    "a plugin that is a list": (engine(plugin=["bart"]), "plugin"),
    "a block of 0 tokens": (engine(block_size=0), "block_size"),
    "a block of half a token": (engine(block_size=0.5), "0.5"),
    "a cache of 0 bytes": (engine(kv_cache_bytes=0), "kv_cache_bytes"),
    "a cache of one byte": (lambda it: engine(kv_cache_bytes=1)(it).generate("ox"), "cache"),
    "a cache beyond the machine": (engine(kv_cache_bytes=1 << 49), "kv_cache_bytes"),
    "a cache in text": (engine(kv_cache_bytes="1GB"), "1GB"),
    "swap beyond the machine": (engine(swap_bytes=1 << 49), "swap_bytes"),
    "threads below 0": (engine(threads=-1), "threads"),
    "a million threads": (engine(threads=10**6), "threads"),
    "a share of memory over 1": (engine(gpu_memory_utilization=1.5), "1.5"),
    "a share of memory of NaN": (engine(gpu_memory_utilization=math.nan), "nan"),
    "eager in text": (engine(enforce_eager="yes"), "enforce_eager"),
    "sequences of 0": (engine(max_num_seqs=0), "max_num_seqs"),
    "fewer decoder tokens than sequences": (engine(max_decoder_tokens=2, max_num_seqs=4), "max_decoder_tokens=2"),
    "encoder tokens beyond 64 bits": (engine(max_encoder_tokens=1 << 70), "max_encoder_tokens"),
    "limits that are a number": (engine(limits=5), "limits"),
    "limits that are None": (engine(limits=None), "limits"),
    "a limit that is misspelt": (engine(limits={"max_audio_second": 5}), "max_audio_seconds"),
    "a limit whose name is a number": (engine(limits={5: 5}), "5"),
    "a limit of 0": (lambda it: Limits(max_audio_seconds=0), "max_audio_seconds"),
    "a limit of NaN": (lambda it: Limits(max_audio_seconds=math.nan), "nan"),
    "a limit beyond floats": (lambda it: Limits(max_audio_bytes=LONG), "max_audio_bytes"),
    "a limit of True": (lambda it: Limits(max_queue_length=True), "max_queue_length"),
    "a limit of half a character": (lambda it: Limits(max_text_characters=0.5), "0.5"),
    "a transcription's option that is misspelt": (hears(beam_sise=5), "beam_size"),
    "a transcription's option of another library": (hears(speaker_labels=True), "diarize"),
    "a language that nobody speaks": (hears(language="klingon"), "klingon"),
    "a language that is a number": (hears(language=5), "language"),
    "a language of a model of one": (hears(language="de"), "de"),
    "a task that nobody does": (hears(task="sing"), "sing"),
    "a translation by a model of one language": (hears(task="translate"), "translate"),
    "temperatures that are empty": (hears(temperature=[]), "temperature"),
    "temperatures in words": (hears(temperature="hot"), "hot"),
    "a temperature of True as fallback": (hears(temperature=True), "True"),
    "a temperature of a number beyond floats": (hears(temperature=LONG), "temperature"),
    "a thousand temperatures": (hears(temperature=[0.1] * 1000), "1000"),
    "beams below 0 for a recording": (hears(beam_size=-1), "beam_size"),
    "draws beyond floats": (hears(best_of=LONG), "best_of"),
    "an increment that only the command has": (hears(temperature_increment_on_fallback=0.2), "'temperature'"),
    "an option of the engine": (hears(threads=4), "Transcriber(model, threads="),
    "a length penalty of a NaN": (hears(length_penalty=math.nan), "length_penalty"),
    "a threshold in text": (hears(no_speech_threshold="0.6"), "no_speech_threshold"),
    "a flag that is a number": (hears(word_timestamps=1), "word_timestamps"),
    "a prefix that is a number": (hears(prefix=5), "prefix"),
    "a first prompt that is a number": (hears(initial_prompt=5), "initial_prompt"),
    "a first prompt beyond the vocabulary": (hears(initial_prompt=[10**6]), "1000000"),
    "a first prompt with half a surrogate pair": (hears(initial_prompt="\ud800"), "surrogate"),
    "suppressed tokens beyond the vocabulary": (hears(suppress_tokens=[10**6]), "1000000"),
    "suppressed tokens of words": (hears(suppress_tokens="um,er"), "um,er"),
    "punctuation of None": (hears(append_punctuations=None), "append_punctuations"),
    "clips that fall": (hears(clip_timestamps=[5, 1]), "clip_timestamps"),
    "clips of NaN": (hears(clip_timestamps=[math.nan]), "clip_timestamps"),
    "clips of a number": (hears(clip_timestamps=5), "clip_timestamps"),
    "clips beyond floats": (hears(clip_timestamps=[LONG]), "clip_timestamps"),
    "two languages at once": (lambda it: TranscriptionOptions(multilingual=True, language="de"), "multilingual"),
    "voice options without voice activity": (hears(mode="sequential", vad_options={"threshold": 0.4}), "vad=True"),
    "voice options that are a list": (hears(vad_options=[0.5]), "vad_options"),
    "a voice option that is misspelt": (hears(vad=True, vad_options={"treshold": 0.5}), "threshold"),
    "a voice option whose name is a number": (hears(vad=True, vad_options={5: 0.5}), "5"),
    "a voice threshold over 1": (lambda it: VadOptions(threshold=1.5), "1.5"),
    "a voice threshold in text": (lambda it: VadOptions(threshold="0.5"), "threshold"),
    "a pause of NaN": (lambda it: VadOptions(min_silence_duration_ms=math.nan), "nan"),
    "speech of no length": (lambda it: VadOptions(max_speech_duration_s=0), "max_speech_duration_s"),
    "an option of neither for one call": (lambda it: transcribe(SOUND, "./none", beem_size=5), "beam_size"),
    "a text task that is misspelt": (lambda it: list(it.text.stream("summarise", "ox")), "summarize"),
    "a text task that is None": (lambda it: list(it.text.stream(None, "ox")), "None"),
    "a text option that is misspelt": (lambda it: it.text.generate("ox", trunkate=True), "truncate"),
    "a text option of one call": (lambda it: summarize("ox", "./none", num_beems=2), "num_beams"),
    "a model of one call that is missing": (lambda it: generate("ox", "./none"), "./none"),
    "truncate and chunk": (lambda it: it.text.generate("ox", truncate=True, chunk=True), "truncate and chunk"),
    "truncate in text": (lambda it: it.text.generate("ox", truncate="no"), "truncate"),
    "a source limit of 0": (lambda it: it.text.generate("ox", max_source_tokens=0), "max_source_tokens"),
    "a source limit in text": (lambda it: it.text.generate("ox", max_source_tokens="9"), "max_source_tokens"),
    "a source limit that leaves no room": (lambda it: it.text.generate("ox", max_source_tokens=1), "no room"),
    "a source limit of half a token": (lambda it: it.text.generate("ox", max_source_tokens=9.5), "max_source_tokens"),
    "languages that the model lacks": (writes(source="en", target="tlh"), "tlh"),
    "a language in a number": (writes(source=5, target="de"), "5"),
    "a language in a list": (writes(source="en", target=["de"]), "de"),
    "languages of a model without": (lambda it: it.text.translate("ox", source="en"), "do not translate"),
}


@table(OPTIONS)
def test_option(call, names, given):
    refused(lambda: call(given), names)
