"""Figures from records: one file per kind of drawing, one style for all. Torch-free."""
