"""Attacks on networks: balls, losses, the contract with `perturb`, PGD, APGD, AutoAttack.

Imports models and below.
"""
