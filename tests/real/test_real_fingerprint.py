"""What the keys of real stages depend on."""

from __future__ import annotations

import subprocess
import sys

import pytest

TARGETS = tuple(f"klearlib.real.{name}" for name in ("data", "model", "world"))


@pytest.mark.parametrize("target", TARGETS)
def test_no_stage_hangs_on_the_declared_parameters(target):
    """A new parameter of any notebook would train every model anew."""
    code = f"import sys, {target}; sys.exit('klearlib.params' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
