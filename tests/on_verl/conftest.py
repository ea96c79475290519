"""verl on this machine's cores, run by `make test-verl` alone, in verl's own environment."""

import os
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
sys.path.append(str(_HERE))
for folder in ("rl", "run"):  # what their own tests are made of
    sys.path.append(str(_HERE.parent / folder))

from cpu_settings import ENVIRONMENT  # noqa: E402 - found by the lines above

# Before anything imports verl, which reads some of them once.
os.environ.update(ENVIRONMENT, VERL_USE_EXTERNAL_MODULES="cpu_glue")


def pytest_configure(config):
    # verl and what it imports warn of much that is theirs to mend.
    config.addinivalue_line("filterwarnings", "default")
    config.addinivalue_line("markers", "verl: needs verl, run by make test-verl")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.verl)


@pytest.fixture(scope="session")
def model(tmp_path_factory, new_policy, tiny_tokenizer):
    """The folder of a tiny model."""
    from composed import tiny_model

    return tiny_model(tmp_path_factory.mktemp("tiny"), new_policy(), tiny_tokenizer)
