"""How a model is asked for `klear evaluate`: the paper's sampling and the released code's."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.errors import ParameterError

SETTINGS = "evaluation.json"
"""The file that says which model's evaluation a folder holds, and how it was asked."""


@dataclass(frozen=True)
class Preset:
    """Values that options of the command replace one by one.

    yarn_factor: None leaves the model's positions as they are. yarn_original: the positions that it
    multiplies, None for those of the model's config. budget: tokens of a response where
    the model has the positions for so many.
    """

    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    yarn_factor: float | None
    budget: int
    yarn_original: int | None = None


PRESETS = {
    "paper": Preset(
        temperature=0.6,
        top_p=0.95,
        top_k=0,
        repetition_penalty=1.0,
        yarn_factor=None,
        budget=32_768,
    ),
    "released": Preset(
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        repetition_penalty=1.05,
        yarn_factor=2.5,
        budget=65_536,
    ),
}
"""semantics.md D12: the released code adds a repetition penalty, top-k and a static YaRN."""


def choose(preset: str, **given: object) -> Preset:
    """The preset with the values that are given (not None) in place of its own.

    A `yarn_factor` of 1 stands for none.

    Raises:
        ParameterError: a value out of range.

    >>> choose("released", top_k=0, yarn_factor=1.0).yarn_factor is None
    True
    """
    values = vars(PRESETS[preset]) | {k: v for k, v in given.items() if v is not None}
    if values["yarn_factor"] == 1:
        values["yarn_factor"] = None
    chosen = Preset(**values)
    if chosen.temperature != 0 and not 0.01 <= chosen.temperature < float("inf"):
        raise ParameterError(
            f"--temperature must be 0 (greedy) or at least 0.01, got {chosen.temperature}"
        )
    if not 0 < chosen.top_p <= 1:
        raise ParameterError(f"--top-p must be above 0 and at most 1, got {chosen.top_p}")
    if chosen.top_k < 0:
        raise ParameterError(f"--top-k must be 0 (none) or more, got {chosen.top_k}")
    if not 0.1 <= chosen.repetition_penalty <= 10:
        raise ParameterError(
            "--repetition-penalty must be from 0.1 to 10, 1 for none, got "
            f"{chosen.repetition_penalty}"
        )
    if chosen.yarn_factor is not None and not 1 < chosen.yarn_factor < float("inf"):
        raise ParameterError(f"--yarn must be above 1, or 1 for none, got {chosen.yarn_factor}")
    if chosen.yarn_original is not None and chosen.yarn_factor is None:
        raise ParameterError("--yarn-original says what --yarn multiplies: give --yarn too")
    return chosen
