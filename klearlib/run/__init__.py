"""One run: cache keys, checkpoints, resume, a pool of processes, progress and provenance.

`stage` says what is computed, `folder` where it is kept, `pool` starts it and `worker` is the
process that computes it, which `preload` forks where it can. A `task` takes a place
beside stages. Nothing here knows what a stage computes.
"""
