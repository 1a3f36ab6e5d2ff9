"""SBX: Stable-Baselines3 in JAX."""

import sbx

from workers.baselines import main

if __name__ == "__main__":
    main(sbx)
