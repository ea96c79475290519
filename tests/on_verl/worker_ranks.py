"""verl's own worker in processes of a gloo group, without Ray: what it makes of each case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from composed import lines
from cpu_settings import OVERRIDES
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from small_cluster import small_cluster
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.utils.padding import response_from_nested
from worker_cases import CASES, Case

from klearlib.records import Group
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rollouts import form_batch, mini_batches, num_positive_tokens
from klearlib.scale.configuration import compose
from klearlib.scale.layout import (
    Layout,
    lay_out,
    row_fields,
    token_fields,
    update_words,
    with_trainer_logprobs,
)
from klearlib.scale.loss import add_sums, klear_loss

_END = 1  # the token of filling rows


def run_rank(rank: int, num_ranks: int, work: Path, names: Sequence[str]) -> None:
    """One rank of a group of `num_ranks`; rank 0 writes what each case gave.

    work: holds ``model`` and ``steps.pt``, the groups of `worker_cases.groups_of_steps`; gets
    ``ranks-<num_ranks>.pt``: for each case the sums of its steps, the loss of each
    update, and the weights.
    """
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # unused: the group is there
    dist.init_process_group(
        "gloo", init_method=f"file://{work}/group-{num_ranks}", rank=rank, world_size=num_ranks
    )
    steps = torch.load(work / "steps.pt", weights_only=False)
    config = compose(_overrides(CASES[names[0]], work))
    worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    found = {name: _run(CASES[name], worker, config, steps, work) for name in names}
    if rank == 0:
        torch.save(found, work / f"ranks-{num_ranks}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _overrides(case: Case, work: Path) -> list[str]:
    cluster = small_cluster(gpus_per_node=dist.get_world_size(), overrides=OVERRIDES)
    return lines(work / "model", rule=case.spec, settings=case.settings, cluster=cluster)


def _run(
    case: Case, worker, config: DictConfig, steps: Sequence[Sequence[Group]], work: Path
) -> tuple[list[UpdateSums], list[float], dict[str, torch.Tensor]]:
    """The sums of each step, the loss of each update, and the weights at the end, from the weights
    that were saved."""
    settings = case.settings
    for each in OverridesParser.create().parse_overrides(_overrides(case, work)):
        if each.key_or_group.startswith("actor_rollout_ref.actor."):
            OmegaConf.update(config, each.key_or_group, each.value(), force_add=True)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    engine = worker.actor.engine
    engine.optimizer_config = actor.optim
    engine.engine_config.max_token_len_per_gpu = case.tokens_per_pass
    engine.engine_config.infer_max_token_len_per_gpu = case.tokens_per_pass
    worker.actor.reset()
    worker.set_loss_fn(partial(klear_loss, config=actor, max_tokens=settings.max_new_tokens))
    sums, losses = [], []
    for groups in case.groups(steps):
        sums.append(UpdateSums(Mismatch(max_tokens=settings.max_new_tokens)))
        losses += _step(worker, groups, settings, sums[-1])
    weights = {name: value.clone() for name, value in engine.get_per_tensor_param()[0]}
    return sums, losses, weights


def _step(worker, groups: Sequence[Group], settings, sums: UpdateSums) -> list[float]:
    """What `klearlib.scale.trainer` has verl's workers do in one step; the loss of each update."""
    parts = mini_batches(form_batch(groups, settings), settings)
    num_ranks = dist.get_world_size()
    layout = lay_out(parts, num_ranks=num_ranks)
    from_sampler = settings.logp_old == "sampler"
    if not from_sampler:
        logprobs = _trainer_logprobs(worker, layout, settings)
        cap, mismatch = settings.sampler_correction, sums.mismatch
        parts = with_trainer_logprobs(layout, parts, logprobs, cap=cap, mismatch=mismatch)
        layout = lay_out(parts, num_ranks=num_ranks)
    fields = row_fields(layout, parts, count_mismatch=from_sampler)
    share = _own_share(layout, settings, fields, **update_words(layout))
    metrics = tu.get(worker.update_actor(share), "metrics")
    add_sums(sums, metrics)
    sums.num_positive_tokens += sum(map(num_positive_tokens, parts))
    return metrics["loss"]


def _trainer_logprobs(worker, layout: Layout, settings) -> list[torch.Tensor]:
    """Of each row of the layout."""
    share = _own_share(layout, settings, {}, compute_loss=False)
    mask = share["response_mask"]
    output = worker.compute_log_prob(share)
    own = list(response_from_nested(output["log_probs"], mask).unbind())
    shares: list = [None] * dist.get_world_size()
    dist.all_gather_object(shares, own)
    return [each for values in shares for each in values]


def _own_share(layout: Layout, settings, fields: dict[str, torch.Tensor], **told) -> TensorDict:
    """This rank's rows, as `klearlib.scale.trainer` and verl's dispatch give them to it."""
    data = TensorDict(token_fields(layout, end_token=_END) | fields, batch_size=len(layout.rows))
    share = tu.chunk_tensordict(data, dist.get_world_size())[dist.get_rank()]
    tu.assign_non_tensor(share, calculate_entropy=True, temperature=settings.temperature, **told)
    return share
