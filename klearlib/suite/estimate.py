"""What a stage costs, from its own parameters: tokens, floating-point operations, seconds on a GPU,
memory and disk. Nothing is loaded.

One way of computing holds for a device of this machine and for the GPUs of a Ray cluster, over
which verl spreads a model, with rollout engines on the same GPUs: `Setup` says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from klearlib.experiments.benchmarks import WINDOW_SIZE
from klearlib.experiments.origins.real import ASSUMED_PROBLEMS
from klearlib.experiments.rl_stages import CLUSTER_S
from klearlib.policy.compute import Compute
from klearlib.policy.memory import LEAST_TOKENS, activation_bytes, sampling_bytes, state_bytes
from klearlib.policy.shape import ModelShape
from klearlib.run.stage import Stage
from klearlib.scale.cluster import PACKED, Cluster, cluster_of_stage

# One H100 SXM by NVIDIA's data sheet: FLOP/s in bf16 without sparsity, bytes/s of its memory.
GPU_FLOPS, GPU_BANDWIDTH = 989e12, 3.35e12
# verl's own: responses that a rollout engine samples at once; the copies of a pass's logits, which
# it keeps whole (logits, their log-softmax, its gradient); layers that are gathered on each GPU.
ROWS_AT_ONCE, LOGITS_COPIES, GATHERED_LAYERS = 256, 3, 2

# All below is assumed and not measured.
TRAINING_SHARE = 0.35  # of the peak, in training
SAMPLING_SHARE = 0.5  # of the memory's bandwidth and of the peak, in a step of sampling
# Least seconds of a layer in a step of sampling (kernels started one by one from Python, or
# replayed as a CUDA graph), and in a forward and backward pass.
LAYER_STEP_S, LAYER_PASS_S = {"transformers": 6e-4, "vllm": 5e-5}, 3e-3
STAGE_S = 15.0  # to start the process of a stage, imports and model included

PROMPT_TOKENS = 100
ROW_BYTES = 200  # of a row of a file here, by which its rows are counted without reading it
RESPONSE_SHARE, EXAMPLE_SHARE = 0.5, 0.3  # mean length, of a response's budget, of the longest text
ALL_EXAMPLES = 750_000  # of a domain where all are learnt: half of the paper's 1.5 million
PADDED = 3  # places of a pass for each token where verl pads its rows: but for flash attention

TRAINING, BESIDE_VLLM, VLLM, SAMPLING = "training", "vLLM beside training", "vLLM", "sampling"
"""What a stage does when it needs the most memory."""


@dataclass(frozen=True)
class Cost:
    """What one stage, or several, cost: sums, and what the largest stage alone needs."""

    sampled: float = 0.0  # tokens, as assumed
    sampled_most: float = 0.0  # where every response takes its whole budget
    trained: float = 0.0
    trained_most: float = 0.0
    flops: float = 0.0
    gpu_s: float = 0.0  # seconds of one GPU
    wall_s: float = 0.0  # that runs of verl take one after the other
    disk: int = 0  # bytes of the results that are kept
    # Of the largest stage alone.
    nodes: int = 0  # of its Ray cluster, 0 without one
    gpus: int = 0
    scratch: int = 0  # bytes of its checkpoints while it runs
    memory: int = 0  # bytes at once on its device, the machine or one GPU,
    peak: str = SAMPLING  # when it does this;
    state: int = 0  # of these the weights, gradients and AdamW in a backward pass,
    beside: int = 0  # those that stay while vLLM samples,
    vllm: int = 0  # and the least that vLLM starts with, 0 where transformers samples
    unknown: tuple[str, ...] = ()  # models of no known shape: only their tokens are counted
    unsized: tuple[str, ...] = ()  # how many of what is assumed ("175 problems of aime_2024")

    def __add__(self, other: Cost) -> Cost:
        larger = self if self.memory >= other.memory else other

        def joined(name: str):
            ours, theirs = getattr(self, name), getattr(other, name)
            if name in ("nodes", "gpus", "scratch"):
                return max(ours, theirs)
            if name in ("memory", "peak", "state", "beside", "vllm"):
                return getattr(larger, name)
            return tuple(dict.fromkeys(ours + theirs)) if type(ours) is tuple else ours + theirs

        return Cost(**{each.name: joined(each.name) for each in fields(self)})


@dataclass(frozen=True)
class Setup:
    """A model and what it computes on."""

    shape: ModelShape | None  # None where nothing says it
    compute: Compute  # of a device, or of a rollout engine
    cluster: Cluster | None = None  # of a run of verl, None on this machine
    gpus: int = 1  # that training is spread over
    engines: int = 1  # that sample at once
    prompt_tokens: int = PROMPT_TOKENS  # of the longest prompt


def setup_of_verl(shape: ModelShape | None, cluster: Cluster) -> Setup:
    """A model spread over the GPUs of a run of verl."""
    both = {each.name for each in fields(Compute)} & {each.name for each in fields(Cluster)}
    compute = Compute(
        engine="vllm",
        batch_rows=ROWS_AT_ONCE,
        micro_batch_tokens=cluster.max_tokens_per_gpu,
        pack_tokens=None,
        **{name: getattr(cluster, name) for name in both},
    )
    engines = cluster.num_gpus // cluster.tensor_parallel
    return Setup(shape, compute, cluster, cluster.num_gpus, engines, cluster.prompt_tokens)


def model_of_stage(stage: Stage) -> tuple[ModelShape | None, int, str]:
    """(shape, positions, name) of the model that a stage makes or trains, by what first made it.
    The shape is None where nothing says it; the name is that of a model of the hub, else ""."""
    while stage.target in RULES and RULES[stage.target][1]:
        stage = stage.inputs[RULES[stage.target][1]]
    params = stage.params
    if stage.target == "klearlib.real.model:link_model":
        shape = ModelShape(**params["shape"]) if params["shape"] else None
        return shape, params["positions"], params["model"]
    if stage.target == "klearlib.miniature.base:pretrain":
        names = {each.name for each in fields(ModelShape)} - {"tie_word_embeddings"}
        shape = ModelShape(tie_word_embeddings=True, **{name: params[name] for name in names})
        return shape, params["max_positions"], ""
    raise KeyError(stage.target)


def cost_of(stage: Stage) -> Cost:
    """The cost of one stage, without those that it needs. One without a model costs nothing:
    minutes of a core, and little on disk.

    Raises:
        KeyError: a kind of stage that computes with a model and has no rule here.
    """
    if not {"compute", "cluster"} & stage.params.keys():
        return Cost()
    rule, (shape, _, name) = RULES[stage.target][0], model_of_stage(stage)
    if "cluster" in stage.params:
        cost = rule(stage, setup_of_verl(shape, cluster_of_stage(stage)))
    else:
        cost = rule(stage, Setup(shape, Compute(**stage.params["compute"])))
    if shape is None:
        return cost + Cost(unknown=(name,))
    return cost + Cost(gpu_s=STAGE_S) if cost.flops else cost


def sampling(setup: Setup, *, calls: int, rows: int, budget: int) -> Cost:
    """`calls` times `rows` responses of up to `budget` tokens, dealt out to all engines; a call
    lasts as long as the engine with the most of them. Tokens alone for a model of unknown shape.

    A step takes the longest of: starting its kernels, reading weights and cache, computing, of
    which all GPUs of an engine (`tensor_parallel`) read and compute their parts at once. There are
    as many steps as the longest response of each batch has tokens; vLLM takes up the next responses
    where others end.
    """
    shape, compute, drawn = setup.shape, setup.compute, calls * rows * budget
    cost = Cost(sampled=drawn * RESPONSE_SHARE, sampled_most=drawn)
    if shape is None or not drawn:
        return cost
    most = -(-rows // setup.engines)
    at_once = min(most, compute.batch_rows)
    tokens = calls * most * budget * RESPONSE_SHARE
    context = PROMPT_TOKENS + budget * RESPONSE_SHARE / 2
    flops = tokens * shape.forward_flops(context=context)
    flops += calls * most * PROMPT_TOKENS * shape.forward_flops(context=PROMPT_TOKENS / 2)
    batches = -(-most // at_once)
    rounds = batches if compute.engine == "transformers" else max(1, batches * RESPONSE_SHARE)
    steps = calls * budget * rounds
    # transformers keeps cache and weights as float32, vLLM in the precision.
    word = 2 if compute.precision == "bf16" and compute.engine == "vllm" else 4
    read = steps * word * shape.num_parameters
    read += tokens * context * word * 2 * shape.key_size * shape.num_layers
    seconds = max(
        steps * shape.num_layers * LAYER_STEP_S[compute.engine],
        (read / GPU_BANDWIDTH + flops / GPU_FLOPS) / SAMPLING_SHARE / compute.tensor_parallel,
    )
    cost += Cost(
        flops=flops * rows / most,
        gpu_s=seconds * setup.engines * compute.tensor_parallel,
        wall_s=seconds if setup.cluster else 0.0,
    )
    return cost + sampling_memory(setup, rows=at_once, budget=budget)


def sampling_memory(setup: Setup, *, rows: int, budget: int, in_training: bool = False) -> Cost:
    """Memory while `rows` responses are sampled; in_training: beside the state of a training, of
    which verl leaves nothing there with `offload`."""
    shape, compute, cluster = setup.shape, setup.compute, setup.cluster
    row_tokens = setup.prompt_tokens + budget
    whole = state_bytes(shape.num_parameters, precision="fp32") if in_training else 0
    beside = 0 if cluster and cluster.offload else -(-whole // setup.gpus)
    if compute.engine == "vllm":  # which has its share of each GPU, and leaves the rest
        needed = sampling_bytes(shape, compute=compute, rows=1, row_tokens=row_tokens)
        vllm, share = needed // compute.tensor_parallel, compute.gpu_memory_share
        ours, rest = int(vllm / share), int(beside / (1 - share))
        peak = BESIDE_VLLM if rest > ours else VLLM
        return Cost(memory=max(ours, rest), peak=peak, beside=beside, vllm=vllm)
    at_once = min(rows, compute.batch_rows)
    memory = sampling_bytes(shape, compute=compute, rows=at_once, row_tokens=row_tokens)
    if in_training:  # the weights are those that are trained
        memory += beside - 4 * shape.num_parameters
    return Cost(memory=memory, beside=beside)


def training(
    setup: Setup,
    *,
    tokens: float,
    most: float,
    longest: int,
    updates: float,
    forward_again: bool = False,
) -> Cost:
    """`updates` over `tokens` tokens in all, `most` at most, in sequences of up to `longest`, on
    all GPUs at once.

    6 operations a parameter and token (8 with gradient checkpointing, which computes the forward
    pass twice; 2 more with `forward_again`, for logp_old), and those of attention. The model is
    kept as float32, and two checkpoints of 12 bytes a parameter, weights and AdamW; verl's have the
    weights as a model too.
    """
    shape, compute = setup.shape, setup.compute
    row = compute.pack_tokens or longest
    passes = 3 + compute.gradient_checkpointing + forward_again
    flops = passes * tokens * shape.forward_flops(context=longest * RESPONSE_SHARE / 2)
    micro = compute.micro_batch_tokens
    if not setup.cluster:
        micro = max(micro, row, LEAST_TOKENS)
    num_passes = updates * max(1.0, tokens / max(updates, 1) / setup.gpus / micro)
    seconds = flops / (setup.gpus * GPU_FLOPS * TRAINING_SHARE)
    seconds += num_passes * shape.num_layers * LAYER_PASS_S
    return Cost(
        trained=tokens,
        trained_most=most,
        flops=flops,
        gpu_s=seconds * setup.gpus,
        wall_s=seconds if setup.cluster else 0.0,
        disk=4 * shape.num_parameters,
        scratch=2 * (16 if setup.cluster else 12) * shape.num_parameters,
    ) + training_memory(setup, row=row)


def training_memory(setup: Setup, *, row: int) -> Cost:
    """Memory of a device in a forward and backward pass with rows of `row` tokens.

    Here: weights, gradients and AdamW with autocast's copy, and the activations of a micro-batch,
    of the smallest where the memory decides. With verl: a GPU's share of weights, gradients and
    AdamW; the weights of two layers, embedding and head as they are gathered; the activations of
    `max_tokens_per_gpu` tokens, padded but for flash attention; and their logits.
    """
    shape, compute, extra = setup.shape, setup.compute, 0
    precision = "fp32" if setup.cluster else compute.precision
    state = -(-state_bytes(shape.num_parameters, precision=precision) // setup.gpus)
    tokens = max(row, compute.micro_batch_tokens or LEAST_TOKENS)
    if setup.cluster:
        row = tokens = compute.micro_batch_tokens * (1 if compute.attention == PACKED else PADDED)
        ends = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
        gathered = GATHERED_LAYERS * ((shape.num_parameters - ends) // shape.num_layers) + ends
        word = 2 if compute.precision == "bf16" else 4
        extra = word * (gathered + LOGITS_COPIES * tokens * shape.vocab_size)
    activations = activation_bytes(shape, compute=compute, tokens=tokens, row_tokens=row)
    return Cost(memory=state + activations + extra, peak=TRAINING, state=state)


def _supervised(stage: Stage, setup: Setup) -> Cost:
    """Pretraining and SFT: examples of up to as many tokens as the model, or a packed row, has."""
    params, (_, positions, _) = stage.params, model_of_stage(stage)
    unsized: tuple[str, ...] = ()
    if params.get("num_steps") is not None:
        examples = params["num_steps"] * params["batch_size"]
    else:
        count, unsized = _num_examples(stage.inputs["examples"])
        examples = params["num_epochs"] * count
    longest = min(positions, setup.compute.pack_tokens or positions)
    most, updates = examples * longest, examples / params["batch_size"]
    tokens = most * EXAMPLE_SHARE
    cost = training(setup, tokens=tokens, most=most, longest=longest, updates=updates)
    return cost + Cost(unsized=unsized)


def _num_examples(stage: Stage) -> tuple[int, tuple[str, ...]]:
    """The number, and the assumption where it is one."""
    if stage.target == "klearlib.curation.select:select":
        if stage.params["size"] is not None:
            return stage.params["size"], ()
        curated = stage.inputs["responses"].inputs["curated"]
        return _rows_read(curated, ALL_EXAMPLES, "examples", stage.params["sources"])
    if stage.target == "klearlib.miniature.joint:build":
        return stage.params["sft_long_maths"], ()
    each = [_num_examples(upstream) for upstream in stage.inputs.values()]
    return sum(count for count, _ in each), sum((told for _, told in each), ())


def _rows_read(
    curated: Stage, most: int, what: str, names: Sequence[str] | None = None
) -> tuple[int, tuple[str, ...]]:
    """How many rows a stage ``curate`` may read of its sources, those of `names` where they are
    given: a source's limit, else what a file here of its size may hold; `most` in all, and where a
    source is of the hub. And that in words."""
    count, told = 0, []
    for item in curated.params["sources"]:
        if names is None or item["alias"] in names:
            data = curated.inputs[item["input"]].arguments["location"]
            rows = most if data is None else -(-_bytes_at(Path(data)) // ROW_BYTES)
            count += min(rows, item.get("limit", most))
            told.append(item["alias"])
    count = min(count, most)
    return count, (f"{count:,} {what} of {', '.join(told)}",)


def _bytes_at(place: Path) -> int:
    """Of a file, or of all files of a folder; 0 where nothing is."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def _rl(stage: Stage, setup: Setup) -> Cost:
    """Rollouts, benchmarks and the validation set are sampled; rollouts are trained on."""
    settings = stage.params["settings"]
    steps, budget = settings["num_steps"], settings["max_new_tokens"]
    rollouts = settings["num_problems"] * settings["group_size"]
    validated = settings["num_validation"] * settings["validation_responses"]
    first = "start_validation" not in stage.inputs  # else stages of their own measured the start
    calls = first + -(-steps // settings["eval_every"])
    again = settings["half_cosine"] and setup.cluster is None  # gradients of halves, no update
    passes = steps * (1 + again) * rollouts
    trained = training(
        setup,
        tokens=passes * (PROMPT_TOKENS + budget * RESPONSE_SHARE),
        most=passes * (PROMPT_TOKENS + budget),
        longest=PROMPT_TOKENS + budget,
        updates=steps * -(-settings["num_problems"] // settings["mini_batch_problems"]),
        forward_again=settings["logp_old"] != "sampler",
    )
    cost = trained + sampling(setup, calls=steps, rows=rollouts, budget=budget)
    cost += sampling(setup, calls=1 + first, rows=validated, budget=budget)
    cost += _benchmarks(setup, settings, each=settings["eval_responses"], calls=calls)
    cost += _benchmarks(setup, _deciding(settings), each=1, calls=-(-calls // 2))
    if setup.cluster:
        cost += Cost(wall_s=CLUSTER_S, gpu_s=CLUSTER_S * setup.gpus)
        cost += Cost(nodes=setup.cluster.nodes, gpus=setup.gpus)
    beside = sampling_memory(setup, rows=rollouts, budget=budget, in_training=True)
    # Whatever is the peak, all that a run holds is known.
    return replace(cost + beside, state=trained.state, beside=beside.beside, vllm=beside.vllm)


def _evaluate(stage: Stage, setup: Setup) -> Cost:
    asked = _benchmarks(setup, stage.params, each=stage.params["num_responses"], calls=1)
    return asked + _benchmarks(setup, _deciding(stage.params), each=1, calls=1)


def _deciding(asked: dict) -> dict:
    """The benchmarks that decide claims, in the place of the others."""
    return asked | {"benchmarks": asked.get("deciding", {})}


def _benchmarks(setup: Setup, asked: dict, *, each: int, calls: int) -> Cost:
    """`each` responses to every problem of the benchmarks that are asked for, `calls` times."""
    sizes, budget = asked["benchmarks"], asked["max_new_tokens"]
    unsized = (name for name, size in sizes.items() if size is None and each)
    total = Cost(unsized=tuple(f"{WINDOW_SIZE} problems of {name}" for name in unsized))
    for size in sizes.values():
        rows = (WINDOW_SIZE if size is None else size) * each
        total += sampling(setup, calls=calls, rows=rows, budget=budget)
    return total


def _respond(stage: Stage, setup: Setup) -> Cost:
    params, problems = stage.params, stage.inputs["problems"]
    if problems.target == "klearlib.curation.curate:curate":
        count, unsized = problems.inputs["sources"].params["num_pool"], ()
    elif (count := problems.params["num_train_problems"]) is not None:
        unsized = ()
    else:
        curated = problems.inputs["problems"]
        count, unsized = _rows_read(curated, ASSUMED_PROBLEMS, "problems")
    rows, budget = count * params["num_responses"], params["max_new_tokens"]
    return sampling(setup, calls=1, rows=rows, budget=budget) + Cost(unsized=unsized)


RULES: dict[str, tuple[Callable[[Stage, Setup], Cost], str]] = {
    "klearlib.miniature.base:pretrain": (_supervised, ""),
    "klearlib.sft.train:train_sft": (_supervised, "base"),
    "klearlib.rl.train:train_rl": (_rl, "sft"),
    "klearlib.scale.stage:train_rl": (_rl, "sft"),
    "klearlib.evaluate.harness:evaluate_benchmarks": (_evaluate, "model"),
    "klearlib.curation.responses:respond": (_respond, "model"),
}
"""Target of a stage with a model -> (rule of its cost, the input that the model comes from)."""
