"""What a user does with an experiment besides its cells: other parameters, its models, a look."""

from __future__ import annotations

import builtins
import dataclasses
import dis
import html
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import HTML

    from klearlib.rl.coefficients import Rule
    from klearlib.run.stage import Stage


class Exploring:
    """A part of every experiment, which has `params`, `arms`, `runs` and `folder`."""

    def changed(self, **values) -> Self:
        """The experiment with other values of parameters; it publishes in a folder of its own.

        Raises ParameterError as in a parameters cell.
        """
        known = {f.name: getattr(self.params, f.name) for f in dataclasses.fields(self.params)}
        return type(self)(catalogue.check(self.name, known | values))

    def model(self, series: str, seed: int):
        """The model that a run ended with, as `klearlib.policy.load.load_policy` loads it; it
        samples and gives log-probabilities.

        Raises ParameterError where no such run is done.
        """
        from klearlib.policy.load import load_policy

        return load_policy(self._trained(series, seed)[0] / "model")

    def _trained(self, series: str, seed: int) -> tuple[Path, Stage]:
        """The folder of the training of an arm that is done, and its stage."""
        if (stage := self.arms.get((series, seed))) is None or not self.is_done(stage):
            done = ", ".join(f"{name}, {number}" for name, number in self.runs.runs) or "none yet"
            raise ParameterError(f"no run {series!r}, {seed} is done; there are: {done}")
        stage = stage.inputs["model"] if stage.name == "evaluate" else stage
        return self.folder(stage), stage

    def batch(self, series: str, seed: int, step: int | None = None) -> pd.DataFrame:
        """The response tokens of the last update of a step, a line each, before it moved the
        weights: problem, response, row, is_correct, place, id, text, logp_old, logp, ratio, A, F,
        corner, entropy, correction, weight and lm_weight, the shares in the two means. A row is a
        response; a problem that was drawn twice has two of the same number.

        step: one that was evaluated, by default the last. The policy loss has the gradient
        -weight * F * A * correction at a token, the loss of Eq. 13 is -sum of lm_weight * logp; Eq.
        14 weighs it by alpha.

        Its ``attrs["prompts"]`` has the prompt's ids of each (problem, response, row). Raises
        ParameterError where no such run, or step, is there.
        """
        from klearlib.rl.rule_specs import rule_from
        from klearlib.rl.token_record import TOKENS

        folder, stage = self._trained(series, seed)
        steps = {int(path.stem): path for path in (folder / TOKENS).glob("*.npz")}
        step = max(steps, default=0) if step is None else step
        if step not in steps:
            none = "none, because no step had an update or verl trained the run"
            known = ", ".join(map(str, sorted(steps))) or none
            raise ParameterError(f"no tokens of step {step!r} are kept; there are: {known}")
        clamp = stage.params["settings"]["log_ratio_clamp"]
        rule = rule_from(stage.params["rule"])
        return tokens_of(steps[step], rule, folder / "model", log_ratio_clamp=clamp)

    def tokens(self, series: str, seed: int, step: int | None = None, rows: int = 8) -> HTML:
        """The responses of `batch` with most tokens outside the clip range, as text: such a token
        is coloured by its corner, and hovering shows its ratio and F."""
        from IPython.display import HTML

        return HTML(coloured(self.batch(series, seed, step), rows=rows))

    def _repr_html_(self) -> str:
        done = len(self.runs)
        text = f"<b>{self.name}</b>: {self.title}, profile {self.params.profile}"
        text += f"; {done} of {len(self.arms)} arms are done: <code>e.runs</code>"
        return f"<p>{text}</p>" + (self.runs._repr_html_() if done else "")


