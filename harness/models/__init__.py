"""Networks, their folded copies for attacks, Grad-CAM, saved weights. Imports data and below."""
