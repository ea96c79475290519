"""What a response is worth: its answer is found, judged and turned into a reward (Section 3.2).

`answers` judges, `rewards` pays; `extract` finds the answer, `plain` compares plain numbers, and
`pool` keeps the `judge` processes in which math-verify runs. Nothing here imports torch.
"""
