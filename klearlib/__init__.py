"""klear: the Klear-Reasoner paper (arXiv 2508.07629) as notebooks that anyone can run, check and
extend."""

__version__ = "1.0.0"


def results(folder):
    """The tidy tables of a published results folder, such as "results/full": an object with the
    DataFrames ``runs``, ``curves``, ``evaluations`` and ``samples``; see
    `klearlib.experiments.tidy`."""
    from klearlib.experiments.tidy import read_frames

    return read_frames(folder)
