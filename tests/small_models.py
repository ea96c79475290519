"""Random models of a few weights, of any family that transformers has."""

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def small_model(family: str = "Qwen3", *, seed: int = 0, head: str = "ForCausalLM", **changes):
    """The same one for the same seed, in evaluation mode.

    changes: of `SMALL`, and other fields of the family's config.
    """
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(**SMALL | changes)
    torch.manual_seed(seed)
    return getattr(transformers, family + head)(config).eval()


def small_gpt2(**changes):
    """No rotary positions, no grouped heads."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    small = {"vocab_size": 9, "n_embd": 8, "n_layer": 1, "n_head": 1}
    return GPT2LMHeadModel(GPT2Config(**small | changes)).eval()


def response_logprobs(model, response, temperature: float = 1.0):
    """log pi [T] of the tokens of a response, by all of the model's logits."""
    import torch

    ids = torch.tensor([response.prompt_ids + response.token_ids], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
    logp = torch.log_softmax(logits / temperature, -1).gather(1, ids[0, 1:, None])[:, 0]
    return logp[len(response.prompt_ids) - 1 :]
