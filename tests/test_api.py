"""What `make api` writes: the public functions, with their docstrings."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
PUBLIC = {
    "rl.coefficients": "unclipped ppo_clip gppo cispo coefficient Rule",
    "rl.objective": "policy_loss positive_lm_loss",
    "rl.advantages": "group_advantages nonzero_groups",
    "verify.answers": "verify_answer verify_answers",
    "verify.programs": "run_tests run_many",
    "verify.rewards": "math_reward soft_code_reward hard_code_reward",
    "curation.overlap": "contaminated deduplicate",
    "curation.coverage": "k_center_greedy",
    "evaluate.scores": "avg_at_n pass_at_k",
    "paper": "table figure",
}
"""Module -> what others call in it."""


def listed() -> list[str]:
    words = re.search(
        r"^API = \$\(addprefix klearlib\.,(.*?)\)$", MAKEFILE.read_text(), re.M | re.S
    )
    return words.group(1).replace("\\", "").split()


def test_every_public_function_is_in_a_module_of_the_list_and_says_what_it_is():
    assert PUBLIC.keys() <= set(listed())
    for module, names in PUBLIC.items():
        found = import_module(f"klearlib.{module}")
        for name in names.split():
            assert getattr(found, name).__doc__, f"{module}.{name}"


def test_the_pages_show_them(tmp_path):
    pdoc = pytest.importorskip("pdoc", reason="an extra: pip install -e '.[api]'")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*(f"klearlib.{module}" for module in listed()), output_directory=tmp_path)
    for module, names in PUBLIC.items():
        page = (tmp_path / f"klearlib/{module.replace('.', '/')}.html").read_text()
        for name in names.split():
            text = re.search(rf'<section id="{name}">(.*?)</section>', page, re.S).group(1)
            assert 'class="docstring"' in text, f"{module}.{name}"
