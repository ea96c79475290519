"""One RL step of a profile's notebook 05 on one device: sampling and training apart."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from common import clipping_run
from device_time import line, new_model, new_optimizer, timed

from klearlib.miniature.base import train_tokenizer
from klearlib.params import load
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import save_policy
from klearlib.policy.shape import ModelShape
from klearlib.records import Group, Problem, Response, Verdict
from klearlib.rl.rollouts import form_batch
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.settings import RLSettings
from klearlib.rl.train import train_on


def step(arguments: argparse.Namespace) -> list[dict]:
    """Sampling and updates of one RL step: a row for each, and one for an update."""
    profile = arguments.profile
    params = clipping_run(profile).params
    settings, rule = RLSettings(**params["settings"]), rule_from(params["rule"])
    named = {"engine": arguments.engine} if arguments.engine else {}
    compute = Compute(**params["compute"] | named)
    model, tokenizer = random_policy(profile, compute, arguments.device)
    optimizer = new_optimizer(model)
    problems = [
        Problem(f"p{i}", f"Start with {i} and apply +{i} *{i}.", "1")
        for i in range(settings.num_problems)
    ]
    sampling = SamplingSettings(
        temperature=1.0, top_p=1.0, top_k=0, max_tokens=settings.max_new_tokens, seed=0
    )
    plan = plan_batches(model, compute)

    def train(batch):
        how = {"rule": rule, "settings": settings, "plan": plan, "step": 1}
        return train_on(batch, model, optimizer, **how)

    sampled, trained = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save_policy(model, tokenizer, path)
        with open_engine(path, compute=compute, model=model, tokenizer=tokenizer) as engine:
            how = {"group_size": settings.group_size, "settings": sampling}
            for _ in range(arguments.repeats + 1):
                groups, *taken = timed(lambda: awake(engine, problems, **how), arguments.device)
                sampled.append(taken)
                batch = form_batch(list(map(judged, problems, groups)), settings)
                sums, *taken = timed(lambda batch=batch: train(batch), arguments.device)
                trained.append(taken)
    tokens = sum(len(response.token_ids) for group in groups for response in group)
    what, updates = f"{profile}, {compute.engine}, {compute.precision}", len(sums.grad_norms)
    # The first round warms up.
    (sampling_s, sampling_gb), (training_s, training_gb) = (
        (statistics.median(seconds for seconds, _ in taken[1:]), taken[-1][1])
        for taken in (sampled, trained)
    )
    return [
        line(f"sampling of a step, {what}", sampling_s, tokens, "tokens", sampling_gb),
        line(f"training of a step, {what}", training_s, tokens, "tokens", training_gb),
        line(f"an update, {what}", training_s / updates, tokens / updates, "tokens", training_gb),
    ]


def random_policy(profile: str, compute: Compute, device: str):
    """A model of the shape of the profile's mathematics, and a tokenizer of its size."""
    world = load(profile, "miniature")
    words = [f"user\nStart with {i} and apply +{i} *{i}.\nassistant\n" for i in range(500)]
    tokenizer = train_tokenizer(words, vocab_size=world.vocab_size)
    shape = ModelShape(
        num_layers=world.num_layers,
        hidden_size=world.hidden_size,
        num_heads=world.num_heads,
        num_kv_heads=world.num_kv_heads,
        head_dim=world.head_dim,
        intermediate_size=world.intermediate_size,
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
    )
    model = new_model(shape, world.max_positions, compute.attention, device)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


def awake(engine: Engine, problems: list[Problem], **how) -> list[list[Response]]:
    """What a step's sampling is: the weights handed over, the responses, the memory given back."""
    engine.wake()
    groups = engine.sample_groups(problems, **how)
    engine.sleep()
    return groups


def judged(problem: Problem, responses: list[Response]) -> Group:
    """Every second response is taken for right, so that each group has an advantage."""
    right = [index % 2 == 0 for index in range(len(responses))]
    verdicts = tuple(Verdict(one, "correct" if one else "wrong") for one in right)
    rewards = tuple(1.0 if one else -1.0 for one in right)
    return Group(problem, tuple(responses), verdicts, rewards)