def tokens_of(
    file: Path, rule: Rule, model: Path, *, log_ratio_clamp: float | None = None
) -> pd.DataFrame:
    """The table of `Exploring.batch` from a file of `klearlib.rl.token_record`."""
    import numpy as np
    import pandas as pd
    import torch

    from klearlib.policy.load import load_tokenizer
    from klearlib.rl.coefficients import corner_masks
    from klearlib.rl.objective import trained_coefficient

    with np.load(file, allow_pickle=False) as stored:
        kept = dict(stored.items())
    row, tokenizer = kept["row"], load_tokenizer(model)
    split = np.split(kept.pop("prompt"), np.cumsum(kept.pop("prompt_length"))[:-1])
    prompts = [each.tolist() for each in split]  # pandas compares attrs by ==
    of_row = {name: kept.pop(name)[row] for name in ("problem", "response", "is_correct")}
    frame = pd.DataFrame(of_row | kept).rename(columns={"advantage": "A"})
    names = ("logp", "logp_old", "advantage", "entropy")
    logp, logp_old, advantage, entropy = (torch.from_numpy(kept[name]) for name in names)
    ratio = (logp - logp_old).exp()
    corner = np.full(len(frame), "", dtype=object)
    for name, inside in corner_masks(ratio, advantage, rule).items():
        corner[inside.numpy()] = name
    texts = [tokenizer.decode([each]) for each in kept["id"].tolist()]
    how = {"rule": rule, "entropy": entropy, "log_ratio_clamp": log_ratio_clamp}
    factor = trained_coefficient(logp, logp_old, advantage, **how)
    frame = frame.assign(ratio=ratio.numpy(), F=factor.numpy())
    frame = frame.assign(corner=corner, text=texts)
    order = [*KEY, "is_correct", "place", "id", "text", "logp_old", "logp", "ratio", "A", "F"]
    order += ["corner", "entropy", "correction", "weight", "lm_weight"]
    frame = frame[order]
    responses = frame[KEY].drop_duplicates().itertuples(index=False, name=None)
    frame.attrs["prompts"] = dict(zip(responses, prompts, strict=True))
    return frame


KEY = ["problem", "response", "row"]
"""What names a response of an update, which may have a problem twice."""
_COLOURS = {
    "low_negative": "#f4b6b6",
    "high_positive": "#b7dfb0",
    "low_positive": "#c9d9f4",
    "high_negative": "#f6dca0",
}


def coloured(frame: pd.DataFrame, *, rows: int) -> str:
    """HTML of some responses of a batch, see `Exploring.tokens`."""
    mark = '<span style="background:{}" title="{}">{}</span>'.format
    legend = [mark(colour, name, name.replace("_", ", ")) for name, colour in _COLOURS.items()]
    parts = [f"<p>ratio, sign of A: {' '.join(legend)}</p>"]
    groups = sorted(frame.groupby(KEY, sort=False), key=lambda of: -(of[1]["corner"] != "").sum())
    for (problem, response, _), mine in groups[:rows]:
        first = mine.iloc[0]
        right = "right" if first["is_correct"] else "not right"
        head = html.escape(f"{problem}, response {response}, {right}, A {first['A']:+.2f}")
        text = "".join(
            mark(
                _COLOURS.get(token.corner, "none"),
                f"ratio {token.ratio:.3f}, F {token.F:.3f}",
                html.escape(token.text),
            )
            for token in mine.itertuples()
        )
        parts.append(f"<p>{head}</p><pre style='white-space:pre-wrap'>{text}</pre>")
    return "".join(parts)


_IMPORTS = """import math

import torch

from klearlib.rl.coefficients import as_loss, as_weights


"""


def source_of(function: Callable) -> dict[str, str]:
    """A function of a cell as an element of the parameter `rules`: its name, and its text with
    ``import torch`` and the decorators of `klearlib.rl.coefficients` before it.

    Raises ParameterError where its text cannot be had, or it uses other names of the notebook.
    """
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise ParameterError(
            f"the source of {function!r} cannot be read: define it with def, in a cell or a file"
        ) from None
    loads = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
    used = {each.argval for each in dis.get_instructions(function) if each.opname in loads}
    given = {"torch", "math", *vars(builtins), *function.__code__.co_cellvars}
    if other := sorted(used - given):
        raise ParameterError(
            f"{function.__name__} uses {', '.join(other)} from the notebook, which its runs do not "
            "have: import or define it inside the function"
        )
    name = function.__name__
    return {"name": f"cell.py:{name}", "source": _IMPORTS + text}
