"""Tests of the programs under `benchmarks/`."""
