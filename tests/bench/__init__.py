"""Benchmarks beside other products: `python -m tests.bench`. Not tests: they print results."""
