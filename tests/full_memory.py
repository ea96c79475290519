"""A machine whose memory is soon full."""

from klearlib.policy.reader import in_chunks


def too_large_for(max_tokens: int, error: BaseException):
    """`in_chunks` where the memory holds passes of `max_tokens` padded tokens."""

    def bounded(reader, part, **how):
        if len(part) * max(len(each.ids) for each in part) > max_tokens:
            states = reader.states(part)
            if states.requires_grad:
                states.sum().backward()  # what a pass that fails in its middle leaves behind
            raise error
        yield from in_chunks(reader, part, **how)

    return bounded
