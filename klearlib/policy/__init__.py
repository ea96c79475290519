"""The only place that touches transformers: loading, token log-probabilities, sampling."""
