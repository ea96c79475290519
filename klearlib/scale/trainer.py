"""verl's synchronous trainer with the step of `klearlib.rl.train`: the same batch, filter,
mini-batches, objective, metrics and evaluations. verl samples, shards, updates and saves.

verl's processes find this module by ``VERL_USE_EXTERNAL_MODULES``, which they import before they do
anything; what does not load ends a process with its error. It brings with it all that verl finds by
name: the trainer, `klearlib.scale.sampling`'s agent loop, `klearlib.scale.policy_losses`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass

from klearlib.data.problems import read_problems
from klearlib.errors import KlearError
from klearlib.policy.prompts import end_ids
from klearlib.records import Response
from klearlib.rl.metrics import UpdateSums, step_metrics, step_timings
from klearlib.rl.mismatch import Mismatch, require_finite
from klearlib.rl.rollouts import Row, form_batch, mini_batches, num_positive_tokens
from klearlib.rl.samples import draw_samples
from klearlib.rl.schedule import evaluation_is_due, evaluations, learning_rate
from klearlib.rl.settings import RLSettings
from klearlib.scale.driver import EVALUATION, SAVED, STEP, STOPPED
from klearlib.scale.layout import lay_out, row_fields, update_words, with_trainer_logprobs
from klearlib.scale.loss import add_sums, klear_loss
from klearlib.scale.sampling import ServerEngine
from klearlib.scale.trajectories import TOKEN_FIELDS, Trajectories, groups_of, stored_rows


class WatchfulBuffer(ReplayBuffer):
    """The synchronous buffer, which waits until every group of the step has ended.

    Groups are neither filtered nor refilled here. verl waits for ever for a group whose worker has
    died, and for all others where one has failed; this one raises an error at once. watched: the
    Ray actors that draw the rollouts, asked for when the first wait begins.
    """

    def __init__(self, watched: Callable[[], Sequence]):
        super().__init__(
            trainer_mode="sync",
            trainer_config=None,
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs=None,
            poll_interval=0.1,
        )
        self._watched = watched
        self._asked: list = []

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if not self._asked:
            self._asked = [actor.__ray_ready__.remote() for actor in self._watched()]
        if failed := self.failure_keys[partition_id]:
            raise KlearError(
                f"{len(failed)} groups of rollouts could not be drawn or judged, and the log above "
                "says why; running again goes on from the last checkpoint"
            )
        answered, self._asked = ray.wait(
            self._asked, num_returns=len(self._asked), timeout=0, fetch_local=False
        )
        ray.get(answered)  # raises where the actor is dead
        return super()._wait_for_next_poll(partition_id, last_debug_time)


@register_trainer("klear")
class KlearTrainer(PPOTrainerSync):
    """The trainer that ``trainer.v1.trainer_mode=klear`` names; reads ``klear`` of the
    configuration, see `klearlib.scale.configuration`."""

    def __init__(self, config):
        own = OmegaConf.to_container(config.klear, resolve=True)
        self._settings = RLSettings(**own["settings"])
        self._seed, self._world = own["seed"], Path(own["world"])
        self._problems = read_problems(Path(own["problems"]))
        self._mailbox = ray.get_actor(own["receiver"])
        self._updated_steps = own["updated_steps"]
        super().__init__(config)
        self._actor_config = omega_conf_to_dataclass(config.actor_rollout_ref.actor)

    def _build_replay_buffer(self):
        # The base class asks what it does by the names of its own modes.
        self.trainer_mode = "sync"
        return WatchfulBuffer(watched=lambda: self.agent_loop_manager.agent_loop_workers)

    def _init_tokenizer(self):
        super()._init_tokenizer()
        told = omega_conf_to_dataclass(self.config.actor_rollout_ref.model)
        # What end_ids and chat_prompts ask of a model.
        self._model = SimpleNamespace(
            config=told.hf_config, generation_config=told.generation_config
        )
        self._ends = frozenset(end_ids(self._model, self.tokenizer))

    def on_init_end(self):
        loss = partial(
            klear_loss, config=self._actor_config, max_tokens=self._settings.max_new_tokens
        )
        self.actor_rollout_wg.set_loss_fn(loss)
        super().on_init_end()

    def on_train_begin(self):
        if self.global_steps == 1:
            self._evaluate(step=0)

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        begun = time.perf_counter()
        batch, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id="train", batch_size=sample_batch_size
        )
        self.on_sample_end()
        settings = self._settings
        found = groups_of(
            batch,
            self._problems,
            settings,
            step=self.global_steps,
            ends=self._ends,
            tokenizer=self.tokenizer,
        )
        require_finite([group.responses for group in found.groups], engine="verl")
        sampled = time.perf_counter()
        rollouts = form_batch(found.groups, settings)
        sums = UpdateSums(Mismatch(max_tokens=settings.max_new_tokens))
        parts = mini_batches(
            rollouts,
            mini_batch_problems=settings.mini_batch_problems,
            positives=settings.positives,
        )
        if parts:
            batch = self._update(batch, parts, found, sums)
        self._seen = rollouts, sums
        self._seconds = sampled - begun, time.perf_counter() - sampled
        return batch

    def _update(
        self,
        batch: KVBatchMeta,
        parts: list[list[Row]],
        found: Trajectories,
        sums: UpdateSums,
    ) -> KVBatchMeta:
        """All updates of the step in one call of verl's workers; the batch with what fills it."""
        settings = self._settings
        layout = lay_out(parts, num_ranks=self._num_ranks())
        ordered, filling = stored_rows(batch, layout, found, end_token=self.tokenizer.eos_token_id)
        from_sampler = settings.logp_old == "sampler"
        if not from_sampler:
            ordered.extra_info["temperature"] = settings.temperature
            self._compute_old_log_prob(ordered, metrics={})
            name = "old_log_probs"
            data = tq.kv_batch_get(
                keys=ordered.keys, partition_id=ordered.partition_id, select_fields=[name]
            )
            logprobs = [logp.tolist() for logp in data[name].unbind()]
            cap, mismatch = settings.sampler_correction, sums.mismatch
            parts = with_trainer_logprobs(layout, parts, logprobs, cap=cap, mismatch=mismatch)
            layout = lay_out(parts, num_ranks=self._num_ranks())  # in the same order
        fields = row_fields(layout, parts, count_mismatch=from_sampler)
        tq.kv_batch_put(
            keys=ordered.keys,
            partition_id=ordered.partition_id,
            fields=TensorDict(fields, batch_size=len(ordered.keys)),
        )
        # Not all of a row, which has its tests, its verdict and its prompt's text as well.
        ordered.fields = [*TOKEN_FIELDS, *fields]
        ordered.extra_info.update(update_words(layout, temperature=settings.temperature))
        output = self.actor_rollout_wg.update_actor(ordered)
        add_sums(sums, output["metrics"], alpha=settings.alpha)
        sums.num_positive_tokens += sum(map(num_positive_tokens, parts))
        return KVBatchMeta(
            partition_id=batch.partition_id,
            keys=[*batch.keys, *filling.keys],
            tags=[*batch.tags, *filling.tags],
        )

    def _num_ranks(self) -> int:
        """Data-parallel ranks of the actor."""
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return max(group._dispatch_info["actor"]) + 1

    def on_step_end(self):
        step, settings = self.global_steps, self._settings
        last, stop = step == settings.num_steps, ray.get(self._mailbox.stop_requested.remote())
        due = last or stop or step % settings.checkpoint_every == 0
        if due:  # while the rollout engines sleep, as verl's own loop does
            self._save_checkpoint()
        super().on_step_end()
        begun = time.perf_counter()
        if evaluation_is_due(settings, step):
            self._evaluate(step=step)
        rollouts, sums = self._seen
        sampling_s, training_s = self._seconds
        # verl's schedule moves with the steps that update.
        self._updated_steps += bool(sums.num_tokens)
        line = step_metrics(
            rollouts,
            sums,
            step=step,
            learning_rate=learning_rate(settings, max(1, self._updated_steps)),
        )
        timings = step_timings(
            step=step,
            sampling_s=sampling_s,
            verifying_s=0.0,
            training_s=training_s,
            evaluating_s=time.perf_counter() - begun,
            num_sampled=sum(len(r.token_ids) for group in rollouts.groups for r in group.responses),
            num_trained=sums.num_tokens,
            engine_restarts=0,
            memory_halvings=0,
        )
        self._line = line
        sampled = step == 1 or evaluation_is_due(settings, step)
        how = {"seed": self._seed, "step": step, "text_of": self._text_of}
        samples = draw_samples(rollouts, **how) if sampled else []
        self._tell(STEP, (line, timings, samples))
        if due:
            self._tell(SAVED, step)
        if stop and not last:
            self._tell(STOPPED, step)
            self.total_training_steps = step

    def _text_of(self, response: Response) -> str:
        return self.tokenizer.decode(list(response.token_ids), skip_special_tokens=True)

    def _evaluate(self, *, step: int) -> None:
        engine = ServerEngine(
            self.get_llm_client(),
            self.tokenizer,
            self._model,
            setting={"engine": f"verl {self.config.actor_rollout_ref.rollout.name}"}
            | {"precision": self.config.klear.precision},
        )
        records = evaluations(engine, self._world, self._settings, seed=self._seed, step=step)
        for name, record in records.items():
            self._tell(EVALUATION, (step, name, record))

    def _tell(self, kind: str, content: object) -> None:
        ray.get(self._mailbox.put.remote(kind, content))

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        """What verl's loggers get: our own line of the step."""
        metrics.update({name: value for name, value in self._line.items() if value is not None})
