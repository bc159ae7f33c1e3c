"""Generalist's learners side by side (`parallel: true`) against one after the other.

A step of each per round, one thread per process, a residual network of widths 16 and 32 on batches of
128 images of 32x32, ten attack steps. NT + l_inf has little to gain: its NT step is short.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.setting import digits, lab_for, paper_method
from benchmarks.timing import Row, faster, in_turn
from harness.models import NETWORKS
from harness.training.contracts import Clock
from harness.training.weights import tensors

NETWORKS["two_stages"] = ("resnet", {"widths": (16, 32), "blocks": 1})
ROUNDS = 10


def measure() -> list[Row]:
    torch.set_num_threads(1)
    inner, equal = side_by_side("generalist_d_linf_l2")
    outer, equal_too = side_by_side("generalist_d_nt_linf")
    return [
        faster("Generalist-D (l_inf + l_2), two processes on two cores", inner, 1.7),
        Row("Generalist-D (NT + l_inf), two processes on two cores", f"{outer:.2f}x as fast"),
        Row(
            "final weights of both against serial",
            "equal to the bit" if equal and equal_too else "DIFFERENT",
            "equal",
            equal and equal_too,
        ),
    ]


def side_by_side(slug: str) -> tuple[float, bool]:
    """How much faster a step is, and whether the weights are the serial ones at the end."""
    batch, method = digits(128), paper_method(slug)
    lab = lab_for("two_stages", batch)
    serial, parallel = (replace(method, parallel=choice).start(lab) for choice in (None, True))
    done = {"serial": 0, "parallel": 0}

    def step(name, training):
        training.step(batch, Clock(done[name], 0, ROUNDS + 1, 1))
        done[name] += 1

    times = in_turn(
        {"serial": lambda: step("serial", serial), "parallel": lambda: step("parallel", parallel)},
        ROUNDS,
    )
    pairs = zip(tensors(serial.deployed()), tensors(parallel.deployed()), strict=True)
    return times.ratio("serial", "parallel"), all(torch.equal(*pair) for pair in pairs)
