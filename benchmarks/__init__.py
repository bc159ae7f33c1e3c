"""Speed, as ratios measured side by side: `make bench`; `python -m benchmarks training` is one part."""
