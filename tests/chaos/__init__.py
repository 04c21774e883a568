"""Random faults against the real server, its SDKs and raw readers, checked against its promises.

`plan` draws a run from a seed, `checker` checks the received messages, and `shrinker` finds the
faults that a violation needs; these three do no I/O. `world` runs the processes, and `networks` the
proxies on which faults act. `actors`, `readers` and `roamers` are the clients. `run` executes a
plan.
"""
