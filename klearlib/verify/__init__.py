"""What a response is worth: its answer or program is found, judged and paid (Section 3.2).

Mathematics: `answers` judges. `extract` finds the answer, `plain` takes its presentation away,
`numbers` reads written numbers, `parts` takes lists and intervals apart, `match` compares, and
`answer_judge` is the process in which math-verify runs. Code: `code_answers` judges. `fences` finds
the program, `presets` says what it finds around it, `programs` runs it by its tests,
`program_judge` is the process that knows the tests, `sandbox` and its ``sandbox_*`` parts keep
programs in. Both: `pool` keeps the judges' processes, `rewards` pays, `groups` does all of it for a
training step. Nothing here imports torch.
"""

MAX_TIMEOUT_S, MAX_MEMORY_MB = 3600.0, 2**20
"""Of one answer or one test of a program: the sandbox cannot set more, and none would be judged."""
