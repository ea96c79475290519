"""Problems, settings and oracles for the tests of the vLLM engine."""

from small_models import response_logprobs

from klearlib.policy.drawing import SamplingSettings
from klearlib.records import Problem

# Prompts of different length, not sorted by it.
PROMPTS = ["what is 12345 + 6789?", "2+2", "f(0)=1, f(1)=2, f(n)=3f(n-1)+f(n-2).", "?", "1-1"]
PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate(PROMPTS)]
# More than two blocks of vLLM's prefix cache on a CPU, which have 128 tokens.
LONG = [Problem(id="long", prompt="apply +4 to 3, then " * 22, answer="1")]
# Two implementations of the same fp32 arithmetic; a log-probability of another weight, position or
# temperature is off by 0.01 and more.
LOGP_TOLERANCE = 1e-4


def how(**changes) -> SamplingSettings:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 12, "seed": 0}
    return SamplingSettings(**plain | changes)


GREEDY = how(temperature=0.0, max_tokens=20)


def flat(groups):
    return [response for group in groups for response in group]


def full_logprobs(policy, response, temperature: float = 1.0) -> list[float]:
    """The trainer's log pi of each token of a response."""
    return response_logprobs(policy, response, temperature).tolist()
