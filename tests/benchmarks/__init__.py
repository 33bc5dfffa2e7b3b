"""Benchmarks against peers on the same work in the same run; ``make bench`` runs them, the tests do not."""
