"""What a response is worth: its answer or program is found, judged and paid (Section 3.2).

Mathematics: `answers` judges; `plain` compares plain numbers; `answer_judge` is the process in
which math-verify runs. Code: `code_answers` judges responses, `programs` runs bare programs by
their tests, `program_judge` is the process that knows the tests, `sandbox` and its ``sandbox_*``
parts keep programs in, `compare` compares what they print; `loaders` reads the tests of public data
sets. Both: `extract` finds the answer, `pool` keeps the judges' processes, in which `judge_loop`
reads jobs, `rewards` pays, `groups` does all of it for the groups of a training step. Nothing here
imports torch.
"""
