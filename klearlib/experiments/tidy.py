"""Evidence as data: the outcome of finished runs, in four tidy tables that each notebook publishes.

    runs.parquet         a row for each arm and seed: what ran, where, when, its numbers at the end
    curves.parquet       run, step, metric, value: metrics.jsonl; null where a step has no value
    evaluations.parquet  run, step, benchmark, problem: counts over the n responses to it
    samples.parquet      run, step, problem, response: what some rollouts said, first and last step

Tables, figures and verdicts are computed from `Run` alone, whether it was read from a folder of
results/runs (`of_stage`) or from what is published (`Published`): by one code, so both are equal.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from klearlib.errors import MissingAsset
from klearlib.evaluate.counts import COUNTS, Evaluation, read_evaluations
from klearlib.params import root
from klearlib.report.section import Section, read_section
from klearlib.run.files import read_json, write_bytes
from klearlib.run.provenance import computing_versions
from klearlib.run.stage import Stage, with_inputs

if TYPE_CHECKING:
    import pandas as pd

RUNS, CURVES, EVALUATIONS = "runs.parquet", "curves.parquet", "evaluations.parquet"
SAMPLES = "samples.parquet"
FACTS = "facts.json"

Arm = tuple[str, int]
"""Series and seed of a run."""
Place = tuple[str, str, int]
"""The place of an arm in the tables of a notebook: its set of runs, series, seed."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    about: stage, title, code (its fingerprint), made_of and made_by (see `_origin`), params,
        provenance, seconds, weights (a digest).
    metrics: a dict for each step, to seven digits. evaluations: benchmark -> step -> evaluation.
    samples: as `klearlib.rl.samples.draw_samples` keeps them; of a published run the first and last
        step's.
    """

    key: str
    about: dict[str, Any]
    metrics: Sequence[dict]
    evaluations: Mapping[str, Mapping[int, Evaluation]]
    samples: Sequence[dict] = field(default=(), repr=False)

    @property
    def sampled_steps(self) -> list[int]:
        """The first and the last step that samples are kept of: none, one or two."""
        steps = {line["step"] for line in self.samples}
        return sorted({min(steps), max(steps)}) if steps else []


def of_stage(stage: Stage, runs_dir: Path) -> Run:
    """The run of a stage that is done, from its folder."""
    from klearlib.run.entry import DONE, read_metrics, read_own_json, read_samples

    folder = stage.folder(runs_dir)
    done = read_own_json(folder / DONE)
    files = done["files"].items()
    weights = [entry["sha256"] for name, entry in sorted(files) if name.startswith("model/")]
    about = {
        "stage": stage.name,
        "title": stage.title,
        "code": stage.code,
        **_origin(stage),
        "params": stage.params,
        "provenance": done["provenance"],
        "seconds": done["seconds"],
        "weights": weights,
    }
    lines = read_metrics(folder, timings=False)
    metrics = [{name: _published(value) for name, value in line.items()} for line in lines]
    return Run(stage.key, about, metrics, read_evaluations(folder), read_samples(folder))


def _origin(stage: Stage) -> dict[str, str]:
    """Two digests, equal for all replicates of an arm: `made_of`, of the parameters, without seeds,
    of the stages that it is made from, and `made_by`, of their code, its own, and the libraries
    that compute."""
    every = with_inputs([stage]).values()
    before = (each for each in every if each.key != stage.key)
    params = {json.dumps([s.name, s.target, _seedless(s.params)], sort_keys=True) for s in before}
    code = {f"{s.name} {s.code}" for s in every}
    libraries = {str(item) for s in every for item in computing_versions(s.engine).items()}
    return {
        "made_of": _digest(sorted(params)),
        "made_by": _digest([*sorted(code), *sorted(libraries)]),
    }


def _seedless(value):
    if isinstance(value, dict):
        return {name: _seedless(each) for name, each in value.items() if not name.endswith("seed")}
    return [*map(_seedless, value)] if isinstance(value, list) else value


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Published:
    """What a notebook has published: its runs by their places, its facts, its section."""

    arms: Mapping[Place, Run]
    facts: Mapping[str, Any]
    section: Section

    @classmethod
    def read(cls, folder: Path) -> Published:
        """That of results/<profile>/<notebook>."""
        import pyarrow.parquet as pq

        runs, curves = (pq.read_table(folder / name) for name in TABLES[:2])
        metrics, scores = _metrics(curves.to_pylist()), _evaluations(_read(folder / EVALUATIONS))
        samples: dict[str, list[dict]] = {}
        for line in pq.read_table(folder / SAMPLES).to_pylist():
            samples.setdefault(line.pop("run"), []).append(line)
        made: dict[str, Run] = {}
        arms = {}
        for row in runs.to_pylist():
            if (key := row["run"]) not in made:
                about = {n: json.loads(row[n]) if n in _JSON else row[n] for n in _ABOUT}
                of_run = metrics.get(key, ()), scores.get(key, {}), samples.get(key, ())
                made[key] = Run(key, about, *of_run)
            arms[row["set"], row["series"], row["seed"]] = made[key]
        return cls(arms, read_json(folder / FACTS), read_section(folder))

    @classmethod
    def of_notebook(cls, folder: Path, *, gathers: bool) -> Published:
        """As `read`; without runs for a notebook that only gathers what others published."""
        return cls({}, {}, read_section(folder)) if gathers else cls.read(folder)


class Frames(NamedTuple):
    """The tables of all notebooks of a results folder, each row with its notebook, set, series and
    seed; a run that several arms share appears under each of them."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    evaluations: pd.DataFrame
    samples: pd.DataFrame


