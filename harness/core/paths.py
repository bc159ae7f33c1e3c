"""Where things are: one line per kind of file, all below one results folder."""

from __future__ import annotations

from pathlib import Path


def model(results: Path, run: str) -> Path:
    return results / "models" / run / "model.safetensors"


def description(results: Path, run: str) -> Path:
    """What the run was, where it was made, which epoch it deploys."""
    return results / "models" / run / "run.json"


def history(results: Path, run: str) -> Path:
    return results / "models" / run / "history.csv"


def trace(results: Path, run: str) -> Path:
    """What a watched run kept of its learners; empty for all others."""
    return results / "models" / run / "trace.npz"


def checkpoint(results: Path, run: str) -> Path:
    """Not an output of the workflow: Snakemake deletes the outputs of a job that failed."""
    return results / "models" / run / "checkpoint.pt"


def shard(results: Path, run: str, probe: str, number: int) -> Path:
    return results / "records" / run / probe / f"{number:05d}.npz"


def part(results: Path, evaluation: str, number: int | str, of: int | str) -> Path:
    """The word of one of an evaluation's jobs that its batches are there."""
    run, _, fingerprint = evaluation.rpartition("-")
    return results / "records" / run / f"part-{number}-of-{of}-{fingerprint}.json"


def records(results: Path, evaluation: str) -> Path:
    return results / "records" / f"{evaluation}.npz"
