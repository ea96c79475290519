"""From the file of problems through verl's own data set, agent worker and reward worker to the
verdict that the local run gives."""

import asyncio
from types import SimpleNamespace

import datasets
import pytest
from composed import with_problems
from rollout_fakes import settings
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.tokenizer import hf_tokenizer

from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt
from klearlib.records import Problem, Response, TestCase
from klearlib.rl.schedule import judging, problem_order
from klearlib.scale.cluster import small_cluster
from klearlib.scale.problems import verdict_of
from klearlib.verify.answers import verify_answer
from klearlib.verify.groups import judge_groups
from klearlib.verify.pool import close_pool

SEED = 4
PROBLEMS = [
    Problem("sum", "What is 1 + 2?", answer=("3", "three")),
    Problem("root", "What is the root of 8?", answer=r"2\sqrt{2}"),
    Problem(
        "square",
        "Print the square.",
        tests=tuple(TestCase(stdin=str(n), expected=str(n * n)) for n in range(7)),
    ),
]
CHOSEN = settings(num_steps=2, num_problems=3, group_size=2, max_tests=3, format_penalty=0.5)


@pytest.fixture(scope="module")
def config(model):
    return with_problems(model, PROBLEMS, CHOSEN, seed=SEED, cluster=small_cluster())


@pytest.fixture(scope="module", autouse=True)
def no_judge_survives():
    yield
    close_pool()


@pytest.fixture(scope="module")
def batches(config, model, tmp_path_factory):
    """The steps' prompts, as verl's trainer hands them to its agent workers."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        files, tokenizer = config.data.train_files, hf_tokenizer(str(model))
        data = create_rl_dataset(files, config.data, tokenizer, None)
    loader = StatefulDataLoader(
        dataset=data,
        batch_size=config.data.train_batch_size,
        num_workers=config.data.dataloader_num_workers,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(config.data, data),
    )
    return [tu.get_tensordict(batch) for batch in loader]


def rows(batch) -> list[dict]:
    """Row by row, what an agent loop gets."""
    return [
        {key: getattr(batch[key][i], "data", batch[key][i]) for key in batch.keys()}  # noqa: SIM118
        for i in range(len(batch))
    ]


def test_verl_draws_the_problems_in_our_order(batches):
    order = problem_order(len(PROBLEMS), CHOSEN, seed=SEED)
    for step, batch in enumerate(batches, start=1):
        for place, row in enumerate(rows(batch)):
            problem = PROBLEMS[next(order)]
            assert row["raw_prompt"] == [{"role": "user", "content": problem.prompt}]
            assert row["extra_info"]["problem_id"] == problem.id
            assert row["extra_info"]["index"] == (step - 1) * 3 + place
            assert row["agent_name"] == "klear"
    assert len(batches) == CHOSEN.num_steps


class InThisProcess:
    """A Ray handle of a reward worker, without Ray."""

    def __init__(self, worker):
        self.compute_score = SimpleNamespace(remote=worker.compute_score)


def judged_by_verl(config, row: dict, prompt_ids, response_ids, text: str, ended=False) -> dict:
    """What verl adds to a rollout once its reward worker has judged it. ended: by the budget."""
    output = AgentLoopOutput(
        prompt_ids=prompt_ids,
        response_ids=response_ids,
        response_mask=[1] * len(response_ids),
        response_logprobs=[-1.0] * len(response_ids),
        num_turns=2,
        metrics={},
        extra_fields={
            **{"prompt_text": text, "budget_ended": ended},
            **{"global_steps": 0, "turn_scores": []},
        },
    )

    async def judge():
        worker = AgentLoopWorker.__new__(AgentLoopWorker)
        worker.processor, worker.mm_processor_kwargs = None, {}
        worker.reward_loop_worker_handles = [InThisProcess(RewardLoopWorker(config))]
        await worker._compute_score([output], kwargs=row)

    asyncio.run(judge())
    return {"score": output.reward_score, **output.extra_fields["reward_extra_info"]}


ANSWERS = {
    "sum": [r"<think>so</think> \boxed{3}", r"<think>so</think> \boxed{4}", r"\boxed{3}"],
    "root": [r"<think>so</think> \boxed{\sqrt{8}}", "<think>so</think>"],
    "square": [
        "<think>so</think>\n```python\nprint(int(input()) ** 2)\n```",
        "<think>so</think>\n```python\nprint(0)\n```",
        "```python\nprint(0)\n```",
    ],
}


@pytest.mark.parametrize("place", range(3))
def test_verl_pays_what_the_local_run_pays(config, batches, tiny_tokenizer, place):
    row = rows(batches[1])[place]
    problem = PROBLEMS[row["extra_info"]["problem"]]
    prompt, prompt_ids = chat_prompt(tiny_tokenizer, problem.prompt)
    rewards = set()
    for text in ANSWERS[problem.id]:
        ids = [*tiny_tokenizer(text, add_special_tokens=False)["input_ids"]]
        ids.append(tiny_tokenizer.eos_token_id)
        decoded = tiny_tokenizer.decode(ids, skip_special_tokens=True)
        assert decoded == text  # or nothing here would be judged
        response = Response(problem.id, prompt, tuple(prompt_ids), tuple(ids), (), decoded, False)
        (group,) = judge_groups([problem], [[response]], **judging(CHOSEN, seed=SEED))
        found = judged_by_verl(config, row, prompt_ids, ids, prompt)
        assert found["score"] == group.rewards[0]
        assert verdict_of(found["verdict"]) == group.verdicts[0]
        if group.verdicts[0].report is not None:
            assert len(group.verdicts[0].report.outcomes) == CHOSEN.max_tests
        rewards.add(found["score"])
    assert len(rewards) == len(ANSWERS[problem.id])


def test_a_right_answer_in_a_response_that_the_budget_ended_is_not_paid(
    config, batches, tiny_tokenizer
):
    row = next(r for r in rows(batches[0]) if r["extra_info"]["problem_id"] == "sum")
    ids = tiny_tokenizer(ANSWERS["sum"][0], add_special_tokens=False)["input_ids"]
    found = judged_by_verl(config, row, ids, ids, "", ended=True)
    assert found["score"] == -1.0 and verdict_of(found["verdict"]).reason == "truncated"


def test_a_judge_that_fails_fails_the_rollout(config, batches, tiny_tokenizer):
    row = rows(batches[0])[0] | {"reward_model": {"ground_truth": "{}", "style": "rule"}}
    ids = tiny_tokenizer("3", add_special_tokens=False)["input_ids"]
    with pytest.raises(KlearError, match="ground_truth of problem"):
        judged_by_verl(config, row, ids, ids, "")


def test_this_environment_judges_as_the_suites_own_does():
    """The antlr 4.9 of hydra 1.3 has math-verify read no percent sign: "wrong" here, and
    "correct" where the local run is judged."""
    given, gold = r"<think>so</think> \boxed{12.5\%, 25\%}", r"\frac{1}{8}, \frac{1}{4}"
    assert verify_answer(given, gold).reason == "correct"
