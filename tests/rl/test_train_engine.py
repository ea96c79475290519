"""What the RL loop asks of its engine: awake to sample, asleep to train, never old weights."""

from contextlib import contextmanager

import pytest
import torch
from tiny_runs import run, weights

from klearlib.policy.engines import open_engine
from klearlib.rl import train


class Watched:
    """The engine of this process as one that holds weights of its own."""

    def __init__(self, engine, model):
        self.tokenizer, self.setting = engine.tokenizer, engine.setting
        self.calls, self.is_awake = [], False
        self._engine, self._model = engine, model
        self._held = None

    def wake(self):
        assert not self.is_awake
        self.is_awake = True
        self._held = self._weights()
        self.calls.append("wake")
        self._engine.wake()

    def sleep(self):
        assert self.is_awake
        self.is_awake, self._held = False, None
        self.calls.append("sleep")

    def sample_groups(self, problems, *, group_size, settings):
        assert self.is_awake and torch.equal(self._held, self._weights())
        self.calls.append("sample")
        return self._engine.sample_groups(problems, group_size=group_size, settings=settings)

    def _weights(self):
        return torch.cat([p.detach().flatten() for p in self._model.parameters()])


@pytest.fixture
def watched(monkeypatch):
    """Engines that `train_rl` opened, in order."""
    found = []

    @contextmanager
    def opened(path, **how):
        with open_engine(path, **how) as engine:
            found.append(Watched(engine, how["model"]))
            yield found[-1]
            assert not found[-1].is_awake

    monkeypatch.setattr(train, "open_engine", opened)
    return found


def test_wake_and_sleep_take_turns_around_all_sampling(watched, inputs, tmp_path):
    run(tmp_path / "run", inputs, num_steps=2)
    asleep = ["wake", "sample", "sleep"]
    # Validation before the first step and after the last, rollouts of two steps between.
    assert watched[0].calls == asleep * 4
    assert not torch.equal(weights(tmp_path / "run"), weights(inputs["sft"]))
