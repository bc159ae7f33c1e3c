"""What leaves this project: Parquet, RobustBench's JSON, a model card, a hub. Torch-free."""
