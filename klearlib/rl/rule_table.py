"""The rules of other papers, with the numbers that each paper or its authors' code gives. Those
that cannot be had are named in docs/own-rule.md. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field

_PPO = {"eps_low": 0.2, "eps_high": 0.2}
_CLIP_HIGHER = {"eps_low": 0.2, "eps_high": 0.28}


@dataclass(frozen=True)
class PublishedRule:
    """source: arXiv id of the paper, and what was read for the form and the numbers. name, values:
    for `klearlib.rl.rule_specs.rule_from`. options: fields of RLOptions that belong to the rule."""

    title: str
    source: str
    name: str
    values: dict
    options: dict = field(default_factory=dict)

    @property
    def spec(self) -> dict:
        return {"name": self.name, **self.values}


# fmt: off
_ROWS = {
    "ppo": ("PPO", "1707.06347; Eq. 10", "clip_higher", _PPO),
    "dual_clip": ("dual clip", "1912.09729; verl",
        "clip_higher", _CLIP_HIGHER | {"dual_clip": 3.0}),
    "gppo_no_low": ("GPPO without its low corner", "Eq. 18",
        "gppo", _CLIP_HIGHER | {"beta_low": 0.0}),
    "gppo_ratio_low": ("GPPO, F = r low", "of this suite", "gppo_ratio_low", _CLIP_HIGHER),
    "ce_gppo": ("CE-GPPO", "2509.20712; authors' code (1.5B)",
        "gppo", _PPO | {"beta_low": 0.5, "beta_high": 1.0, "dual_clip": 10.0}),
    "cispo_one_sided": ("CISPO, no lower bound", "2506.13585, which states no cap: this paper's",
        "cispo_one_sided", _CLIP_HIGHER | {"cap": 1.28}),
    "cispo_cap_5": ("CISPO, cap 5", "2510.13786 (ScaleRL)",
        "cispo_one_sided", _CLIP_HIGHER | {"cap": 5.0}),
    "aspo": ("ASPO", "2510.06062; authors' code", "aspo", _PPO | {"cap": 3.0}),
    "dr_grpo": ("Dr. GRPO", "2503.20783; trl, verl",
        "clip_higher", _PPO, {"group_std": "none", "normalizer": "budget"}),
    "gspo": ("GSPO", "2507.18071; verl, trl",
        "gspo", {"eps_low": 3e-4, "eps_high": 4e-4}, {"normalizer": "sequence"}),
    "luspo": ("LUSPO", "2602.05261; trl",
        "gspo", {"eps_low": 2e-3, "eps_high": 2.5e-3}, {"normalizer": "sequence_sum"}),
    "gmpo": ("GMPO", "2507.20673; authors' code, verl, trl",
        "gmpo", _CLIP_HIGHER | {"clip": 0.4}, {"normalizer": "sequence"}),
    "sapo": ("SAPO", "2511.20347; trl, verl",
        "sapo", _CLIP_HIGHER | {"tau_positive": 1.0, "tau_negative": 1.05},
        {"normalizer": "sequence"}),
    "dgpo": ("DGPO", "2603.14389; authors' code",
        "dgpo", _PPO | {"power_low": 1.0, "root_high": 2.0}),
    "topr_token": ("TOPR by token", "2503.14286; ROLL", "topr_token", _CLIP_HIGHER),
    "topr": ("TOPR", "2503.14286, quoted by ROLL",
        "topr", _CLIP_HIGHER, {"normalizer": "sequence_sum"}),
    "tis": ("TIS (A/A)", "Yao et al. 2025; trl, verl",
        "clip_higher", _CLIP_HIGHER, {"logp_old": "trainer", "sampler_correction": 2.0}),
    "dppo_tv": ("DPPO, total variation", "2602.04879; authors' code, verl",
        "dppo_tv", _CLIP_HIGHER | {"delta": 0.15, "cap": 10.0}),
    "dppo_kl": ("DPPO, KL", "2602.04879; authors' code, verl",
        "dppo_kl", _CLIP_HIGHER | {"delta": 0.05, "cap": 10.0}),
    "dcpo": ("DCPO's range", "2509.02333; authors' code. Its advantage over visits is not here",
        "dcpo", {"eps_low": 0.16, "eps_high": 0.2, "cap": 10.0}),
    "vespo": ("VESPO", "2602.10693; authors' code, trl",
        "vespo", _CLIP_HIGHER | {"positive": [2.0, 3.0], "negative": [3.0, 2.0]}),
    "m2po": ("M2PO", "2510.01161, quoted: no released code drops the outward tokens alone",
        "m2po", _CLIP_HIGHER | {"budget": 0.04}),
    # Its function has floors of 0.7 and 1.5, which its trainer and scripts leave off.
    "m2po_capped": ("M2PO, its code", "2510.01161; authors' code",
        "m2po_capped", _CLIP_HIGHER | {"budget": 0.04, "widest_low": 1.0, "widest_high": 1.0}),
    "bapo": ("BAPO", "2510.18927; authors' code, numbers of its README",
        "bapo", _CLIP_HIGHER
        | {"low": [0.6, 0.9], "high": [1.2, 3.0], "step": 0.05, "target": 1.0, "cap": 3.0}),
    "opsm": ("OPSM", "2512.02556; trl, whose delta it is", "opsm", _CLIP_HIGHER | {"delta": 0.5}),
    "rloo": ("RLOO", "2402.14740; verl, trl",
        "reinforce", _CLIP_HIGHER, {"group_std": "leave_one_out", "normalizer": "sequence_sum"}),
}
# fmt: on
PUBLISHED = {name: PublishedRule(*row) for name, row in _ROWS.items()}
"""By the name in `rules` of a notebook."""
