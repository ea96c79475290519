"""A model of one GGUF file as a folder in the Hugging Face format, which all of klear reads.

``python -m klearlib.real.gguf FILE.gguf FOLDER`` needs the packages gguf and accelerate.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy.load import save_policy


def convert(file: Path, folder: Path) -> None:
    """Write `folder`: config.json, the tokenizer with its chat template, and the weights in fp32 as
    quantisation left them; a folder that is there stays as it is.

    Raises:
        MissingAsset: no such file, or a package that reads it is not installed.
        KlearError: no model that transformers can read.
    """
    if folder.exists():
        return
    if not file.is_file():
        raise MissingAsset(f"no file at {file}: check the path")
    how = {"gguf_file": file.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **how)
        read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **how)
    except ImportError as error:
        raise MissingAsset(f"{error}: pip install gguf accelerate") from error
    except (OSError, ValueError, KeyError) as error:
        raise KlearError(f"{file}: transformers reads no model in it ({error})") from error
    config = read.config
    if hasattr(config, "quantization_config"):  # with it nothing can be saved
        del config.quantization_config
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    save_policy(model, tokenizer, partial)
    os.replace(partial, folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("gguf: give the .gguf file and the folder to write")
    try:
        convert(*map(Path, sys.argv[1:]))
    except KlearError as error:
        sys.exit(f"gguf: {error}")
