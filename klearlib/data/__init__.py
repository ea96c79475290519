"""Every data set that the paper names, from a raw row to a `Problem` and into files.

`sources` is the table of the data sets and `read_source`; each is declared beside the function that
reads its rows, in `reasoning` (problems with responses), `maths` and `code`. What these share:
`rows` (columns by type, ids), `code_tests` (tests in the forms in which they are written). `files`
finds the rows, `reader` keeps the account, `benchmarks` asserts sizes; `problems`, `lines` and
`tables` are the files that stages hand on. Nothing here imports torch.
"""
