"""The machine: device, GPUs, torchvision, processes that share a batch. Imports core."""
