"""The embedded world: problems, benchmarks, chains of thought and models, all made from a seed."""
