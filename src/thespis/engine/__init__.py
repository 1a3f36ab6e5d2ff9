"""The training loop, its two drivers, rollouts, evaluation, and populations."""
