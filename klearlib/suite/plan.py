"""The plan of a profile: each notebook with what it costs and what keeps it from finishing here, as
a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from klearlib.experiments.benchmarks import WINDOW_SIZE
from klearlib.experiments.catalogue import check, stages_of
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.rl_stages import CLUSTER_S
from klearlib.policy.compute import Compute
from klearlib.run.progress import rough
from klearlib.run.stage import is_done
from klearlib.scale.address import in_words, runs_here
from klearlib.scale.cluster import cluster_of_stage
from klearlib.scale.require import INSTALL_RAY
from klearlib.suite import estimate
from klearlib.suite.checks import missing_of, readable, refusals, short, too_long
from klearlib.suite.estimate import Cost, cost_of
from klearlib.suite.machine import a_node, this_machine

CACHED, WILL_RUN = "cached", "will run"

ASSUMED = f"""\
Assumed: H100s ({estimate.GPU_FLOPS / 1e12:.0f} TFLOP/s, {estimate.GPU_BANDWIDTH / 1e12:g} TB/s); \
training at {estimate.TRAINING_SHARE:.0%} of the peak, sampling
at {estimate.SAMPLING_SHARE:.0%} of the bandwidth, {1e3 * estimate.LAYER_STEP_S["transformers"]:g} \
ms or more a layer and token (vLLM {1e3 * estimate.LAYER_STEP_S["vllm"]:g}); {estimate.STAGE_S:g} s
to start a stage; responses of {estimate.RESPONSE_SHARE:.0%} of their budget, examples of \
{estimate.EXAMPLE_SHARE:.0%} of the
longest. Judging answers and programs, on cores, comes on top."""


@dataclass(frozen=True)
class PlannedNotebook:
    """One notebook of a profile, checked, with what a run would do to it.

    state: "cached" or "will run"; why: the reason to run, "" where cached; estimate_s: seconds by
    the notebook's own word for this profile or else by the last run, None where unknown; missing:
    one line for each thing without which it cannot finish; values: what papermill injects; digests:
    what the results follow from; cost: of the stages that no notebook before it runs, None where
    nobody has worked it out.
    """

    notebook: str
    state: str
    why: str
    estimate_s: float | None
    missing: tuple[str, ...]
    values: dict
    digests: dict[str, str]
    cost: Cost | None = None

    @property
    def number(self) -> str:
        """The number in the notebook's name ("05")."""
        return self.notebook.partition("_")[0]


def weighed(profile: str, planned: Sequence[PlannedNotebook]) -> list[PlannedNotebook]:
    """`planned` with the cost of each notebook that will run, and with all that keeps the run from
    finishing here in the `missing` of the first of them. A stage that several notebooks share
    counts in the first.

    Raises:
        ParameterError: the profile lacks what a notebook needs.
    """
    runs = runs_dir()
    here, workers, on_ray = this_machine(runs), 0, False
    seen, todo, costs, found = set(), [], [], []
    for each in planned:
        if each.state != WILL_RUN:
            found.append(each)
            continue
        params = check(each.notebook, each.values)
        stages = stages_of(each.notebook, params)
        # A key takes a look at all code: not for stages of a kind that never ran.
        new = [
            stage
            for digest, stage in stages.items()
            if digest not in seen and not ((runs / stage.name).is_dir() and is_done(stage, runs))
        ]
        seen |= stages.keys()
        mine = [cost_of(stage) for stage in new]
        todo, costs = todo + new, costs + mine
        on_ray |= bool(new) and isinstance(params.workers, str)
        if new and runs_here(params.workers):
            asked = params.workers if isinstance(params.workers, int) else 0
            # Who counts less shares the first places.
            workers = max(workers, asked or len(here.gpus) or here.cores)
        found.append(replace(each, cost=sum(mine, Cost())))
    with_verl = [stage for stage in todo if "cluster" in stage.params]
    lines = missing_of(profile, todo)
    lines += filter(None, (too_long(profile, stage) for stage in with_verl))
    # With verl, which stands on Ray, both are one lack.
    if on_ray and "ray" not in here.packages and not with_verl:
        lines.append(f"Ray is not installed: {INSTALL_RAY}")
    computes = dict.fromkeys(
        Compute(**stage.params["compute"]) for stage in todo if "compute" in stage.params
    )
    clusters = {repr(cluster): cluster for cluster in map(cluster_of_stage, with_verl)}
    lines += refusals(
        profile,
        list(computes),
        costs,
        here if workers or not todo else a_node(here),
        workers=workers or 1,
        clusters=list(clusters.values()),
    )
    # Each line once: those of the whole run at the first notebook that will run.
    said: dict[str, None] = {}
    for place, each in enumerate(found):
        mine = each.missing
        if each.state == WILL_RUN:
            mine, lines = (*mine, *lines), []
        found[place] = replace(each, missing=tuple(dict.fromkeys(x for x in mine if x not in said)))
        said |= dict.fromkeys(mine)
    return found


