"""klear: the Klear-Reasoner paper (arXiv 2508.07629) as notebooks that anyone can run, check and
extend."""

__version__ = "0.17.0"
