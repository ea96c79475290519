"""What the RL loop asks of its engine: awake to sample, asleep to train, never old weights."""

from contextlib import contextmanager

import pytest
import torch
from tiny_runs import lines, run, weights

from klearlib.policy.engines import open_engine
from klearlib.rl import train


class Watched:
    """The engine of this process as one that holds weights of its own and may be restarted."""

    def __init__(self, engine, model, restarts):
        self.tokenizer, self.setting = engine.tokenizer, engine.setting
        self.num_restarts, self.calls, self.is_awake = 0, [], False
        self._engine, self._model, self._restarts = engine, model, restarts
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
        self.num_restarts += next(self._restarts, 0)
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
            # The first call is the validation of step 0, then come the rollouts of steps 1 and 2.
            found.append(Watched(engine, how["model"], iter([0, 2, 0, 1])))
            yield found[-1]
            assert not found[-1].is_awake

    monkeypatch.setattr(train, "open_engine", opened)
    return found


def test_wake_and_sleep_take_turns_around_all_sampling_and_restarts_are_counted(
    watched, inputs, tmp_path
):
    run(tmp_path / "run", inputs, num_steps=2)
    asleep = ["wake", "sample", "sleep"]
    # Validation before the first step and after the last, rollouts of two steps between.
    assert watched[0].calls == asleep * 4
    assert not torch.equal(weights(tmp_path / "run"), weights(inputs["sft"]))
    counts = [line["sampling/engine_restarts"] for line in lines(tmp_path / "run", "timings.jsonl")]
    assert counts == [2, 1]
    assert not any("restarts" in key for line in lines(tmp_path / "run") for key in line)
