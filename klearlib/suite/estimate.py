"""What a stage costs, from its own parameters: tokens, floating-point operations, seconds of a GPU,
and the memory of a device of this machine. Nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path

from klearlib.experiments.benchmarks import WINDOW_SIZE
from klearlib.experiments.origins.real import ASSUMED_PROBLEMS
from klearlib.experiments.rl_stages import CLUSTER_S
from klearlib.experiments.rule_grid import PARTS
from klearlib.policy.compute import Compute
from klearlib.policy.memory import LEAST_TOKENS, activation_bytes, sampling_bytes, state_bytes
from klearlib.policy.shape import ModelShape
from klearlib.run.stage import Stage
from klearlib.scale.cluster import cluster_of_stage

CPU_FLOPS = 1e11
"""Measured: FLOP/s of a core in training and sampling, by the FLOP of the plan: 3e10 to 1e11 in the
notebooks of mini and full, 1.3e11 in RL on SmolLM2-135M, both cores busy."""

# One H100 SXM by NVIDIA's data sheet: FLOP/s in bf16 without sparsity, bytes/s of its memory.
GPU_FLOPS, GPU_BANDWIDTH = 989e12, 3.35e12
ROWS_AT_ONCE = 256  # responses that a rollout engine of verl samples at once

# Everything below is assumed, not measured.
TRAINING_SHARE = 0.35  # of the peak, in training
SAMPLING_SHARE = 0.5  # of the memory's bandwidth and of the peak, in a step of sampling
# Minimum seconds per layer in a step of sampling (kernels started one by one from Python, or
# replayed as a CUDA graph), and in a forward and backward pass.
LAYER_STEP_S, LAYER_PASS_S = {"transformers": 6e-4, "vllm": 5e-5}, 3e-3
STAGE_S = 15.0  # to start a stage's process, including imports and model
PROMPT_TOKENS = 100
RESPONSE_SHARE, EXAMPLE_SHARE = 0.5, 0.3  # mean length, of a response's budget, of the longest text
COUNTED = 2**26  # bytes of a file whose lines are counted
ALL_EXAMPLES = 750_000  # per domain, if all are learnt: half of the paper's 1.5 million


@dataclass(frozen=True)
class Cost:
    """What stages cost together; the memory is that of the largest."""

    sampled: float = 0.0  # tokens, as assumed
    trained: float = 0.0
    flops: float = 0.0
    gpu_s: float = 0.0  # seconds of one GPU
    here_s: float = 0.0  # on this machine, for the stages of a notebook together
    memory: int = 0  # bytes at once on the machine or one GPU; 0 for a run of verl

    def __add__(self, other: Cost) -> Cost:
        names = ("sampled", "trained", "flops", "gpu_s", "here_s")
        summed = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Cost(**summed, memory=max(self.memory, other.memory))


@dataclass(frozen=True)
class Setup:
    """A model, how a device computes with it, and over how many GPUs verl spreads it."""

    shape: ModelShape
    compute: Compute
    prompt: int = PROMPT_TOKENS
    gpus: int = 1
    by_verl: bool = False


def setup_of(stage: Stage) -> Setup:
    """The model that a stage computes with, and on what."""
    shape, positions = model_of_stage(stage)
    budget = stage.params.get("settings", stage.params).get("max_new_tokens", 0)
    room = positions - budget  # none if YaRN makes the room
    prompt = min(PROMPT_TOKENS, room) if room > 0 else PROMPT_TOKENS
    prompt = int(min(prompt, _mean_tokens(stage.inputs.get("world"))))
    if "cluster" not in stage.params:
        return Setup(shape, Compute(**stage.params["compute"]), prompt)
    cluster = cluster_of_stage(stage)
    names = {each.name for each in fields(Compute)} & {each.name for each in fields(cluster)}
    same = {name: getattr(cluster, name) for name in names}
    tokens = {"micro_batch_tokens": cluster.max_tokens_per_gpu, "pack_tokens": None}
    compute = Compute(engine="vllm", batch_rows=ROWS_AT_ONCE, **tokens, **same)
    return Setup(shape, compute, prompt, cluster.num_gpus, by_verl=True)


def model_of_stage(stage: Stage) -> tuple[ModelShape, int]:
    """Shape and positions of the model that a stage makes or trains, by what first made it."""
    while stage.target in RULES and RULES[stage.target][1]:
        stage = stage.inputs[RULES[stage.target][1]]
    params = stage.params
    if stage.target == "klearlib.real.model:link_model":
        return ModelShape(**params["shape"]), params["positions"]
    if stage.target == "klearlib.miniature.base:pretrain":
        names = {each.name for each in fields(ModelShape)} - {"tie_word_embeddings"}
        shape = ModelShape(tie_word_embeddings=True, **{name: params[name] for name in names})
        return shape, params["max_positions"]
    raise KeyError(stage.target)


def cost_of(stage: Stage) -> Cost:
    """The cost of one stage, without the stages that it needs; none without a model.

    Raises KeyError: a kind of stage that computes with a model and has no rule here.
    """
    if not {"compute", "cluster"} & stage.params.keys():
        return Cost()
    cost = RULES[stage.target][0](stage, setup_of(stage))
    return cost + Cost(gpu_s=STAGE_S) if cost.flops else cost


def sampling(setup: Setup, *, calls: int, rows: int, budget: int) -> Cost:
    """`calls` times `rows` responses of up to `budget` tokens, dealt out to all engines; a call
    lasts as long as the engine with the most of them.

    A step takes the longest of: starting its kernels, reading weights and cache, and computing; all
    GPUs of an engine (`tensor_parallel`) read and compute their parts at once. There are as many
    steps as the longest response of each batch has tokens; vLLM starts the next responses as others
    end.
    """
    shape, compute = setup.shape, setup.compute
    if not (sampled := calls * rows * budget * RESPONSE_SHARE):
        return Cost()
    engines = setup.gpus // compute.tensor_parallel
    most = -(-rows // engines)
    batches = -(-most // compute.batch_rows)
    tokens = calls * most * budget * RESPONSE_SHARE
    context = setup.prompt + budget * RESPONSE_SHARE / 2
    flops = tokens * shape.forward_flops(context=context)
    flops += calls * most * setup.prompt * shape.forward_flops(context=setup.prompt / 2)
    rounds = batches if compute.engine == "transformers" else max(1, batches * RESPONSE_SHARE)
    steps = calls * budget * rounds
    word = 2 if compute.precision == "bf16" else 4
    read = steps * word * shape.num_parameters
    read += tokens * context * word * 2 * shape.key_size * shape.num_layers
    seconds = max(
        steps * shape.num_layers * LAYER_STEP_S[compute.engine],
        (read / GPU_BANDWIDTH + flops / GPU_FLOPS) / SAMPLING_SHARE / compute.tensor_parallel,
    )
    memory = sampling_memory(setup, rows=most, budget=budget)
    return Cost(sampled, flops=flops * rows / most, gpu_s=seconds * setup.gpus, memory=memory)


def sampling_memory(setup: Setup, *, rows: int, budget: int, state: int = 0) -> int:
    """Memory of a device while `rows` responses are sampled; state: memory of a training next to
    it, which shares its weights with transformers."""
    if setup.by_verl:
        return 0
    shape, compute, row_tokens = setup.shape, setup.compute, setup.prompt + budget
    if compute.engine == "vllm":  # takes its share of each GPU, and leaves the rest
        needed = sampling_bytes(shape, compute=compute, rows=1, row_tokens=row_tokens)
        share = compute.gpu_memory_share
        return int(max(needed // compute.tensor_parallel / share, state / (1 - share)))
    rows = min(rows, compute.batch_rows)
    how = {"compute": compute, "row_tokens": row_tokens, "trained": state > 0}
    return sampling_bytes(shape, rows=rows, **how) + max(0, state - 4 * shape.num_parameters)


def training(
    setup: Setup, *, tokens: float, longest: int, updates: float, forward_again: bool = False
) -> Cost:
    """`updates` over `tokens` tokens in all, in sequences of up to `longest`, on all GPUs at once.

    6 operations per parameter and token (8 with gradient checkpointing, which computes the forward
    pass twice; 2 more with `forward_again`, for logp_old), and those of attention. The memory is
    that of weights, gradients and AdamW, and of the activations of a micro-batch: the smallest one
    if memory decides its size.
    """
    shape, compute = setup.shape, setup.compute
    row = compute.pack_tokens or longest
    passes = 3 + compute.gradient_checkpointing + forward_again
    flops = passes * tokens * shape.forward_flops(context=longest * RESPONSE_SHARE / 2)
    micro = compute.micro_batch_tokens
    if not setup.by_verl:
        micro = max(micro, row, LEAST_TOKENS)
    num_passes = updates * max(1.0, tokens / max(updates, 1) / setup.gpus / micro)
    gpu_s = flops / (GPU_FLOPS * TRAINING_SHARE)
    gpu_s += num_passes * shape.num_layers * LAYER_PASS_S * setup.gpus
    memory = 0
    if not setup.by_verl:
        at_once = max(row, compute.micro_batch_tokens or LEAST_TOKENS)
        memory = state_bytes(shape.num_parameters, precision=compute.precision)
        memory += activation_bytes(shape, compute=compute, tokens=at_once, row_tokens=row)
    return Cost(trained=tokens, flops=flops, gpu_s=gpu_s, memory=memory)


def _supervised(stage: Stage, setup: Setup) -> Cost:
    """Pretraining and SFT: examples of up to as many tokens as the model or a packed row takes."""
    params, (_, positions) = stage.params, model_of_stage(stage)
    if params.get("num_steps") is not None:
        examples = params["num_steps"] * params["batch_size"]
    else:
        examples = params["num_epochs"] * _num_examples(stage.inputs["examples"])
    longest = min(positions, setup.compute.pack_tokens or positions)
    mean = min(longest * EXAMPLE_SHARE, _mean_tokens(stage.inputs.get("examples")))
    tokens, updates = examples * mean, examples / params["batch_size"]
    return training(setup, tokens=tokens, longest=longest, updates=updates)


def _num_examples(stage: Stage) -> int:
    if stage.target == "klearlib.curation.select:select":
        if stage.params["size"] is not None:
            return stage.params["size"]
        curated = stage.inputs["responses"].inputs["curated"]
        return _rows_read(curated, ALL_EXAMPLES, stage.params["sources"])
    if stage.target == "klearlib.miniature.joint:build":
        return stage.params["sft_long_maths"]
    return sum(map(_num_examples, stage.inputs.values()))


def _mean_tokens(stage: Stage | None) -> float:
    """The largest average of tokens per row, at four bytes a token, among the local .jsonl files
    that a stage is made from; infinite if there are other files."""
    if stage is None:
        return math.inf
    if (where := stage.arguments.get("location")) is None:
        return max(map(_mean_tokens, stage.inputs.values()), default=math.inf)
    lines = _lines_here(where)
    return (lines and Path(where).stat().st_size / 4 / lines) or math.inf


def _lines_here(location: str) -> int | None:
    """How many lines a short local .jsonl file has; None for any other."""
    file = Path(location)
    is_short = file.suffix == ".jsonl" and file.is_file() and file.stat().st_size < COUNTED
    return file.read_bytes().count(b"\n") if is_short else None


def _rows_read(curated: Stage, most: int, names: Collection[str] | None = None) -> int:
    """How many rows a stage ``curate`` may read of its sources (of `names`, if given): the limits
    of the sources, `most` in all and for a source without a limit. Lines of local files are
    counted."""
    rows = 0
    for source in curated.params["sources"]:
        if names is None or source["alias"] in names:
            data = curated.inputs.get(source.get("input"))
            lines = _lines_here((data and data.arguments.get("location")) or "")
            rows += min(source.get("limit", most), most if lines is None else lines)
    return min(rows, most)


def _rollouts(setup: Setup, settings: dict, *, updates: int, passes: int = 1, **how) -> Cost:
    """The rollouts of all steps are sampled, and trained on this many times."""
    steps, budget = settings["num_steps"], settings["max_new_tokens"]
    rows = settings["num_problems"] * settings["group_size"]
    tokens = passes * steps * rows * (setup.prompt + budget * RESPONSE_SHARE)
    cost = training(setup, tokens=tokens, longest=setup.prompt + budget, updates=updates, **how)
    return cost + sampling(setup, calls=steps, rows=rows, budget=budget)


def _rl(stage: Stage, setup: Setup) -> Cost:
    """Rollouts, benchmarks and the validation set are sampled; rollouts are trained on."""
    settings = stage.params["settings"]
    steps, budget = settings["num_steps"], settings["max_new_tokens"]
    validated = settings["num_validation"] * settings["validation_responses"]
    first = "start_validation" not in stage.inputs  # else separate stages measured the start
    calls = first + -(-steps // settings["eval_every"])
    validations = 1 + first
    if every := settings["validation_every"]:
        validations += 2 + steps // every
    updates = steps * -(-settings["num_problems"] // settings["mini_batch_problems"])
    again = settings["logp_old"] != "sampler"
    cost = _rollouts(setup, settings, updates=updates, forward_again=again)
    cost += sampling(setup, calls=validations, rows=validated, budget=budget)
    cost += _benchmarks(setup, settings, settings["eval_responses"], calls)
    if setup.by_verl:
        return cost + Cost(gpu_s=CLUSTER_S * setup.gpus)
    state = state_bytes(setup.shape.num_parameters, precision="fp32")
    rows = settings["num_problems"] * settings["group_size"]
    return cost + Cost(memory=sampling_memory(setup, rows=rows, budget=budget, state=state))


def _reward_noise(stage: Stage, setup: Setup) -> Cost:
    settings, rewards = stage.params["settings"], len(stage.params["rewards"])
    made = settings["num_steps"] * rewards  # gradients, followed by no update
    return _rollouts(setup, settings, updates=made, passes=rewards)


def _left_out(stage: Stage, setup: Setup) -> Cost:
    settings, parts = stage.params["settings"], len(PARTS)
    rows = settings["num_validation"] * settings["validation_responses"]
    # Of three batches of rollouts, the first trained on as the run would.
    updates = -(-settings["num_problems"] // settings["mini_batch_problems"])
    updates += stage.params["num_updates"] * (1 + parts)
    cost = _rollouts(setup, settings | {"num_steps": 3}, updates=updates, forward_again=True)
    budget = settings["max_new_tokens"]
    return cost + sampling(setup, calls=1 + parts, rows=rows, budget=budget)


def _evaluate(stage: Stage, setup: Setup) -> Cost:
    return _benchmarks(setup, stage.params, stage.params["num_responses"])


def _benchmarks(setup: Setup, asked: dict, each: int, calls: int = 1) -> Cost:
    """`each` responses to every problem of the evaluated benchmarks, `calls` times; one to those of
    the benchmarks that decide claims, every other time."""
    total = Cost()
    for kind, responses, times in (("benchmarks", each, calls), ("deciding", 1, -(-calls // 2))):
        for size in asked.get(kind, {}).values():
            rows = (WINDOW_SIZE if size is None else size) * responses
            total += sampling(setup, calls=times, rows=rows, budget=asked["max_new_tokens"])
    return total


def _respond(stage: Stage, setup: Setup) -> Cost:
    params, problems = stage.params, stage.inputs["problems"]
    if problems.target == "klearlib.curation.curate:curate":
        count = problems.inputs["sources"].params["num_pool"]
    elif (count := problems.params["num_train_problems"]) is None:
        count = _rows_read(problems.inputs["problems"], ASSUMED_PROBLEMS)
    rows = count * params["num_responses"]
    return sampling(setup, calls=1, rows=rows, budget=params["max_new_tokens"])


RULES: dict[str, tuple[Callable[[Stage, Setup], Cost], str]] = {
    "klearlib.miniature.base:pretrain": (_supervised, ""),
    "klearlib.sft.train:train_sft": (_supervised, "base"),
    "klearlib.rl.train:train_rl": (_rl, "sft"),
    "klearlib.scale.stage:train_rl": (_rl, "sft"),
    "klearlib.rl.reward_noise:compare_rewards": (_reward_noise, "sft"),
    "klearlib.rl.left_out:leave_corners_out": (_left_out, "rl"),
    "klearlib.evaluate.harness:evaluate_benchmarks": (_evaluate, "model"),
    "klearlib.curation.responses:respond": (_respond, "model"),
}
"""Target of a stage with a model -> (rule of its cost, the input that the model comes from)."""
