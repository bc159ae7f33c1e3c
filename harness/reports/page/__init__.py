"""The page that readers open: one file with everything in it. Torch-free."""