def describe(planned: Sequence[PlannedNotebook]) -> str:
    """The plan for the terminal: a line for each notebook and one for their sum, what the costs
    assume, why notebooks run, and what is missing.

    >>> print(describe([PlannedNotebook("05_clipping", "will run", "forced", 90.0, (), {}, {})]))
    notebook    state     time sampled trained   FLOP  GPU h  memory    disk
    05_clipping run      2 min
    Why: forced (05)
    """
    if not planned:
        return ""
    costs = [each.cost for each in planned if each.cost is not None and each.cost.gpu_s]
    total = sum(costs, Cost())
    rows = [("notebook", "state", "time", "sampled", "trained", "FLOP", "GPU h", "memory", "disk")]
    for each in planned:
        time = "" if each.state == CACHED else rough(each.estimate_s).removeprefix("about ")
        state = each.state.removeprefix("will ")
        rows.append((each.notebook, state, time, *_cells(each.cost or Cost())))
    rows += [("in all", "", "", *_cells(total))] if costs else []
    width = max(len(row[0]) for row in rows)
    lines = [
        " ".join([f"{name:<{width}} {state:<6}", *map("{:>{}}".format, cells, _WIDTHS)]).rstrip()
        for name, state, *cells in rows
    ]
    if costs:
        lines += _notes(total)
    for why in dict.fromkeys(each.why for each in planned if each.why):
        numbers = [each.number for each in planned if each.why == why]
        lines.append(f"Why: {why} ({' '.join(numbers)})")
    asked = [each.values.get("workers") for each in planned if each.state == WILL_RUN]
    for cluster in dict.fromkeys(each for each in asked if isinstance(each, str)):
        lines.append(f"Stages run on {in_words(cluster)}.")
    lines += [f"missing: {line}" for each in planned for line in each.missing]
    return "\n".join(lines)


_WIDTHS = (7, 7, 7, 6, 6, 7, 7)


def _cells(cost: Cost) -> tuple[str, ...]:
    return (
        rounded(cost.sampled),
        rounded(cost.trained),
        f"{cost.flops:.1e}".replace("e+", "e") if cost.flops else "",
        short(cost.gpu_s / 3600) if cost.gpu_s else "",
        readable(cost.memory) if cost.memory else "",
        readable(cost.disk + cost.scratch) if cost.disk else "",
    )


def _notes(total: Cost) -> list[str]:
    """What stands below the sum: most tokens, the runs of verl, what is assumed and not known."""
    most = [
        f"{rounded(tokens)} {what}"
        for tokens, what in ((total.sampled_most, "sampled"), (total.trained_most, "trained on"))
        if tokens
    ]
    lines = [f"At most {', '.join(most)}."] if most else []
    if total.nodes:
        lines.append(
            f"verl: {short(total.wall_s / 3600)} hours on {total.nodes} x "
            f"{total.gpus // total.nodes} GPUs, one run after the other, {CLUSTER_S:g} s "
            "to start each;\nnetwork and saving are not counted; memory is that of one GPU."
        )
    lines.append(ASSUMED)
    if total.unknown:
        lines.append(f"Tokens alone, as no file says their shape: {', '.join(total.unknown)}.")
    if total.unsized:
        lines.append(
            f"{WINDOW_SIZE} problems, as no file says how many: {', '.join(total.unsized)}."
        )
    return lines


def rounded(tokens: float) -> str:
    """Two or three digits, without an exponent; "" for none.

    >>> rounded(0), rounded(3.4e5), rounded(9.5e6), rounded(1.4e9), rounded(5.08e10)
    ('', '0.34 M', '9.5 M', '1,400 M', '50.8 B')
    """
    if tokens >= 1e10:
        return f"{tokens / 1e9:,.1f} B"
    digits = 0 if tokens >= 1e8 else 1 if tokens >= 1e6 else 2
    return f"{tokens / 1e6:,.{digits}f} M" if tokens else ""


def counted(missing: list[str]) -> list[str]:
    """One lack alone, or several below their number."""
    if len(missing) == 1:
        return missing
    return [f"{len(missing)} things keep this run from finishing:", *missing]
