"""Other libraries' names for metrics, to compare runs with theirs.

They are used in TensorBoard and on trackers; metrics.csv keeps ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from thespis.errors import ThespisError, or_all

SETS = {
    "cleanrl": {
        "rollout/ep_rew_mean": "charts/episodic_return",
        "rollout/ep_len_mean": "charts/episodic_length",
        "time/fps": "charts/SPS",
        "train/actor_loss": "losses/actor_loss",
        "train/critic_loss": "losses/qf_loss",
        "train/ent_coef": "losses/alpha",
        "train/ent_coef_loss": "losses/alpha_loss",
    },
    "brax": {
        "eval/mean_reward": "eval/episode_reward",
        "eval/std_reward": "eval/episode_reward_std",
        "eval/mean_ep_length": "eval/avg_episode_length",
        "time/fps": "training/sps",
        "train/actor_loss": "training/actor_loss",
        "train/critic_loss": "training/critic_loss",
        "train/ent_coef": "training/alpha",
        "train/ent_coef_loss": "training/alpha_loss",
        "replay/size": "training/buffer_current_size",
    },
    "rllib": {
        "rollout/ep_rew_mean": "env_runners/episode_return_mean",
        "rollout/ep_len_mean": "env_runners/episode_len_mean",
        "eval/mean_reward": "evaluation/env_runners/episode_return_mean",
        "eval/mean_ep_length": "evaluation/env_runners/episode_len_mean",
    },
}


def other_names(keys: Iterable[str]) -> dict[str, str]:
    """Returns {our name: theirs} from names of sets and pairs OURS=THEIRS; later ones override."""
    names: dict[str, str] = {}
    for word in keys:
        ours, equals, theirs = word.partition("=")
        if equals and ours and theirs:
            names[ours] = theirs
        elif word in SETS:
            names |= SETS[word]
        else:
            hint = or_all(word, SETS)
            raise ThespisError(f"log_keys = {word}: give OURS=THEIRS, or the name of a set{hint}")
    twice = [name for name in names.values() if list(names.values()).count(name) > 1]
    if twice:
        raise ThespisError(f"log_keys: two metrics would be called {twice[0]}; rename one of them")
    return names