def read_frames(folder: Path | str) -> Frames:
    """The implementation of `klearlib.results`. A relative folder that does not exist here is
    looked up in the project.

    Raises MissingAsset where no notebook has published its tables in `folder`.
    """
    import pandas as pd

    here = Path(folder)
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    for path in sorted((here if here.is_dir() else root() / folder).glob(f"*/{RUNS}")):
        runs = pd.read_parquet(path)
        runs.insert(0, "notebook", path.parent.name)
        parts[RUNS].append(runs)
        arms = runs[["notebook", "set", "series", "seed", "run"]]
        for name in TABLES[1:]:
            parts[name].append(arms.merge(_read(path.with_name(name)), on="run"))
    if not parts[RUNS]:
        raise MissingAsset(f"{folder} has no notebook's {RUNS}: name a folder in results/")
    return Frames(*(pd.concat(each, ignore_index=True) for each in parts.values()))


def write_tables(folder: Path, arms: Mapping[Place, Run]) -> None:
    """The four tables of a notebook; all but the first have a run that several arms share once.

    arms: (set, series, seed) -> run.
    """
    import pyarrow as pa

    runs = {run.key: run for run in arms.values()}
    _write(folder / RUNS, pa.Table.from_pylist, [_row(*arm, run) for arm, run in arms.items()])
    values = [
        {"run": key, "step": line["step"], "metric": name, "value": value}
        for key, run in runs.items()
        for line in run.metrics
        for name, value in line.items()
        if name != "step"
    ]
    values.sort(key=lambda value: value["metric"])  # like next to like: a third smaller
    _write(folder / CURVES, pa.Table.from_pylist, values)
    parts = [
        each.columns(run=key, step=step, benchmark=name)
        for key, run in runs.items()
        for name, steps in run.evaluations.items()
        for step, each in steps.items()
    ]
    every = {name: [it for part in parts for it in part[name]] for name in _TYPES[EVALUATIONS]}
    # Null where another column has it, which makes the file 40 % smaller: see `_read`.
    right, boxed, rate, n = (every[c] for c in ("right", "right_boxed", "pass_rate", "n"))
    every["right_boxed"] = [None if b == r else b for b, r in zip(boxed, right, strict=True)]
    counts = zip(rate, right, n, strict=True)
    every["pass_rate"] = [None if share == r / each else share for share, r, each in counts]
    _write(folder / EVALUATIONS, pa.Table.from_pydict, every)
    texts = [
        {"run": key, **line}
        for key, run in runs.items()
        for line in run.samples
        if line["step"] in run.sampled_steps
    ]
    _write(folder / SAMPLES, pa.Table.from_pylist, texts)


def _read(path: Path) -> pd.DataFrame:
    """A table as it was before `write_tables` left out what other columns have."""
    import pandas as pd

    frame = pd.read_parquet(path)
    if path.name == EVALUATIONS:
        boxed = frame["right_boxed"].fillna(frame["right"]).astype("int32")
        rate = frame["pass_rate"].fillna(frame["right"] / frame["n"])
        frame = frame.assign(right_boxed=boxed, pass_rate=rate)
    return frame


def _published(value: float | None) -> float | None:
    """The shortest number with the float32 of `value`, which takes half the room: 0.1 stays 0.1."""
    return None if value is None else float(str(np.float32(value)))


