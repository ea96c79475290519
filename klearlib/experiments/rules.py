"""The clipping rules that a notebook compares: the library's, and a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.params import RLOptions, did_you_mean
from klearlib.params.own_files import text_of
from klearlib.report.style import own_series
from klearlib.rl.rule_table import PUBLISHED

if TYPE_CHECKING:
    from klearlib.rl.coefficients import Rule

RULE_OPTIONS = ("dual_clip", "beta_low", "beta_high")
"""Fields of RLOptions that describe the clipping rule and not the run."""
TITLES = {"clip_higher": "Clip-Higher", "gppo": "GPPO", "cispo": "CISPO", "unclipped": "unclipped"}
"""The rules of the paper, and what people call them."""
_CLIP = ("eps_low", "eps_high")
_TAKES = {
    "unclipped": (),
    "clip_higher": (*_CLIP, "dual_clip"),
    "gppo": (*_CLIP, *RULE_OPTIONS),
    "cispo": _CLIP,
}


@dataclass(frozen=True)
class RuleArm:
    """A rule as an arm: the name of its series, its title, and the rule as `read_rules` gives
    it."""

    series: str
    title: str
    rule: str | dict

    @property
    def is_own(self) -> bool:
        return not isinstance(self.rule, str)


def read_rules(given: object) -> list[str | dict]:
    """The parameter `rules`: each a name of `TITLES` or of `klearlib.rl.rule_table.PUBLISHED`,
    FILE.py:NAME, or a mapping with either as ``name``, a ``label`` if another one is wanted, and
    values in place of the notebook's or the published ones.

    A path is relative to the project's folder. The text of the file becomes the ``source`` of the
    rule, which is then a mapping; where there is a source, the file is not read again.

    Raises:
        ParameterError: one line that names the rule and the fix.
    """
    if not isinstance(given, list | tuple) or not given:
        raise ParameterError(f"rules must be a list such as [gppo, cispo], got {given!r}")
    found = [_read(each) for each in given]
    titles = [each.title for each in rule_arms(found)]
    taken = {each.casefold() for pair in TITLES.items() for each in pair}
    for rule, title in zip(found, titles, strict=True):
        alone = isinstance(rule, str) or rule.keys() == {"name"}
        is_taken = title.casefold() in taken or title in PUBLISHED  # names that claims use
        if titles.count(title) > 1 or (not alone and is_taken):
            raise ParameterError(
                f"rules: {title!r} names more than one rule: leave one out, or give it a label, as "
                f"{{name: {rule if isinstance(rule, str) else rule['name']}, label: another}}"
            )
    return found


def rule_arms(rules: Sequence[str | dict]) -> list[RuleArm]:
    """An arm for each of `rules`; rules that are not the paper's get their own look in figures."""
    arms: list[RuleArm] = []
    for rule in rules:
        title, number = rule_title(rule), sum(arm.is_own for arm in arms)
        series = rule if isinstance(rule, str) else own_series(title, number)
        arms.append(RuleArm(series, title, rule))
    return arms


def rule_title(rule: str | dict) -> str:
    """What people call a rule.

    >>> rule_title({"name": "gppo", "beta_low": 0.0})
    'GPPO, beta_low 0'
    """
    if isinstance(rule, str):
        return TITLES[rule]
    known = TITLES | {name: each.title for name, each in PUBLISHED.items()}
    name = rule["name"].rpartition(":")[2] if "source" in rule else known[rule["name"]]
    values = (f"{key} {value:g}" for key, value in _values(rule).items())
    return rule.get("label") or ", ".join([name, *values])


def rule_key(rule: str | dict) -> str:
    """The name by which claims know a rule given by name alone; the title of any other.

    >>> rule_key({"name": "gppo_ratio_low"})
    'gppo_ratio_low'
    """
    if isinstance(rule, str):
        return rule
    return rule["name"] if rule.keys() == {"name"} else rule_title(rule)


def without(absent: Sequence[str]) -> str:
    """Why a claim is not decided: `rules` lacks these."""
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    return f"rules has no {', '.join(absent[:3])}{more}, which the claim is about"


def at_rate(rate: float, rule: str) -> str:
    """The series of a rule in a grid of learning rates."""
    return f"learning rate {rate:g}: {rule}"


def note_on_own(arms: Iterable[RuleArm]) -> list[str]:
    """The note that names the rules that are not in the paper; no note if there are none."""
    names = ", ".join(f"{arm.title} ({arm.rule['name']})" for arm in arms if arm.is_own)
    about = "no curve or number of the paper is comparable, and no claim is judged by them"
    return [f"Rules that are not in the paper: {names}; {about}."] if names else []


