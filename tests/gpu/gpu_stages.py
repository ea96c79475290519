"""A stage that says which GPU it was given and when, for the workers of test_gpu_fanout."""

import json
import os
import time


def place(folder, inputs, *, seed):
    import torch

    start = time.time()
    names = [torch.cuda.get_device_properties(i).name for i in range(torch.cuda.device_count())]
    value = float(torch.ones(8, device="cuda").sum())
    time.sleep(2.0)
    seen = {
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "names": names,
        "value": value,
        "start": start,
        "end": time.time(),
    }
    (folder.path / "place.json").write_text(json.dumps(seen))