def _metrics(lines: Sequence[dict]) -> dict[str, list[dict]]:
    """Run -> its lines of metrics.jsonl."""
    found: dict[str, dict[int, dict]] = {}
    for line in lines:
        steps = found.setdefault(line["run"], {})
        step = steps.setdefault(line["step"], {"step": line["step"]})
        step[line["metric"]] = _published(line["value"])
    return {run: [steps[step] for step in sorted(steps)] for run, steps in found.items()}


def _evaluations(rows: pd.DataFrame) -> dict[str, dict[str, dict[int, Evaluation]]]:
    """Run -> benchmark -> step -> evaluation."""
    found: dict[str, dict[str, dict[int, Evaluation]]] = {}
    for (run, name, step), mine in rows.groupby(["run", "benchmark", "step"], sort=False):
        each = {column: mine[column].to_numpy() for column in mine}
        found.setdefault(run, {}).setdefault(name, {})[int(step)] = Evaluation(
            tuple(each["problem"]),
            int(each["n"][0]),
            {count: each[count] for count in COUNTS},
            each["tokens"],
            each["pass_rate"],
            json.loads(each["sampling"][0]),
        )
    return found


def _row(which: str, series: str, seed: int, run: Run) -> dict:
    """A row of runs.parquet: the arm, its run, and a summary of the run's metrics."""
    norms = [line.get("train/grad_norm") for line in run.metrics]
    known = [norm for norm in norms if norm is not None]
    about = {n: json.dumps(v, sort_keys=True) if n in _JSON else v for n, v in run.about.items()}
    last = run.metrics[-1] if run.metrics else {}
    return {
        **{"set": which, "series": series, "seed": seed, "run": run.key, **about},
        "steps": last.get("step"),
        "norm_max": max(known, default=None),
        "norm_median": float(np.median(known)) if known else None,
        "skipped_updates": sum(line.get("train/skipped_updates") or 0 for line in run.metrics),
        **{name.partition("/")[2]: last.get(name) for name in _LAST},
    }


def _write(path: Path, make: Callable, rows: list | dict) -> None:
    """A table by a maker of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema({name: pa.type_for_alias(t) for name, t in _TYPES[path.name].items()})
    content = io.BytesIO()
    few = [name for name in _TYPES[path.name] if name != "value"]  # of which many are equal
    how = {"compression": "zstd", "compression_level": 12, "use_dictionary": few}
    pq.write_table(make(rows, schema=schema), content, **how)
    write_bytes(path, content.getvalue(), make_folder=True)


TABLES = (RUNS, CURVES, EVALUATIONS, SAMPLES)
_JSON = ("params", "provenance", "weights")
_ABOUT = ("stage", "title", "code", "made_of", "made_by", "seconds", *_JSON)
_LAST = (  # of the metrics, at the last step
    *("rollout/reward_mean", "rollout/correct_rate", "rollout/truncated_rate"),
    *("rollout/response_tokens_mean", "train/entropy"),
)
_TYPES = {
    RUNS: {
        **dict.fromkeys(("set", "series"), "string"),
        "seed": "int64",
        **dict.fromkeys(("run", "stage", "title", "code", "made_of", "made_by"), "string"),
        "seconds": "float64",
        **dict.fromkeys(_JSON, "string"),
        "steps": "int64",
        **dict.fromkeys(("norm_max", "norm_median"), "float64"),
        "skipped_updates": "int64",
        **{name.partition("/")[2]: "float64" for name in _LAST},
    },
    CURVES: {"run": "string", "step": "int64", "metric": "string", "value": "float32"},
    EVALUATIONS: {
        **{"run": "string", "step": "int64", "benchmark": "string", "problem": "string"},
        **dict.fromkeys(("n", *COUNTS), "int32"),
        **{"tokens": "float64", "pass_rate": "float64", "sampling": "string"},
    },
    SAMPLES: {
        **{"run": "string", "step": "int64", "problem": "string", "response": "int32"},
        **{"prompt": "string", "text": "string", "chars": "int32", "tokens": "int32"},
        **{"truncated": "bool", "reason": "string", "found": "string"},
        **{"reward": "float64", "advantage": "float64"},
    },
}


def unlike(arms: Mapping[Place, Run], what: str) -> list[str]:
    """The kinds of stage in which replicates of one arm differ in `what`: made_of or made_by."""
    found: dict[tuple[str, str], Run] = {}
    return sorted(
        {
            run.about["stage"]
            for (which, series, _), run in arms.items()
            if found.setdefault((which, series), run).about[what] != run.about[what]
        }
    )
