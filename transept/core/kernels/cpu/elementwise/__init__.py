"""What is done to rows between products, and to logits."""
