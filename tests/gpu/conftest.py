"""What the tests of rl/ are made of, for the tests of a GPU."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "rl"))
