"""Problems and settings for the tests of the vLLM engine."""

from engine_contract import how

from klearlib.records import Problem

# More than two blocks of vLLM's prefix cache on a CPU, which have 128 tokens.
LONG = [Problem(id="long", prompt="apply +4 to 3, then " * 22, answer="1")]
GREEDY = how(temperature=0.0, max_tokens=20)
