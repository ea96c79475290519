"""Problems, settings and oracles for the tests of the vLLM engine."""

from small_models import response_logprobs

from klearlib.policy.drawing import SamplingSettings
from klearlib.records import Problem

# More than two blocks of vLLM's prefix cache on a CPU, which have 128 tokens.
LONG = [Problem(id="long", prompt="apply +4 to 3, then " * 22, answer="1")]
# Two implementations of the same fp32 arithmetic; a log-probability of another weight, position or
# temperature is off by 0.01 and more.
LOGP_TOLERANCE = 1e-4


def how(**changes) -> SamplingSettings:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 12, "seed": 0}
    return SamplingSettings(**plain | changes)


GREEDY = how(temperature=0.0, max_tokens=20)


def full_logprobs(policy, response, temperature: float = 1.0) -> list[float]:
    """The trainer's log pi of each token of a response."""
    return response_logprobs(policy, response, temperature).tolist()
