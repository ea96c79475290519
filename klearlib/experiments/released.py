"""Table 1's cells from the responses that the paper's authors have published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klearlib.data.benchmarks import SIZES
from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import REAL
from klearlib.params.fields import parameter
from klearlib.real.assets import located
from klearlib.run.stage import Stage

BUDGET = "64K"
"""Of the published responses, by Table 1's scores."""
_NUM_RESPONSES = 64
PUBLISHED = "benchmarks/*_inference_avg64.jsonl.zip of github.com/suu990901/KlearReasoner, unpacked"


@dataclass(frozen=True)
class ReleasedParams:
    """The published responses to one benchmark of Table 1."""

    responses: str = parameter(help="the file of 64 responses to each problem")
    problems: str | None = parameter(None, help="a file of the benchmark, null for the hub")


def released_stages(files: Mapping[str, Mapping]) -> dict[str, Stage]:
    """Benchmark -> the stage that judges its responses.

    Raises:
        ParameterError: a benchmark that is none of Table 1's in mathematics, or no file there.
    """
    known, found = [name for name, about in REAL.items() if about.domain == "math"], {}
    for name, where in files.items():
        if name not in known:
            raise ParameterError(f"released_responses: {name}: one of {', '.join(known)}")
        places = {key: place and located(place) for key, place in where.items()}
        for place in filter(None, places.values()):
            if not place.exists():
                raise ParameterError(
                    f"released_responses: {name}: no file at {place}: fetch {PUBLISHED}, or mend "
                    "the path"
                )
        found[name] = Stage(
            "released",
            "klearlib.evaluate.released:judge_released",
            {
                "benchmark": name,
                **{key: place and str(place) for key, place in places.items()},
                "num_responses": _NUM_RESPONSES,
            },
            label=f"released responses to {REAL[name].title}",
            estimate_s=SIZES[name] * _NUM_RESPONSES / 40,
        )
    return found
