"""Networks that nobody here trained: loaded, tried, attacked and reported, by `harness.benchmark` and
`generalist-bench evaluate --model`. Imports reports and below."""
