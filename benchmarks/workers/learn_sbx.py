"""SBX: Stable-Baselines3 in JAX."""

import jax
import sbx

from workers.learn_baselines import main

if __name__ == "__main__":
    wait = lambda model: jax.block_until_ready((model.policy.actor_state, model.policy.qf_state))
    main(sbx, "sbx-rl", "jax", "jaxlib", "optax", "flax", wait=wait)
