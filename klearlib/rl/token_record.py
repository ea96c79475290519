"""The tokens of an update, kept so that its ratios, F and loss can be made again by hand."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from klearlib.run.files import write_bytes

if TYPE_CHECKING:
    from klearlib.records import Group
    from klearlib.rl.metrics import MicroBatchStats
    from klearlib.rl.rollouts import Row

MAX_TOKENS = 2**16
"""Of an update with more response tokens its first rows are kept."""
TOKENS = "tokens"
"""Folder of a run with a file for each step that has samples."""
_OF_TOKEN = ("logp_old", "advantage", "place", "weight", "lm_weight", "correction")


def save_tokens(
    path: Path, rows: Sequence[Row], stats: Sequence[MicroBatchStats], groups: Sequence[Group]
) -> None:
    """Write what the last update of a step saw, before it moved the weights.

    rows: of its mini-batch, R of them in the order in which `stats` have their K response tokens.
    The file has, of each row, problem, response, is_correct and prompt_length [R], and the ids of
    their prompts one after the other; of each response token its row, id, logp, entropy and the
    fields of `klearlib.records.TokenBatch` [K].
    """
    ends = np.cumsum([len(row.logp_old) for row in rows])
    num_rows = max(1, int(np.searchsorted(ends, MAX_TOKENS, side="right")))
    kept, num_tokens = rows[:num_rows], int(ends[num_rows - 1])
    arrays = {name: [getattr(each.batch, name) for each in stats] for name in _OF_TOKEN}
    arrays |= {"logp": [s.logp for s in stats], "entropy": [s.entropy for s in stats]}
    columns = {name: torch.cat(parts)[:num_tokens].cpu().numpy() for name, parts in arrays.items()}
    lengths = [len(row.logp_old) for row in kept]
    columns["row"] = np.repeat(np.arange(num_rows, dtype=np.int32), lengths)
    columns["id"] = np.concatenate([row.ids[row.num_prompt :].numpy() for row in kept])
    prompts = [row.ids[: row.num_prompt].numpy() for row in kept]
    columns["prompt"] = np.concatenate(prompts)
    columns["prompt_length"] = np.array([len(each) for each in prompts])
    columns["problem"] = np.array([groups[row.place[0]].problem.id for row in kept])
    columns["response"] = np.array([row.place[1] for row in kept])
    columns["is_correct"] = np.array([row.is_correct for row in kept])
    content = io.BytesIO()
    np.savez(content, **columns)
    write_bytes(path, content.getvalue(), make_folder=True)
