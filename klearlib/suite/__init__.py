"""The whole suite from outside: what ``klear plan``, ``run``, ``doctor`` and ``status`` call."""
