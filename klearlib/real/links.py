"""Large files that a stage refers to instead of copying them."""

from __future__ import annotations

from pathlib import Path


def link_file(source: Path, target: Path) -> None:
    """Make `target` a symbolic link to the file `source`, in the place of what is there.

    A finished stage is verified through its links: the sizes and digests in its done.json are those
    of the files behind them, so one that was removed or changed shows as a damaged entry.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(source.resolve())
