"""What a machine without verl is told, and one with the wrong company for it."""

import importlib.metadata
import re
from pathlib import Path

import pytest

from klearlib.errors import MissingAsset
from klearlib.scale import require

RIGHT = {"verl": "0.9.1", "ray": "2.60.0", "antlr4-python3-runtime": "4.13.2"}


def there(monkeypatch, *packages, **versions):
    found = RIGHT | {name.replace("_", "-"): version for name, version in versions.items()}

    def version(name: str) -> str:
        if name.lower() not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return found[name.lower()]

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_one_line_says_what_to_install(monkeypatch):
    there(monkeypatch)
    with pytest.raises(MissingAsset, match=r"^Ray is not installed: pip install 'ray"):
        require.require_ray()
    with pytest.raises(MissingAsset, match=r"^verl and Ray are not installed: run make verl"):
        require.require_verl()
    there(monkeypatch, "ray")
    require.require_ray()
    with pytest.raises(MissingAsset, match=r"^verl is not installed: run make verl"):
        require.require_verl()


@pytest.mark.parametrize(
    ("package", "version", "words"),
    [
        ("verl", "0.8.0", "verl is 0.8.0 and this suite was made with 0.9.1"),
        ("ray", "2.9.0", "ray is 2.9.0 and this suite was made with 2.60.0"),
        ("antlr4_python3_runtime", "4.9.3", "antlr4-python3-runtime is 4.9.3 and this suite"),
    ],
)
def test_the_wrong_company_is_refused(monkeypatch, package, version, words):
    there(monkeypatch, *RIGHT)
    assert require.lacks() == ""
    require.require_verl()
    there(monkeypatch, *RIGHT, **{package: version})
    assert require.lacks().startswith(words)
    with pytest.raises(MissingAsset) as caught:
        require.require_verl()
    assert str(caught.value) == f"{require.lacks()}: {require.INSTALL_VERL}"


def test_plan_and_doctor_say_the_same(monkeypatch):
    from klearlib.suite import checks, doctor

    monkeypatch.setattr(require, "_VERSIONS", {"verl": "1"})
    monkeypatch.setattr(require, "version", lambda name: "0.9.1")
    found = require.lacks()
    assert found and checks.this_machine().verl_lacks == found
    (verl,) = [each for each in doctor._optional() if each.name == "engine: verl"]
    assert verl.found == found
    assert verl.fix == f"only needed for engine: verl: {require.INSTALL_VERL}"


def test_the_versions_are_those_of_the_environment_that_make_verl_sets_up():
    root = Path(__file__).parents[2]
    locks = [root / name for name in ("requirements.lock", "requirements-verl.lock")]
    lines = "\n".join(lock.read_text(encoding="utf-8") for lock in locks)
    pins = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==([\w.]+)", lines, re.M))
    assert {name: pins[name] for name in require._VERSIONS} == require._VERSIONS
