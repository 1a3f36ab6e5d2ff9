"""Stable-Baselines3."""

import stable_baselines3
import torch

from workers.learn_baselines import main

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(stable_baselines3, "torch")
