"""The run directory: config, metrics, checkpoints, resume."""
