"""One notebook of a plan, and the plan as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klearlib.run.cost import (
    CLUSTER_S,
    EXAMPLE_SHARE,
    GPU_BANDWIDTH,
    GPU_FLOPS,
    LAYER_STEP_S,
    LOGITS_COPIES,
    PADDED,
    RESPONSE_SHARE,
    ROWS_AT_ONCE,
    SAMPLING_SHARE,
    STAGE_S,
    TRAINING_SHARE,
    WINDOW_SIZE,
    Cost,
)
from klearlib.run.progress import rough
from klearlib.scale.address import in_words as cluster_in_words

CACHED, WILL_RUN = "cached", "will run"

ASSUMED = f"""\
GPU hours are those of one H100 ({GPU_FLOPS / 1e12:.0f} TFLOP/s in bf16 and \
{GPU_BANDWIDTH / 1e12:.2f} TB/s by its data sheet), by assumption: training at \
{TRAINING_SHARE:.0%} of the peak,
sampling at {SAMPLING_SHARE:.0%} of the bandwidth and at least \
{1e3 * LAYER_STEP_S["transformers"]:g} ms a layer and token (transformers) or \
{1e3 * LAYER_STEP_S["vllm"]:g} ms (vLLM), {STAGE_S:g} s to start a stage;
responses take {RESPONSE_SHARE:.0%} of their budget and examples {EXAMPLE_SHARE:.0%} of the \
longest. Judging answers and programs, on cores, comes on top."""

ASSUMED_OF_VERL = f"""\
Runs of verl take the whole Ray cluster, one after the other: {CLUSTER_S:g} s to start each, its \
weights, gradients and AdamW spread over all GPUs, training
at the same share of all their peaks, {ROWS_AT_ONCE} responses at once on a rollout engine, the \
logits of a pass whole, {LOGITS_COPIES} times, and {PADDED} places in it for each token without \
flash attention. What the network and
saving take is not counted. Memory is that of one GPU."""


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


def describe(planned: Sequence[PlannedNotebook]) -> str:
    """The plan as a table for the terminal; what is missing has lines of its own, and so have the
    costs, with their sum and what they assume at the end.

    >>> print(describe([PlannedNotebook("05_clipping", "will run", "forced", 90.0, (), {}, {})]))
    05_clipping  will run  about 2 min  forced
    """
    width = max((len(each.notebook) for each in planned), default=0)
    lines = []
    for each in planned:
        cost = "" if each.state == CACHED else rough(each.estimate_s)
        line = f"{each.notebook:<{width}}  {each.state:<8}  {cost:<11}  {each.why}"
        lines.append(line.rstrip())
        if each.cost is not None and each.cost.gpu_s:
            lines.append(f"{'':<{width}}  {in_words(each.cost)}")
        lines += [f"{'':<{width}}  missing: {line}" for line in each.missing]
    asked = [each.values.get("workers") for each in planned if each.state == WILL_RUN]
    for cluster in dict.fromkeys(each for each in asked if isinstance(each, str)):
        lines.append(f"Stages run on {cluster_in_words(cluster)}.")
    costs = [each.cost for each in planned if each.cost is not None and each.cost.gpu_s]
    if costs:
        total = sum(costs, Cost())
        lines += ["", f"{'in all':<{width}}  {in_words(total)}", ASSUMED]
        if total.unknown:
            lines.append(
                f"Not in the GPU hours, as no file says their shape: {', '.join(total.unknown)}."
            )
        if total.nodes:
            lines.append(ASSUMED_OF_VERL)
        if total.unsized:
            lines.append(
                f"Assumed to have {WINDOW_SIZE} problems, as no file says how many: "
                f"{', '.join(total.unsized)}."
            )
    return "\n".join(lines)


def counted(missing: list[str]) -> list[str]:
    """One lack alone, or several below their number."""
    if len(missing) == 1:
        return missing
    return [f"{len(missing)} things keep this run from finishing:", *missing]


def resuming(
    profile: str, only: Sequence[str], keep_going: bool, workers: int | str | None, jobs: int
) -> str:
    """The command that goes on where this run stops; never --force, which would start over."""
    words = ["klear run --profile", profile]
    words += ["--only", *only] if only else []
    words += ["--keep-going"] if keep_going else []
    words += ["--workers", str(workers)] if workers is not None else []
    words += ["--jobs", str(jobs)] if jobs else []
    return " ".join(words)


def in_words(cost: Cost) -> str:
    """A cost on one line.

    >>> in_words(Cost(sampled=2e6, sampled_most=4e6, flops=3e15, gpu_s=360, memory=2 * 10**9))
    'samples 2.0 M tokens (at most 4.0 M), 3e+15 FLOP, 0.1 GPU hours, memory 2 GB'
    """
    parts = []
    for verb, tokens, most in (
        ("samples", cost.sampled, cost.sampled_most),
        ("trains on", cost.trained, cost.trained_most),
    ):
        if tokens:
            parts.append(f"{verb} {_millions(tokens)} tokens (at most {_millions(most)})")
    parts += [f"{cost.flops:.2g} FLOP", f"{short(cost.gpu_s / 3600)} GPU hours"]
    if cost.nodes:
        nodes = "1 node" if cost.nodes == 1 else f"{cost.nodes} nodes"
        each = f"{nodes} of {cost.gpus // cost.nodes} GPUs"
        parts.append(f"of these verl {short(cost.wall_s / 3600)} hours on {each}")
    parts.append(f"memory {short(cost.memory / 1e9)} GB")
    if cost.disk:
        parts.append(f"disk {short((cost.disk + cost.scratch) / 1e9)} GB")
    return ", ".join(parts)


def short(value: float) -> str:
    """Two digits at least, without an exponent.

    >>> short(0.586), short(9.5), short(1234.5)
    ('0.59', '9.5', '1,234')
    """
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _millions(tokens: float) -> str:
    """Two or three digits, without an exponent."""
    digits = 0 if tokens >= 1e8 else 1 if tokens >= 1e6 else 2
    return f"{tokens / 1e6:,.{digits}f} M"
