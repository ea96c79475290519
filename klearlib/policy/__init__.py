"""The only place that touches transformers: loading, log-probabilities, sampling."""
