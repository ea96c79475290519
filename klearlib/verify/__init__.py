"""What a response is worth: its answer or program is found, judged and paid (Section 3.2).

Mathematics: `answers` judges, `answer_judge` is the process in which math-verify runs. Code:
`code_answers` judges responses, `programs` runs programs by their tests, `program_judge` is the
process that knows the tests, `sandbox` and its ``sandbox_*`` parts keep programs in, `presets` says
what they find around them. `extract` finds the answer, `fences` the program. Both: `pool` keeps the
judges' processes, `rewards` pays, `groups` does all of it for a training step. Nothing here imports
torch.
"""

MAX_TIMEOUT_S, MAX_MEMORY_MB = 3600.0, 2**20
"""Of one answer or one test of a program: the sandbox cannot set more, and none would be judged."""
