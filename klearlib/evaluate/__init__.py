"""Evaluation: sample, verify, and turn bool [problems, n] into scores with intervals."""
