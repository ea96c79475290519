"""A policy for which restating the question is the easiest way to a reward, and one that never
ends another: whoever pays for them gets them."""

import functools
import itertools
from dataclasses import asdict

import pytest
import torch
from printed_equations import SPECS
from rollout_fakes import settings
from small_models import small_model

from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.load import chat_prompt
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem
from klearlib.rl.alarms import truncation_rose
from klearlib.rl.metrics import step_metrics
from klearlib.rl.rollouts import form_batch
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.schedule import judging, rollout_sampling
from klearlib.rl.train import train_on
from klearlib.verify.groups import judge_groups
from klearlib.verify.pool import close_pool

SEED, NUM_STEPS, BUDGET = 0, 4, 14
PROBLEMS = [Problem(f"{a}+{b}", f"What is {a} + {b}?", str(a + b)) for a, b in ((2, 3), (4, 5))]
RESTATED, ENDLESS, RIGHT, WRONG = "restated", "endless", "right", "wrong"
SHARES = {RESTATED: 0.5, ENDLESS: 0.2, RIGHT: 0.1, WRONG: 0.2}
CHOSEN = settings(
    num_steps=NUM_STEPS,
    num_problems=len(PROBLEMS),
    group_size=64,
    mini_batch_problems=1,
    learning_rate=5e-4,
    max_new_tokens=BUDGET,
    think_tags="optional",
)


def written(problem: Problem) -> dict[str, str]:
    """What the policy writes, by kind; what is endless goes on beyond the budget."""
    return {
        RESTATED: f"\\boxed{{{problem.id}}}",
        ENDLESS: f"\\boxed{{{problem.answer}}}" + " so" * BUDGET,
        RIGHT: f"\\boxed{{{problem.answer}}}",
        WRONG: "\\boxed{1}",
    }


@pytest.fixture(scope="module", autouse=True)
def no_judge_survives():
    yield
    close_pool()


@pytest.fixture(scope="module")
def start(tiny_tokenizer):
    """A policy that writes each kind about as often as `SHARES` say."""
    policy = small_model(
        vocab_size=len(tiny_tokenizer),
        max_position_embeddings=128,
        num_hidden_layers=1,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=tiny_tokenizer.eos_token_id,
        pad_token_id=tiny_tokenizer.pad_token_id,
    )
    rows, targets, weights = [], [], []
    for problem in PROBLEMS:
        _, prompt_ids = chat_prompt(tiny_tokenizer, problem.prompt)
        for kind, text in written(problem).items():
            ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
            ids = [*ids, tiny_tokenizer.eos_token_id]
            rows.append([*prompt_ids, *ids])
            targets.append([-100] * len(prompt_ids) + ids)
            weights.append(SHARES[kind])
    longest = max(map(len, rows))
    inputs, labels = (
        torch.tensor([row + [fill] * (longest - len(row)) for row in part])
        for part, fill in ((rows, tiny_tokenizer.pad_token_id), (targets, -100))
    )
    weight = torch.tensor(weights) / len(PROBLEMS)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for _ in range(120):
        logits = policy(input_ids=inputs).logits[:, :-1].transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(logits, labels[:, 1:], reduction="none")
        optimizer.zero_grad()
        (losses.sum(dim=1) * weight).sum().backward()
        optimizer.step()
    return {name: value.clone() for name, value in policy.state_dict().items()}, policy


@pytest.fixture(scope="module")
def trained(start, tiny_tokenizer):
    """A function that trains the policy from its start, judged by some rule: the judged groups of
    each step, and the lines of its metrics."""
    weights, policy = start

    @functools.cache
    def train(**rule_of_judging):
        policy.load_state_dict(weights)
        chosen = settings(**asdict(CHOSEN) | rule_of_judging)
        plan = plan_batches(policy, local_compute(), parts_count=False)
        optimizer = torch.optim.AdamW(policy.parameters(), weight_decay=0.0)
        how = {"rule": rule_from(SPECS["gppo"]), "settings": chosen, "plan": plan}
        steps, lines = [], []
        for step in range(1, NUM_STEPS + 1):
            responses = sample_groups(
                policy,
                tiny_tokenizer,
                PROBLEMS,
                group_size=chosen.group_size,
                settings=rollout_sampling(chosen, seed=SEED, step=step),
            )
            groups = judge_groups(PROBLEMS, responses, **judging(chosen, seed=SEED))
            batch = form_batch(groups, chosen)
            sums = train_on(batch, policy, optimizer, step=step, **how)
            steps.append(groups)
            lines.append(step_metrics(batch, sums, step=step, learning_rate=1.0))
        return steps, lines

    return train


def rollouts(groups):
    """(kind, verdict, reward) of every rollout of a step; the kind is "" for other texts."""
    for group in groups:
        texts = written(group.problem)
        for response, *judged in zip(group.responses, group.verdicts, group.rewards, strict=True):
            kinds = [kind for kind, text in texts.items() if text == response.text]
            if response.truncated and texts[ENDLESS].startswith(response.text):
                kinds = [ENDLESS]
            yield kinds[0] if kinds else "", *judged


def share(groups, kind) -> float:
    kinds = [each for each, _, _ in rollouts(groups)]
    return kinds.count(kind) / len(kinds)


def test_the_start_writes_what_this_is_about(trained):
    first = trained()[0][0]
    for kind, wanted in SHARES.items():
        assert share(first, kind) == pytest.approx(wanted, abs=0.15), kind
    cut = [(g.problem.answer, r.text) for g in first for r in g.responses if r.truncated]
    assert any(f"\\boxed{{{answer}}}" in text for answer, text in cut)


def test_neither_is_paid_and_neither_grows(trained):
    steps, lines = trained()
    for kind, verdict, reward in itertools.chain.from_iterable(map(rollouts, steps)):
        if kind == RESTATED:
            assert reward == -1.0 and verdict.reason in ("not_worked_out", "wrong"), verdict
        if kind == ENDLESS:
            assert reward == -1.0 and verdict.reason == "truncated", verdict
    for kind in (RESTATED, ENDLESS):
        assert share(steps[-1], kind) < 0.7 * share(steps[0], kind), kind
    assert share(steps[-1], RIGHT) > 2 * share(steps[0], RIGHT)
    assert truncation_rose(lines) == ""


@pytest.mark.parametrize(
    ("rule", "kind"),
    [({"answer_form": "equivalent"}, RESTATED), ({"truncated": "as_text"}, ENDLESS)],
)
def test_by_the_older_rule_each_is_paid_and_grows(trained, rule, kind):
    """Or the test above would show nothing."""
    steps, lines = trained(**rule)
    paid = {r for each, _, r in itertools.chain.from_iterable(map(rollouts, steps)) if each == kind}
    assert paid == {1.0}
    assert share(steps[-1], kind) > 1.2 * share(steps[0], kind)
    assert bool(truncation_rose(lines)) == (kind == ENDLESS)  # the alarm of a run sees it
