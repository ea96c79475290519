"""The suite on a real language model: log-probabilities, SFT, RL, resuming, greedy answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from shared_data import shared_rows

from klearlib.cli import main
from klearlib.errors import Stopped
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import load_policy
from klearlib.policy.reader import in_chunks, reader_of
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem
from klearlib.rl.train import train_rl
from klearlib.run.entry import CHECKPOINT
from klearlib.run.folder import RunFolder
from klearlib.sft.batches import Example
from klearlib.sft.train import train_sft

QUESTIONS = [Problem(f"q{n}", f"What is {n} + {n + 3}?", str(2 * n + 3)) for n in range(2, 6)]

SUMS = [
    Problem(f"s{a}{b}", f"What is {a} + {b}?", str(a + b))
    for a in range(1, 8)
    for b in (1, 2, 4, 6)
]


def drawn(smollm2, problems, *, group_size=1, **how):
    model, tokenizer, _ = smollm2
    settings = SamplingSettings(**{"top_p": 1.0, "top_k": 0, "seed": 0} | how)
    groups = sample_groups(model, tokenizer, problems, group_size=group_size, settings=settings)
    return [response for group in groups for response in group]


@torch.no_grad()
def dense(model, response) -> torch.Tensor:
    """log pi [T, V] at each token of a response, by all of the model's logits."""
    ids = torch.tensor([response.prompt_ids + response.token_ids])
    return model(ids).logits[0, len(response.prompt_ids) - 1 : -1].log_softmax(-1)


def test_sampler_and_trainer_agree_with_transformers(smollm2):
    model, tokenizer, plain = smollm2
    responses = drawn(smollm2, QUESTIONS, group_size=2, temperature=1.0, max_tokens=24)
    # The model's own template opens with its system prompt.
    assert responses[0].prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    asked = [{"role": "user", "content": QUESTIONS[0].prompt}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"]
    assert list(responses[0].prompt_ids) == ids
    for response in responses:
        tokens = torch.tensor(response.token_ids)
        expected = dense(plain, response).gather(1, tokens[:, None])[:, 0].tolist()
        assert response.logp == pytest.approx(expected, abs=1e-4)
        row = Example(response.prompt_ids + response.token_ids, len(response.prompt_ids))
        with torch.no_grad():
            reader = reader_of(model, precision="fp32")
            own = torch.cat([logp for _, logp, _ in in_chunks(reader, [row])])
        assert own.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("asked", "max_tokens"), [("sums", 32), ("gsm8k", 48)])
def test_greedy_answers_are_those_of_transformers(smollm2, asked, max_tokens):
    problems = QUESTIONS
    if asked == "gsm8k":
        rows = shared_rows("gsm8k_train.jsonl")[:12]
        problems = [Problem(f"g{n}", row["question"], "0") for n, row in enumerate(rows)]
    _, tokenizer, plain = smollm2
    responses = drawn(smollm2, problems, temperature=0.0, max_tokens=max_tokens)
    given = {"input_ids": [list(response.prompt_ids) for response in responses]}
    given = tokenizer.pad(given, padding_side="left", return_tensors="pt")
    answers = plain.generate(**given, do_sample=False, max_new_tokens=max_tokens)
    for response, theirs in zip(responses, answers[:, given["input_ids"].shape[1] :], strict=True):
        ours = torch.tensor(response.token_ids)
        size = min(len(ours), len(theirs))  # what follows an end token is padding
        if differ := (ours[:size] != theirs[:size]).nonzero().tolist():
            # Only where two words are equally likely, for which arithmetic decides.
            (first,), *_ = differ
            both = dense(plain, response)[first, [ours[first], theirs[first]]]
            assert both[0] == pytest.approx(both[1], abs=1e-3), response.text


