"""Checkpoints of text families: random weights, tokenizers trained on a page of text, settings as published ones have.

Each is saved as transformers saves it, and returned as the transformers model.
"""

import json
from pathlib import Path

import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedTokenizerBase,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)
from transformers.models.m2m_100 import tokenization_m2m_100
from transformers.models.mbart import tokenization_mbart
from transformers.models.mbart50 import tokenization_mbart50

TEXTS = """
In a church the transept is where the nave is crossed. It lies between the nave and the choir, and so the plan of the \
church has the form of a cross.
The rain in Spain falls mainly on the plain. Does it? Nobody has measured it; the song says so, and songs are seldom \
wrong about the weather!
Dr. Smith walked to the library at half past nine. He had read about bridges all night, and wanted to know why some \
of them sing when the wind blows.
Her note had two lines: translate the letter; summarize the article. The other papers stay here until the morning.
English, German, French and Romanian are the languages that the first model of this kind was asked to learn.
""".strip().splitlines()
POSITIONS = 96
SIZES = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": POSITIONS,
    "init_std": 0.3,
}
T5_SIZES = {"d_model": 48, "d_kv": 16, "d_ff": 96, "num_heads": 3, "num_layers": 2}
SUMMARY = {"num_beams": 3, "length_penalty": 2.0, "max_length": 30, "min_length": 12, "no_repeat_ngram_size": 3}
T5_TASKS = {  # keys and prefixes as in the config of the published T5
    "summarization": {"prefix": "summarize: ", "early_stopping": True, **SUMMARY},
    "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4, "max_length": 25},
    "translation_en_to_fr": {"prefix": "translate English to French: ", "num_beams": 4, "max_length": 20},
}


def unigrams(num_pieces: int, special_tokens: list[str]) -> list[tuple[str, float]]:
    """A unigram model trained on TEXTS: (piece, log probability), the special tokens first."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=num_pieces, special_tokens=special_tokens, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


def t5_tokenizer(**options: list[str]) -> PreTrainedTokenizerBase:
    return T5Tokenizer(vocab=unigrams(200, ["<pad>", "</s>", "<unk>"]), extra_ids=0, **options)


def bart_tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return BartTokenizer(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]])


def mbart_tokenizer(kind: type) -> PreTrainedTokenizerBase:
    """Language codes and <mask> at the end, as in the published vocabularies."""
    module = tokenization_mbart if kind is MBartTokenizer else tokenization_mbart50
    codes = [(code, 0.0) for code in module.FAIRSEQ_LANGUAGE_CODES]
    return kind(vocab=[*unigrams(200, ["<s>", "<pad>", "</s>", "<unk>"]), *codes, ("<mask>", 0.0)])


def nllb_tokenizer(**options: object) -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=250, special_tokens=special, show_progress=False)
    )
    model = json.loads(tokenizer.to_str())["model"]
    return NllbTokenizer(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]], **options)


def m2m100_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """Its files lie in the directory; 100 languages come after the vocabulary."""
    pieces = directory / "pieces.model"
    with pieces.open("wb") as opened:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS), model_writer=opened, vocab_size=110, minloglevel=2
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    names = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]  # after <unk>, <s>, </s>
    vocabulary = directory / "words.json"
    vocabulary.write_text(
        json.dumps({name: index for index, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *names])})
    )
    special = [f"__{code}__" for code in tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    return M2M100Tokenizer(str(vocabulary), str(pieces), additional_special_tokens=special)


def save_t5(directory: Path, task_specific_params: dict[str, dict] | None = None) -> nn.Module:
    tokenizer = t5_tokenizer()
    config = T5Config(
        **T5_SIZES,
        vocab_size=len(tokenizer),
        decoder_start_token_id=0,
        task_specific_params=T5_TASKS if task_specific_params is None else task_specific_params,
    )
    torch.manual_seed(3)
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "layer_norm" in name else 0.0, 0.1 if ".wo." in name else 0.3)
    return _save(model, tokenizer, directory)


def save_bart(directory: Path, **settings: object) -> nn.Module:
    """Like bart-large-cnn: a blank as prefix, the summary's settings; forced tokens in the generation config."""
    tokenizer = bart_tokenizer()
    summary = {"summarization": {"early_stopping": True, **SUMMARY}}
    config = BartConfig(**SIZES, vocab_size=len(tokenizer), prefix=" ", task_specific_params=summary, **settings)
    torch.manual_seed(4)
    model = BartForConditionalGeneration(config).eval()
    model.generation_config.update(forced_bos_token_id=0, forced_eos_token_id=2, num_beams=2, max_length=40)
    return _save(model, tokenizer, directory)


def save_mbart(directory: Path) -> nn.Module:
    """Like mbart-large-en-ro: the decoder starts with the target's code."""
    tokenizer = mbart_tokenizer(MBartTokenizer)
    start = tokenizer.lang_code_to_id["ro_RO"]
    tasks = {"translation_en_to_ro": {"decoder_start_token_id": start, "num_beams": 3, "max_length": 24}}
    return _save_mbart(directory, tokenizer, decoder_start_token_id=start, task_specific_params=tasks)


def save_mbart50(directory: Path) -> nn.Module:
    """Like mbart-large-50-many-to-many-mmt: the decoder starts with </s>, and the target's code is forced."""
    return _save_mbart(directory, mbart_tokenizer(MBart50Tokenizer), decoder_start_token_id=2)


def _save_mbart(directory: Path, tokenizer: PreTrainedTokenizerBase, **settings: object) -> nn.Module:
    config = MBartConfig(**SIZES, vocab_size=len(tokenizer), scale_embedding=True, **settings)
    torch.manual_seed(5)
    model = MBartForConditionalGeneration(config).eval()
    model.generation_config.update(num_beams=2, max_length=28)
    return _save(model, tokenizer, directory)


def save_nllb(directory: Path) -> nn.Module:
    """Like nllb-200-distilled-600M, whose greedy settings say nothing but a length."""
    return _save_m2m100(directory, nllb_tokenizer(), max_length=28)


def save_m2m100(directory: Path) -> nn.Module:
    """Like m2m100_418M."""
    return _save_m2m100(directory, m2m100_tokenizer(directory), num_beams=3, max_length=28, early_stopping=True)


def _save_m2m100(directory: Path, tokenizer: PreTrainedTokenizerBase, **settings: object) -> nn.Module:
    languages = getattr(tokenizer, "lang_code_to_id", {})
    words = max(*tokenizer.get_vocab().values(), *languages.values()) + 1
    torch.manual_seed(6)
    model = M2M100ForConditionalGeneration(M2M100Config(**SIZES, vocab_size=words)).eval()
    with torch.no_grad():
        model.model.shared.weight.mul_(0.3)  # else the scaled, tied embedding repeats the token before
    model.generation_config.update(**settings)
    return _save(model, tokenizer, directory)


def _save(model: nn.Module, tokenizer: PreTrainedTokenizerBase, directory: Path) -> nn.Module:
    model.generation_config.update(do_sample=False, decoder_start_token_id=model.config.decoder_start_token_id)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model
