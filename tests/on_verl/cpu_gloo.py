"""The process group of verl's training processes on CPUs, named by ``model.external_lib``.

verl asks torch for one backend of the CPU and one of the device, which are the same here and which
torch refuses; where a group is there already, verl takes it.
"""

import os

import torch.distributed

if os.environ.get("WG_BACKEND") == "ray" and not torch.distributed.is_initialized():
    torch.distributed.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
