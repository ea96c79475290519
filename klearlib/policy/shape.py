"""The shape of a model: what its parameters, memory and arithmetic follow from. Without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """A Qwen3: `num_layers` layers of width `hidden_size`, attention of `num_heads` heads of
    `head_dim` over `num_kv_heads` keys and values, gated feed-forward of `intermediate_size`.

    >>> ModelShape(4, 128, 4, 2, 32, 384, 64, True).num_parameters
    796032
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Width of all key heads together, which is that of the values too."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """All of them; tied embeddings count once."""
        embedding = self.vocab_size * self.hidden_size
        norms = 2 * self.hidden_size + 2 * self.head_dim
        layers = self.num_layers * (self._matrices + norms)
        return (1 if self.tie_word_embeddings else 2) * embedding + layers + self.hidden_size

    @property
    def num_multiplied(self) -> int:
        """Those of the matrices: of all layers and of the head."""
        return self.num_layers * self._matrices + self.vocab_size * self.hidden_size

    @property
    def num_joined(self) -> int:
        """Those of the matrices that read the same states as another one: queries, keys and
        values; gate and up."""
        width = self.query_size + 2 * self.key_size + 2 * self.intermediate_size
        return self.num_layers * self.hidden_size * width

    @property
    def _matrices(self) -> int:
        attention = 2 * self.query_size + 2 * self.key_size
        return self.hidden_size * (attention + 3 * self.intermediate_size)

    def forward_flops(self, *, context: float) -> float:
        """Floating-point operations of one token's forward pass: 2 for each weight of the layers
        and of the head, and 4 T q a layer for attention to T tokens with q the width of all query
        heads (scores and their sum over values, a multiplication and an addition each).

        context: T; on average half of a sequence.
        """
        return 2.0 * self.num_multiplied + 4.0 * context * self.query_size * self.num_layers


def shape_of(config) -> ModelShape:
    """The shape in a config of transformers; what it may leave out is taken as transformers does.
    AttributeError where it has no such entries."""
    heads = config.num_attention_heads
    return ModelShape(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        tie_word_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
    )
