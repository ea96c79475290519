"""A model of one GGUF file as a folder in the Hugging Face format, which all of klear reads.

``python tests/smollm2/convert_gguf.py FILE.gguf FOLDER`` needs the packages gguf and accelerate.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from klearlib.policy.load import save_policy


def convert(file: Path, folder: Path) -> None:
    """Write `folder`: config.json, the tokenizer with its chat template, and the weights in fp32 as
    quantisation left them; a folder that is there stays as it is."""
    if folder.exists():
        return
    how = {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **how)
    read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **how)
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
    convert(*map(Path, sys.argv[1:]))
