"""What all engines share: the prompts' tokens, the tokens that end a response, its record."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt
from klearlib.records import Problem, Response


def chat_prompts(
    model, tokenizer, problems: Sequence[Problem], *, group_size: int, max_tokens: int
) -> list[tuple[str, list[int]]]:
    """Text and token ids of each problem's prompt, see `klearlib.policy.load.chat_prompt`.

    Raises ValueError where nothing is to be sampled, and KlearError where the longest, with
    `max_tokens` of a response, exceeds the positions of the model.
    """
    if not problems or group_size < 1:
        raise ValueError(f"need problems and group_size >= 1, got {len(problems)}, {group_size}")
    prompts = [chat_prompt(tokenizer, problem.prompt) for problem in problems]
    longest = max(len(ids) for _, ids in prompts) + max_tokens
    positions = num_positions(model)
    if positions is not None and longest > positions:
        raise KlearError(
            f"prompt plus response may reach {longest} tokens; the model allows {positions}: "
            "lower max_new_tokens or raise max_positions"
        )
    return prompts


def num_positions(model) -> int | None:
    """The positions that a model knows, None where its config names no limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def end_ids(model, tokenizer) -> list[int]:
    """The tokens that end a response: those of the model's generation config and the
    tokenizer's."""
    configured = model.generation_config.eos_token_id
    ends = configured if isinstance(configured, list) else [configured]
    return sorted({end for end in (*ends, tokenizer.eos_token_id) if end is not None})


def response_to(
    problem: Problem,
    prompt: tuple[str, list[int]],
    token_ids: Sequence[int],
    logp: Sequence[float],
    truncated: bool,
    tokenizer,
) -> Response:
    """The record of one response. prompt: as `chat_prompts` gives it."""
    return Response(
        problem_id=problem.id,
        prompt=prompt[0],
        prompt_ids=tuple(prompt[1]),
        token_ids=tuple(token_ids),
        logp=tuple(logp),
        text=tokenizer.decode(list(token_ids), skip_special_tokens=True),
        truncated=truncated,
    )
