"""The coefficient of a rule over ratios, to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments.rules import rule_spec

if TYPE_CHECKING:
    import pandas as pd

    from klearlib.params import RLOptions

RATIOS = np.geomspace(0.1, 3.0, 400)
_LOGP_OLD = -1.0  # of the token, where a rule looks at it


def coefficients_of(
    rule: str | dict, *, eps_low: float, eps_high: float, options: RLOptions
) -> pd.DataFrame | None:
    """Columns ratio, positive, negative: F w of a token that is a whole response, for A = 1 and
    A = -1; None where w depends on the other responses of a batch."""
    import pandas as pd
    import torch

    from klearlib.rl.coefficients import coefficient
    from klearlib.rl.rule_specs import rule_from

    made = rule_from(rule_spec(rule, eps_low=eps_low, eps_high=eps_high, options=options))
    ratio = torch.from_numpy(RATIOS)
    columns = {"ratio": RATIOS}
    for name, sign in (("positive", 1.0), ("negative", -1.0)):
        advantage = torch.full_like(ratio, sign)
        old = torch.full_like(ratio, _LOGP_OLD)
        of_token = {"logp_old": old, "logp": old + ratio.log(), "entropy": torch.ones_like(old)}
        factor = coefficient(ratio, advantage, made, **of_token)
        if made.weights is not None:
            one = torch.zeros(1, dtype=torch.int64)
            pairs = zip(ratio.log().split(1), advantage.split(1), strict=True)
            alone = torch.cat([made.weights(*pair, one) for pair in pairs])
            together = made.weights(ratio.log(), advantage, torch.arange(len(ratio)))
            if not torch.allclose(alone, together):
                return None
            factor = factor * alone
        columns[name] = factor.numpy()
    return pd.DataFrame(columns)
