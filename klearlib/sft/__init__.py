"""Supervised fine-tuning (Eq. 8): examples with a loss mask, objective, training."""
