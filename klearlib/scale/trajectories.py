"""The rollouts of a step: from verl's store to our groups, and back to be trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt
from klearlib.records import Group, Problem, Response, Verdict
from klearlib.rl.settings import RLSettings
from klearlib.scale.layout import Layout
from klearlib.scale.problems import verdict_of

TOKEN_FIELDS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
"""What verl's worker reads of a row, beside `klearlib.scale.layout.row_fields`."""
_FIELDS = ["prompts", "responses", "rollout_log_probs", "extra_fields", "extra_info"]


@dataclass(frozen=True)
class Trajectories:
    """The judged groups of a step, in the order in which their problems were drawn, and the store's
    key of each rollout by (group, rollout)."""

    groups: tuple[Group, ...]
    keys: dict[tuple[int, int], str]


def groups_of(
    batch: KVBatchMeta,
    problems: Sequence[Problem],
    settings: RLSettings,
    *,
    step: int,
    ends: Collection[int],
    tokenizer,
) -> Trajectories:
    """All rollouts of `step`, P groups of G; KlearError where one is missing, or is of another
    step: no step trains on fewer rollouts than it drew.

    batch: what verl's replay buffer gave. problems: those that the run's parquet was made of. ends:
    the tokens that end a response.
    """
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
    columns = [list(data[name].unbind()) for name in _FIELDS[:3]]
    # What is no tensor comes in a wrapper.
    columns += [[getattr(value, "data", value) for value in data[name]] for name in _FIELDS[3:]]
    first = (step - 1) * settings.num_problems
    found: dict[tuple[int, int], tuple[Response, Verdict, float]] = {}
    keys: dict[tuple[int, int], str] = {}
    chosen: dict[int, Problem] = {}
    for key, prompt, response, logp, extra, row in zip(batch.keys, *columns, strict=True):
        _, session, _ = key.rsplit("_", 2)
        place = int(row["index"]) - first, int(session)
        problem = chosen[place[0]] = problems[int(row["problem"])]
        if place in found:
            raise KlearError(
                f"step {step} has rollout {place} twice: another run of verl uses this Ray "
                "cluster; wait for it, or use another cluster"
            )
        token_ids = tuple(response.tolist())
        reward = extra["reward_extra_info"]
        keys[place] = key
        found[place] = (
            Response(
                problem_id=problem.id,
                prompt=chat_prompt(tokenizer, problem.prompt)[0],
                prompt_ids=tuple(prompt.tolist()),
                token_ids=token_ids,
                logp=tuple(logp.tolist()),
                text="",  # judged by the reward worker; the trainer decodes the few that are read
                truncated=token_ids[-1] not in ends,
            ),
            verdict_of(reward["verdict"]),
            float(reward["score"]),
        )
    shape = settings.num_problems, settings.group_size
    wanted = {(index, rollout) for index in range(shape[0]) for rollout in range(shape[1])}
    if found.keys() != wanted:
        raise KlearError(
            f"step {step} has {len(found.keys() & wanted)} of its {len(wanted)} rollouts and "
            f"{len(found.keys() - wanted)} of other steps: the others could not be drawn or "
            "judged, and the log above says why; running again goes on from the last checkpoint"
        )
    groups = []
    for index in range(shape[0]):
        members = [found[index, rollout] for rollout in range(shape[1])]
        responses, verdicts, rewards = zip(*members, strict=True)
        groups.append(Group(chosen[index], responses, verdicts, rewards))
    return Trajectories(tuple(groups), keys)


def stored_rows(
    batch: KVBatchMeta, layout: Layout, found: Trajectories, *, end_token: int
) -> tuple[KVBatchMeta, KVBatchMeta]:
    """The rows of `layout` as verl's store knows them, in that order; and those of them, new in the
    store, that only fill up."""
    tags = dict(zip(batch.keys, batch.tags, strict=True))
    keys = [found.keys[row.place] for row in layout.rows if row is not None]
    chosen = KVBatchMeta(
        partition_id=batch.partition_id, keys=keys, tags=[tags[key] for key in keys]
    )
    whole = upsample_batch_to_divisible_size(chosen, len(layout.rows), end_token)
    filling = KVBatchMeta(
        partition_id=batch.partition_id,
        keys=whole.keys[len(keys) :],
        tags=whole.tags[len(keys) :],
    )
    real, filled = iter(range(len(keys))), iter(range(len(keys), len(layout.rows)))
    order = [next(filled if row is None else real) for row in layout.rows]
    ordered = KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[whole.keys[index] for index in order],
        tags=[whole.tags[index] for index in order],
        extra_info={},
    )
    return ordered, filling
