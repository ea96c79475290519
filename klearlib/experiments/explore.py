"""What a user does with an experiment beside its cells: other parameters, its models, a look."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue

if TYPE_CHECKING:
    from klearlib.experiments.tidy import Arm
    from klearlib.run.stage import Stage


class Exploring:
    """What every experiment has of it; it has `params`, `arms`, `runs` and `folder`."""

    def changed(self, **values) -> Self:
        """The experiment with other values of parameters; it publishes in a folder of its own.

        Raises ParameterError as in a parameters cell.
        """
        fields = dataclasses.fields(self.params)
        known = {field.name: getattr(self.params, field.name) for field in fields}
        return type(self)(catalogue.check(self.name, known | values))

    def model(self, series: str, seed: int):
        """The model that a run ended with, as `klearlib.policy.load.load_policy` loads it; it
        samples and gives log-probabilities.

        Raises ParameterError where no such run is done.
        """
        from klearlib.policy.load import load_policy

        arms: Mapping[Arm, Stage] = self.arms
        if (stage := arms.get((series, seed))) is None or not self.is_done(stage):
            done = ", ".join(f"{name}, {number}" for name, number in self.runs.runs) or "none yet"
            raise ParameterError(f"no run {series!r}, {seed} is done; there are: {done}")
        trained = stage.inputs.get("model", stage) if stage.name == "evaluate" else stage
        return load_policy(self.folder(trained) / "model")

    def _repr_html_(self) -> str:
        done = len(self.runs)
        text = f"<b>{self.name}</b>: {self.title}, profile {self.params.profile}"
        text += f"; {done} of {len(self.arms)} arms are done: <code>e.runs</code>"
        return f"<p>{text}</p>" + (self.runs._repr_html_() if done else "")


def source_of(function: Callable) -> dict[str, str]:
    """A function of a cell as an element of the parameter `rules`: its name, and its text with
    ``import torch`` before it.

    Raises ParameterError where its text cannot be had, or it uses other names of the notebook.
    """
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise ParameterError(
            f"the text of {function!r} cannot be had: define it by def, in a cell or a file"
        ) from None
    outside = inspect.getclosurevars(function)
    used = {**outside.globals, **outside.nonlocals}
    if other := sorted(name for name in used if name not in ("torch", "math")):
        raise ParameterError(
            f"{function.__name__} uses {', '.join(other)} of the notebook, which its runs have "
            "not: import or define it inside of the function"
        )
    name = function.__name__
    return {"name": f"cell.py:{name}", "source": f"import math\n\nimport torch\n\n\n{text}"}
