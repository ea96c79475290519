"""Beyond one machine, without verl and Ray: what surrounds them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "rl"))  # groups, rows and settings made by hand