def rule_spec(rule: str | dict, *, eps_low: float, eps_high: float, options: RLOptions) -> dict:
    """A rule as JSON, with the arguments that it takes and no others, so that equal arms share a
    key. The place of its file and its title are left out.

    See `klearlib.rl.rule_specs.rule_from`.
    """
    rule = {"name": rule} if isinstance(rule, str) else rule
    clip = {"eps_low": eps_low, "eps_high": eps_high}
    if "source" in rule:
        name = rule["name"].rpartition(":")[2]
        return {"name": name, "source": rule["source"], **clip, **_values(rule)}
    if (found := PUBLISHED.get(rule["name"])) is not None:
        return found.spec | _values(rule)
    known = clip | {name: getattr(options, name) for name in RULE_OPTIONS} | _values(rule)
    spec = {name: known[name] for name in _TAKES[rule["name"]]}
    return {"name": rule["name"]} | {n: v for n, v in spec.items() if v is not None}


def made(rule: str | dict, params) -> Rule:
    """A rule by the clip range and the options of a notebook."""
    from klearlib.rl.rule_specs import rule_from

    how = {"eps_low": params.eps_low, "eps_high": params.eps_high, "options": params.rl_options}
    return rule_from(rule_spec(rule, **how))


def require_usable(rules: Sequence[str | dict], params) -> None:
    """Raises ParameterError where all rules of a notebook are equal, where a rule with values or a
    file of its own cannot be made, or where its function fails on a small grid; see
    `klearlib.rl.coefficients`."""
    one_update = params.mini_batch_problems == params.num_problems
    names = {rule if isinstance(rule, str) else rule["name"] for rule in rules}
    by_corners = len(rules) > 1 and names <= TITLES.keys()
    if one_update and by_corners and not params.rl_options.policy_lag:
        raise ParameterError(
            f"mini_batch_problems {params.mini_batch_problems} makes one update per rollout, so "
            "every ratio is 1 and all clipping rules are equal: give less than num_problems "
            f"{params.num_problems}"
        )
    for rule in rules:
        if isinstance(rule, str) or rule.keys() == {"name"}:
            continue  # as it stands in the library
        from klearlib.rl.rule_specs import check_function

        try:
            found = made(rule, params)
            if found.by_function or found.weights is not None:
                check_function(found)
            elif "source" in rule and _values(rule):
                names = ", ".join(_values(rule))
                raise ValueError(f"a Rule has its own numbers: leave out {names}")
        except ValueError as error:
            raise ParameterError(f"rules, {rule['name'].rstrip(':')}: {error}") from None


def _read(given: object) -> str | dict:
    rule = {"name": given} if isinstance(given, str) else given
    if not isinstance(rule, dict) or not isinstance(rule.get("name"), str):
        raise ParameterError(
            f"rules has {given!r}: write a name ({', '.join(TITLES)}), FILE.py:NAME, or a mapping "
            "with name, such as {name: gppo, beta_low: 0}"
        )
    name, label = rule["name"], rule.get("label", "x")
    if not isinstance(label, str) or not label.strip() or not label.isprintable():
        raise ParameterError(f"rules, {name}: label must be one line of text, got {label!r}")
    if "source" not in rule and (":" in name or name.endswith(".py")):
        file, _, own = name.rpartition(":") if ":" in name else (name, "", "")
        source = text_of(file, f"rules, {name}")
        rule = rule | {"name": f"{Path(file).name}:{own}", "source": source}
    values = _values(rule)
    if "source" not in rule:
        takes = _TAKES | {name: tuple(each.values) for name, each in PUBLISHED.items()}
        if name not in takes:
            near = did_you_mean(name, takes)
            raise ParameterError(f"rules: unknown rule {name!r} (or write FILE.py:NAME); {near}")
        for key in (key for key in values if key not in takes[name]):
            raise ParameterError(f"rules, {name}: {key}: {did_you_mean(key, takes[name])}")
    for key, value in values.items():
        if type(value) not in (int, float):
            raise ParameterError(f"rules, {name}: {key} must be a number, got {value!r}")
    rule = rule | {key: float(value) for key, value in values.items()}  # 1 and 1.0 are one run
    return name if rule.keys() == {"name"} and name in TITLES else rule


def _values(rule: dict) -> dict:
    return {key: value for key, value in rule.items() if key not in ("name", "label", "source")}
