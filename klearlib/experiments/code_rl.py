"""What the notebooks on RL with programs, 07 and 08, show alike."""

from __future__ import annotations

from klearlib.experiments.experiment import departures
from klearlib.params import CodeRLParams, FilterOptions, RLOptions

DECIDED_ON = "LiveCodeBench V5"
"""The paper's benchmark that decides the claims about scores."""

SCORES = (
    "Scores at the first and last step: avg@{p.eval_responses} at temperature 0.6 for the two "
    "windows, rate right at temperature 1 for the validation set; right is a program that passes "
    "every test; mean over seeds, 95 % t interval."
)
"""The caption of their scores."""

LEARNING = {
    "rollouts that pass every test, temperature 1": "rollout/correct_rate",
    "share of tests passed": "rollout/pass_rate_mean",
    "groups trained on": "rollout/groups_trained",
    "entropy, nats per token": "train/entropy",
    "response length, tokens": "rollout/response_tokens_mean",
    "gradient norm": "train/grad_norm",
}
"""Panel of what the runs do beside scores -> its metric."""


def common_notes(params: CodeRLParams) -> list[str]:
    """The notes that both end with."""
    return [
        *departures(params.options, RLOptions),
        *departures(params.test_filter, FilterOptions),
        "A score counts a program as right if it passes every test of its problem. The last step "
        "counts, never the best one. Seeds share the SFT checkpoint.",
        "Clipping by GPPO, with the loss on correct responses at the weight alpha; the paper does "
        "not say what its Figs. 3 and 4 used.",
    ]
