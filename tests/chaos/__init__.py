"""Random faults against the real server, its SDKs and raw readers, checked against the promises.

`plan` draws a run from a seed, `checker` judges what was heard, `shrinker` finds the faults that a
violation needs; these three do no I/O. `world` runs the processes and `networks` the proxies that
faults act on, `actors` and `readers` are the clients, `run` carries a plan out.
"""
