"""TRL's side of benchmarks/rl_round.py, run by the interpreter that has TRL.

A round is what `GRPOTrainer` does from one generation to the next: sampling, old log-probabilities,
rewards, and one optimiser update for each mini-batch. Seconds are those of the process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import torch
from datasets import Dataset
from peers import answer, next_task
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

PHASES = ("sampling", "old_logp")


class Timed:
    """What a `GRPOTrainer` gets beside: it adds up the seconds of its phases, and keeps the batch
    and what each update gave."""

    def __init__(self, **keywords) -> None:
        super().__init__(**keywords)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.seen: defaultdict[str, list] = defaultdict(list)

    def _timed(self, phase, function, *arguments, **keywords):
        began = time.process_time()
        result = function(*arguments, **keywords)
        self.seconds[phase] += time.process_time() - began
        return result

    def _generate(self, *arguments, **keywords):
        return self._timed("sampling", super()._generate, *arguments, **keywords)

    def _generate_and_score_completions(self, inputs):
        self.seen.clear()
        self.seen["weights"].append(copied(self.model))
        return super()._generate_and_score_completions(inputs)

    def _get_per_token_logps_and_entropies(self, *arguments, **keywords):
        if torch.is_grad_enabled():
            return super()._get_per_token_logps_and_entropies(*arguments, **keywords)
        return self._timed(
            "old_logp", super()._get_per_token_logps_and_entropies, *arguments, **keywords
        )

    def _prepare_inputs(self, batch):
        inputs = super()._prepare_inputs(batch)
        self.seen["batches"].append(inputs)
        return inputs

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.seen["losses"].append(loss.item())
        return loss


class Rounds(TrainerCallback):
    """Waits for a task before each round and answers after it."""

    def __init__(self, updates: int, trainer_of) -> None:
        self._updates, self._trainer_of = updates, trainer_of

    def on_train_begin(self, args, state, control, **keywords):
        self._begin(control)

    def on_step_end(self, args, state, control, **keywords):
        if state.global_step % self._updates:
            return
        trainer = self._trainer_of()
        total = time.process_time() - self._began
        phases = {phase: trainer.seconds[phase] for phase in PHASES}
        if self._task.get("record"):
            trainer.seen["weights"].append(copied(trainer.model))
            torch.save(dict(trainer.seen), self._task["record"])
        tokens = sum(int(batch["completion_mask"].sum()) for batch in trainer.seen["batches"])
        answer(**phases, training=total - sum(phases.values()), round=total, tokens=tokens)
        self._begin(control)

    def _begin(self, control) -> None:
        self._task = next_task()
        if self._task is None:
            control.should_training_stop = True
        self._trainer_of().seconds.clear()
        self._began = time.process_time()


def copied(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def reward(completion_ids, **_) -> list[float]:
    return [float(sum(ids) % 7) for ids in completion_ids]


def serve(folder: str, precision: str) -> None:
    from trl import GRPOConfig, GRPOTrainer  # klear's environment has it not

    class TimedTrainer(Timed, GRPOTrainer):
        pass

    torch.set_num_threads(1)
    shape = next_task()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = shape["problems"] * shape["group_size"]
    trainer = TimedTrainer(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(Path(folder, "trl")),
            per_device_train_batch_size=rows // shape["updates"],
            steps_per_generation=shape["updates"],
            gradient_accumulation_steps=1,
            num_generations=shape["group_size"],
            max_completion_length=shape["max_tokens"],
            num_iterations=1,
            beta=0.0,
            loss_type="bnpo",  # the mean over the tokens of an update, as long as it is one pass
            learning_rate=shape["learning_rate"],
            lr_scheduler_type="constant",
            max_grad_norm=shape["max_grad_norm"],
            temperature=1.0,
            gradient_checkpointing=False,
            disable_dropout=True,
            use_cpu=True,
            bf16=precision == "bf16",
            shuffle_dataset=False,
            max_steps=10_000 * shape["updates"],
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
        ),
        # As chats, which take the model's template: the random model's adds nothing.
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": prompt}] for prompt in shape["prompts"]]}
        ),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    clip = trainer.accelerator.clip_grad_norm_

    def kept_norm(*arguments, **keywords):
        norm = clip(*arguments, **keywords)
        trainer.seen["grad_norms"].append(float(norm))
        return norm

    trainer.accelerator.clip_grad_norm_ = kept_norm
    trainer.add_callback(Rounds(shape["updates"], lambda: trainer))
    trainer.train()
