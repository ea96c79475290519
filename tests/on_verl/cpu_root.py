"""Make a root for ``klear run`` in which verl trains on this machine's cores:

    export PYTHONPATH=$PWD/tests/on_verl:$PWD/tests
    .venv-verl/bin/python tests/on_verl/cpu_root.py FOLDER PROFILE NOTEBOOK...
    export KLEAR_ROOT=FOLDER
    .venv-verl/bin/klear run --profile PROFILE --only NOTEBOOK...

FOLDER gets the notebooks and parameters of this clone, the chosen ones with ``engine: verl``, and a
section verl of two training processes with the settings of `cpu_settings`.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import yaml
from cpu_settings import cpu_cluster

HERE = Path(__file__).resolve().parent
NUM_PROCESSES = 2


def main(folder: str, profile: str, *notebooks: str) -> None:
    root, clone = Path(folder), HERE.parents[1]
    root.mkdir(parents=True)
    for name in ("notebooks", "params"):
        shutil.copytree(clone / name, root / name)
    params = root / "params" / profile
    computing = yaml.safe_load((params / "compute.yaml").read_text(encoding="utf-8"))
    cluster = cpu_cluster(NUM_PROCESSES, prompt_tokens=computing["verl"]["prompt_tokens"])
    computing["verl"] = asdict(cluster)
    (params / "compute.yaml").write_text(yaml.safe_dump(computing), encoding="utf-8")
    for number in notebooks:
        (source,) = (root / "notebooks").glob(f"{number}_*.ipynb")
        file = params / f"{source.stem}.yaml"
        text = file.read_text(encoding="utf-8") if file.is_file() else "engine: local\n"
        assert "engine: local" in text, file
        file.write_text(text.replace("engine: local", "engine: verl"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
