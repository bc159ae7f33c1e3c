"""The shared apparatus: identity, data, networks, attacks, training, evaluation, reports.

Knows no method by name; `baselines` and `generalist` build on it, never the other way round.
"""
