"""Stable-Baselines3."""

import stable_baselines3

from workers.baselines import main

if __name__ == "__main__":
    main(stable_baselines3)
