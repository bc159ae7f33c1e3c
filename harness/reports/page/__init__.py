"""The HTML page of a scale: one file with everything in it. Torch-free."""
