"""verl's synchronous trainer with the step of `klearlib.rl.train`: the same problems, rewards,
filter, mini-batches, objective, metrics and evaluations. verl's servers sample; its workers shard,
update and save.

verl's processes find this module through ``VERL_USE_EXTERNAL_MODULES``, which they import before
they do anything; a module that does not load ends a process with its error. This one brings all
that verl finds by name: the trainer, and the losses of `klearlib.scale.policy_losses`.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import ray
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.padding import response_from_nested

from klearlib.data.problems import read_problems
from klearlib.rl import schedule
from klearlib.rl.metrics import UpdateSums, step_metrics, step_timings
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rollouts import Row, form_batch, mini_batches, num_positive_tokens
from klearlib.rl.samples import draw_samples
from klearlib.rl.settings import RLSettings
from klearlib.scale.driver import EVALUATION, MAILBOX, SAVED, STEP, STOPPED
from klearlib.scale.layout import (
    Layout,
    lay_out,
    row_fields,
    token_fields,
    update_words,
    with_trainer_logprobs,
)
from klearlib.scale.loss import add_sums, klear_loss
from klearlib.scale.sampling import ServerEngine
from klearlib.verify.groups import judge_groups


@register_trainer("klear")
class KlearTrainer(PPOTrainerSync):
    """The trainer that ``trainer.v1.trainer_mode=klear`` names; reads ``klear`` of the
    configuration, see `klearlib.scale.configuration`."""

    def __init__(self, config):
        own = OmegaConf.to_container(config.klear, resolve=True)
        self._settings = RLSettings(**own["settings"])
        self._seed, self._world = own["seed"], Path(own["world"])
        self._problems = read_problems(Path(own["problems"]))
        self._updated_steps = own["updated_steps"]
        self._mailbox = ray.get_actor(MAILBOX)
        super().__init__(config)

    def _build_replay_buffer(self):
        self.trainer_mode = "sync"  # the base class compares it with its own modes' names
        return super()._build_replay_buffer()

    def _init_tokenizer(self):
        super()._init_tokenizer()
        described = omega_conf_to_dataclass(self.config.actor_rollout_ref.model)
        self._model = SimpleNamespace(  # what end_ids and chat_prompts need of a model
            config=described.hf_config, generation_config=described.generation_config
        )

    def _init_dataloader(self):
        """None: the step draws its problems itself, as the local run does."""
        self.train_dataloader = SimpleNamespace(state_dict=dict, load_state_dict=lambda state: None)
        self.steps_per_epoch = self.total_training_steps = self._settings.num_steps

    def on_init_end(self):
        config = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        loss = partial(klear_loss, config=config, max_tokens=self._settings.max_new_tokens)
        self.actor_rollout_wg.set_loss_fn(loss)
        super().on_init_end()

    def on_train_begin(self):
        if self.global_steps == 1:
            self._evaluate(step=0)

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        """The rollouts of a step and the updates on them; nothing is left in verl's store."""
        settings, seed, step = self._settings, self._seed, self.global_steps
        begun = time.perf_counter()
        order = schedule.problem_order(len(self._problems), settings, seed=seed, done=step - 1)
        problems = [self._problems[index] for index in islice(order, settings.num_problems)]
        how = schedule.rollout_sampling(settings, seed=seed, step=step)
        responses = self._engine().sample_groups(  # [P][G]
            problems, group_size=settings.group_size, settings=how
        )
        self.on_sample_end()  # the rollout engines sleep
        sampled = time.perf_counter()
        groups = judge_groups(problems, responses, **schedule.judging(settings, seed=seed))
        judged = time.perf_counter()
        rollouts = form_batch(groups, settings)  # the filter, without a refill
        sums = UpdateSums(Mismatch(max_tokens=settings.max_new_tokens))
        parts = mini_batches(rollouts, settings)
        if parts:
            self._update(parts, sums)
        seconds = sampled - begun, judged - sampled, time.perf_counter() - judged
        self._made = rollouts, sums, seconds
        # The base class clears the keys of the step from its store, and takes no empty list.
        return KVBatchMeta(keys=["none"], tags=[{}], partition_id="train")

    def _update(self, parts: list[list[Row]], sums: UpdateSums) -> None:
        """All updates of the step in one call of verl's workers."""
        settings, workers = self._settings, self.actor_rollout_wg
        num_ranks = max(workers._query_dispatch_info("actor")) + 1  # data-parallel ones
        layout = lay_out(parts, num_ranks=num_ranks)
        from_sampler = settings.logp_old == "sampler"
        if not from_sampler:
            data = self._batch(layout, compute_loss=False)
            output = workers.compute_log_prob(data)["log_probs"]
            # Of each row [its response tokens].
            logprobs = response_from_nested(output, data["response_mask"]).unbind()
            cap, mismatch = settings.sampler_correction, sums.mismatch
            parts = with_trainer_logprobs(layout, parts, logprobs, cap=cap, mismatch=mismatch)
            layout = lay_out(parts, num_ranks=num_ranks)  # in the same order
        data = self._batch(layout, **update_words(layout))
        data.update(row_fields(layout, parts, count_mismatch=from_sampler))
        add_sums(sums, tu.get(workers.update_actor(data), "metrics"))
        sums.num_positive_tokens += sum(map(num_positive_tokens, parts))

    def _batch(self, layout: Layout, **words) -> TensorDict:
        data = TensorDict(
            token_fields(layout, end_token=self.tokenizer.eos_token_id),
            batch_size=len(layout.rows),
        )
        words |= {"calculate_entropy": True, "temperature": self._settings.temperature}
        tu.assign_non_tensor(data, **words)
        return data

    def on_step_end(self):
        step, settings = self.global_steps, self._settings
        last, stop = step == settings.num_steps, ray.get(self._mailbox.stop_requested.remote())
        saves = last or stop or step % settings.checkpoint_every == 0
        if saves:  # while the rollout engines sleep, as verl's own loop does
            self._save_checkpoint()
        super().on_step_end()
        begun, measures = time.perf_counter(), bool(schedule.measured(settings, step))
        if measures:
            self._evaluate(step=step)
        rollouts, sums, seconds = self._made
        # verl's schedule moves with the steps that update.
        self._updated_steps += bool(sums.num_tokens)
        rate = schedule.learning_rate(settings, max(1, self._updated_steps))
        self._line = step_metrics(rollouts, sums, step=step, learning_rate=rate)
        timings = step_timings(
            step,
            (*seconds, time.perf_counter() - begun),
            num_sampled=sum(len(r.token_ids) for group in rollouts.groups for r in group.responses),
            num_trained=sums.num_tokens,
        )
        samples = []
        if step == 1 or measures:
            samples = draw_samples(rollouts, seed=self._seed, step=step)
        self._tell(STEP, (self._line, timings, samples))
        if saves:
            self._tell(SAVED, step)
        if stop and not last:
            self._tell(STOPPED, step)
            self.total_training_steps = step

    def _evaluate(self, *, step: int) -> None:
        records = schedule.evaluations(
            self._engine(), self._world, self._settings, seed=self._seed, step=step
        )
        for name, record in records.items():
            self._tell(EVALUATION, (step, name, record))

    def _engine(self) -> ServerEngine:
        rollout, precision = self.config.actor_rollout_ref.rollout, self.config.klear.precision
        setting = {"engine": f"verl {rollout.name}", "precision": precision}
        return ServerEngine(self.get_llm_client(), self.tokenizer, self._model, setting=setting)

    def _tell(self, kind: str, content: object) -> None:
        ray.get(self._mailbox.put.remote(kind, content))

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        """What verl's loggers get: our own line of the step."""
        metrics.update({name: value for name, value in self._line.items() if value is not None})