def test_sft_lowers_the_loss_on_rows_that_it_does_not_see(smollm2, folder, tmp_path):
    """The style is learnt from eight numbers, and measured on others."""
    rows = [
        {"prompt": p.prompt, "response": f"<think>easy</think> It is {p.answer}."} for p in SUMS
    ]
    (tmp_path / "world").mkdir()
    lines = [json.dumps(row) + "\n" for row in rows[:8]]
    (tmp_path / "world" / "sft.jsonl").write_text("".join(lines))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model").symlink_to(folder)
    out = tmp_path / "sft"
    train_sft(
        RunFolder(out),
        {"base": tmp_path / "base", "world": tmp_path / "world"},
        seed=0,
        batch_size=4,
        learning_rate=1e-4,
        final_learning_rate=5e-5,
        normalizer="token",
        num_steps=4,
        compute=vars(local_compute()),
    )
    before, tokenizer, _ = smollm2
    after, _ = load_policy(out / "model")

    def loss(model) -> float:
        total = []
        for row in rows[8:12]:
            turns = [{"role": "user", "content": row["prompt"]}]
            asked = tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
            ids = torch.tensor([asked + tokenizer(row["response"])["input_ids"]])
            with torch.no_grad():
                logp = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            logp = logp.gather(1, ids[0, 1:, None])[len(asked) - 1 :]
            total.append(-logp.mean().item())
        return sum(total) / len(total)

    assert loss(after) < loss(before) - 0.3


RL = {
    **{"rules": ["gppo"], "seeds": [0], "num_steps": 2, "num_problems": 4, "group_size": 8},
    **{"mini_batch_problems": 2, "eval_every": 2, "eval_responses": 1, "learning_rates": [1.0e-5]},
}


@pytest.mark.timeout(900)  # of other work beside it
def test_a_profile_of_ones_own_trains_and_resumes_bit_for_bit(project, folder):
    """`klear new`, then `klear run`, then its run of RL again, stopped after one step, and again,
    killed after one step."""
    (project / "models").mkdir()
    (project / "models" / "smollm2").symlink_to(folder)
    tests = [Problem("t", f"Add {a} and {a + 2}.", str(2 * a + 2)) for a in range(3, 7)]
    for name, problems in (("sums", SUMS), ("test", tests)):
        rows = [json.dumps({"question": p.prompt, "answer": p.answer}) + "\n" for p in problems]
        (project / f"{name}.jsonl").write_text("".join(rows))
    told = "new mine --model models/smollm2 --problems sums.jsonl --benchmark test.jsonl"
    assert main([*told.split(), "--max-new-tokens", "24"]) == 0
    file = project / "params" / "mine" / "05_clipping.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | RL))
    command = [sys.executable, "-m", "klearlib.cli", "run", "--profile", "mine", "--only", "05"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    section = json.loads((project / "results/mine/05_clipping/section.json").read_text())
    assert section["status"] == "complete"

    runs = project / "results" / "runs"
    (run,) = [place.parent for place in runs.glob("*/*/metrics.jsonl") if "rl" in place.parts[-3]]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == 2
    assert any(line["rollout/groups_mixed"] > 0 and line["train/grad_norm"] for line in metrics)

    spec, again = json.loads((run / "spec.json").read_text()), project / "again"
    inputs = {name: runs / place for name, place in spec["inputs"].items()}
    torch.set_num_threads(1)  # as a worker: sums depend on it
    with pytest.raises(Stopped):
        train_rl(
            RunFolder(again, stop_requested=lambda: steps(again) == 1), inputs, **spec["params"]
        )
    train_rl(RunFolder(again), inputs, **spec["params"])

    often = spec["params"] | {"settings": spec["params"]["settings"] | {"checkpoint_every": 1}}
    killed = project / "killed"
    kill_after_a_step(killed, inputs, often)
    train_rl(RunFolder(killed), inputs, **often)
    for other in (again, killed):
        for file in ("metrics.jsonl", "model/model.safetensors"):
            assert (other / file).read_bytes() == (run / file).read_bytes(), (other, file)


TRAIN = """
import json, sys
from pathlib import Path
import torch
from klearlib.rl.train import train_rl
from klearlib.run.folder import RunFolder
torch.set_num_threads(1)
folder, inputs, params = json.load(sys.stdin)
train_rl(RunFolder(Path(folder)), {n: Path(each) for n, each in inputs.items()}, **params)
"""


def kill_after_a_step(folder, inputs, params):
    told = json.dumps([str(folder), {name: str(each) for name, each in inputs.items()}, params])
    process = subprocess.Popen([sys.executable, "-c", TRAIN], stdin=subprocess.PIPE, text=True)
    process.stdin.write(told)
    process.stdin.close()
    while not (steps(folder) == 1 and (folder / CHECKPOINT).exists()):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    process.kill()
    assert process.wait() < 0


def steps(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0
