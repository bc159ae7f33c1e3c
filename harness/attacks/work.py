"""Passes of single images through a network, by kind: the unit in which work is counted."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Work:
    """How many passes of each kind; as a price, the cost of one pass of each kind.

    `forward` has no backward pass, `input_gradients` go back to the image (a step of an attack),
    `updates` go back to the weights.
    """

    forward: float = 0.0
    input_gradients: float = 0.0
    updates: float = 0.0

    @property
    def all_forward(self) -> float:
        return sum(astuple(self))

    @property
    def backward(self) -> float:
        return self.input_gradients + self.updates

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * count for count in astuple(self)))

    def at(self, price: Work) -> float:
        """What this work costs if one pass of each kind costs `price`."""
        return sum(a * b for a, b in zip(astuple(self), astuple(price), strict=True))
