"""ModelShape: a model's sizes for the engine. The model's class makes it from the config. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from transept.errors import CheckpointError


@dataclass(frozen=True)
class ModelShape:
    """A model's sizes, by which the engine checks inputs and allocates the cache.

    num_decoder_layers, num_kv_heads, head_dim: shape of the cache; each decoder layer has one cache for self- and
        cross-attention.
    max_source_positions, max_target_positions: longest encoder and decoder sequence in tokens; None: no bound.
    encoder_takes_text: True if the encoder reads tokens; Whisper's reads only audio.
    num_heads: number of query heads; None: num_kv_heads.
    source_vocab_size: vocabulary size of the encoder's tokens; None: the config's vocab_size, else the field
    vocab_size.
    window: largest window of the decoder layers' self-attention, if every layer has one: cache blocks outside it are
        freed. Biases of these layers must depend on distances alone. None: some layer attends to all tokens.

    Raises CheckpointError for a number that is not an integer of at least 1.
    """

    num_decoder_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_source_positions: int | None
    max_target_positions: int | None
    encoder_takes_text: bool = True
    num_heads: int | None = None
    source_vocab_size: int | None = None
    window: int | None = None

    @classmethod
    def of_decoder(
        cls,
        config: Any,
        *,
        max_source_positions: int | None,
        max_target_positions: int | None = None,
        vocab_size: int | None = None,
        encoder_takes_text: bool = True,
        source_vocab_size: int | None = None,
    ) -> ModelShape:
        """Make a shape from a config with BART's names of the decoder's sizes, as most of transformers' configs have.

        config: has decoder_layers, decoder_attention_heads, d_model or hidden_size. It must also have vocab_size, and
            max_position_embeddings for max_target_positions, unless these arguments are given.
        """
        width = config.d_model if hasattr(config, "d_model") else config.hidden_size
        longest = config.max_position_embeddings if max_target_positions is None else max_target_positions
        return cls(
            num_decoder_layers=config.decoder_layers,
            num_kv_heads=config.decoder_attention_heads,
            head_dim=width // config.decoder_attention_heads,
            vocab_size=config.vocab_size if vocab_size is None else vocab_size,
            max_source_positions=max_source_positions,
            max_target_positions=longest,
            encoder_takes_text=encoder_takes_text,
            source_vocab_size=source_vocab_size,
        )

    def __post_init__(self) -> None:
        optional = ("max_source_positions", "max_target_positions", "num_heads", "source_vocab_size", "window")
        for name in ("num_decoder_layers", "num_kv_heads", "head_dim", "vocab_size", *optional):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise CheckpointError(f"{name} must be an integer of at least 1, not {value!r}")
