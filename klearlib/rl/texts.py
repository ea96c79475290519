"""Long texts, shortened."""

from __future__ import annotations


def shortened(text: str, *, max_chars: int) -> str:
    """`text`, of a longer one its start and end and between them how much is left out.

    >>> shortened("0123456789", max_chars=8)
    '012345 [... 2 of 10 characters left out ...] 89'
    """
    if len(text) <= max_chars:
        return text
    head, left_out = max_chars * 3 // 4, len(text) - max_chars
    mark = f" [... {left_out} of {len(text)} characters left out ...] "
    return text[:head] + mark + text[len(text) - (max_chars - head) :]
