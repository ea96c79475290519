"""The models and data sets that stages read, and which of them are not on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from klearlib.hub import hub_folder
from klearlib.params import RealParams
from klearlib.run.stage import Stage


def missing_of(real: RealParams, stages: Sequence[Stage]) -> list[str]:
    """One line for each asset of `real` that one of `stages` reads and that is not here."""
    from klearlib.real.missing import missing_assets
    from klearlib.real.paths import located

    read = set(_read_by(stages))
    return [
        str(each)
        for each in missing_assets(real)
        if any((each.kind, at) in read for at in (each.name, str(located(each.name)), each.looked))
    ]


def _read_by(stages: Iterable[Stage]) -> Iterator[tuple[str, str]]:
    """(kind, place or name) of what stages read from outside of the results."""
    for stage in stages:
        params = stage.params
        if stage.target == "klearlib.real.model:link_model":
            yield "model", params["model"]
            if params["chat_template"] is not None:
                yield "chat template", params["chat_template"]
        elif stage.target == "klearlib.real.data:link_data":
            hub_id, location = params["hub_id"], params["location"]
            yield "dataset", str(hub_folder("dataset", hub_id)) if location is None else location
