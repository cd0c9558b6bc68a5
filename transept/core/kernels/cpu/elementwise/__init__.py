"""Operations on rows between products, and on logits."""
