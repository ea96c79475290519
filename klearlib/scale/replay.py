"""verl's replay buffer, with an eye on those who fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ray
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from klearlib.errors import KlearError

POLL_S = 0.1


class WatchfulBuffer(ReplayBuffer):
    """The synchronous buffer, which waits until every group of the step has ended.

    Groups are neither filtered nor refilled here. verl waits for ever for a group whose worker has
    died, and for all others where one has failed; this one raises an error at once.

    watched: the Ray actors that draw the rollouts, asked for when the first wait begins.
    """

    def __init__(self, watched: Callable[[], Sequence]):
        super().__init__(
            trainer_mode="sync",
            trainer_config=None,
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs=None,
            poll_interval=POLL_S,
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
