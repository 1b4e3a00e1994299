"""Measure binmoe.torch beside plain torch, in one run, every result verified: `python -m binmoe.bench --help`."""
