"""Options of Stable-Baselines3 and CleanRL: their meaning here, or advice what to use instead."""

from __future__ import annotations

from typing import Any

from thespis.core import Box, Spec
from thespis.errors import ThespisError, require, shown
from thespis.tuning import hyper
from thespis.values import default_of, number, show

ACTIVATIONS = ("relu", "elu", "silu", "tanh")
NO_BAR = "leave it out; --json, or progress=False in Python, trains without a progress bar"
NUMBERED = "leave it out: runs are numbered; name sets their name, and out their folder"
REPEATED = "leave it out; noise_repeat = N reuses exploration noise for up to N steps"
UNSUPPORTED = {  # options without a counterpart, and what to do instead
    "policy": "leave it out: networks follow from the environment, and hidden gives their sizes",
    "policy_kwargs": "give its parts as options: net_arch, n_critics, actor.activation and "
    "critic.activation",
    "callback": "give callbacks, a list of objects or classes derived from thespis.Callback",
    "verbose": NO_BAR,
    "progress_bar": NO_BAR,
    "tensorboard_log": "leave it out: every run has a folder tensorboard",
    "tb_log_name": NUMBERED,
    "exp_name": NUMBERED,
    "log_interval": "give log_freq, the environment steps between rows of metrics",
    "cuda": "give device, one of auto, cpu, gpu and tpu",
    "torch_deterministic": "leave it out: runs are always reproducible",
    "reset_num_timesteps": "leave it out; to continue a run: thespis resume RUN --steps N",
    "action_noise": "give noise to td3, the standard deviation for actions in [-1, 1]; "
    "noise_repeat lets steps share it",
    "use_sde": REPEATED,
    "sde_sample_freq": REPEATED,
    "use_sde_at_warmup": "leave it out; warm_up = policy acts by the untrained policy",
    "replay_buffer_class": "leave it out; prioritized_replay = true samples by priority",
    "replay_buffer_kwargs": "leave it out; time limits are never treated as terminations",
    "optimize_memory_usage": "leave it out: each observation is stored once",
    "stats_window_size": "leave it out: means are over the episodes since the last row",
    "vec_env": "leave it out; envs = N steps N environments in parallel",
    "normalize": "give normalize_observations = true, and reward_norm = std for rewards",
    "track": "give wandb, mlflow or trackio, the name of a project",
    "wandb_entity": "give wandb, the name of a project, and set WANDB_ENTITY",
    "capture_video": "leave it out; thespis play RUN makes a video",
    "save_model": "leave it out: every run keeps checkpoints and its best policy",
    "autotune": "give ent_coef = auto, or a number for a fixed temperature",
}


def advice(name: str) -> str:
    """Returns what to do about an option of another library; empty if it is none."""
    text = UNSUPPORTED.get(name)
    return f"{name} is an option of another library: {text}" if text else ""


def networks(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values with `policy_kwargs` and a dict as `net_arch` converted to our options."""
    values = dict(values)
    inside = values.pop("policy_kwargs", None)
    if inside is not None:
        if not isinstance(inside, dict):
            raise ThespisError(
                f"policy_kwargs = {shown(inside)}: {UNSUPPORTED['policy_kwargs']}, or a dict"
            )
        for name, value in inside.items():
            if name in ("net_arch", "n_critics"):
                values.setdefault(name, value)
            elif name == "activation_fn":
                chosen = activation(value)
                values = {"actor.activation": chosen, "critic.activation": chosen} | values
            else:
                raise ThespisError(
                    f"policy_kwargs = {name}: only net_arch, n_critics and activation_fn are "
                    f"supported{FURTHER.get(name, '')}"
                )
    if isinstance(values.get("net_arch"), dict):
        arch = values.pop("net_arch")
        if set(arch) != {"pi", "qf"}:
            raise ThespisError(
                f"net_arch = {shown(arch)}: give the layers of all networks, such as [64, 64], or "
                "a dict of pi for the actor and qf for the critics"
            )
        values |= {"net_arch": arch["pi"], "critic_hidden": arch["qf"]}
    return values


FURTHER = {  # other parts of policy_kwargs, and the nearest option
    "optimizer_class": "; give optimizer = adam or adamw",
    "optimizer_kwargs": "; give adam_b1, adam_b2, weight_decay or max_grad_norm",
    "log_std_init": "; give log_std_range or std",
    "clip_mean": "; give log_std_range or std",
    "use_expln": "; give std, such as softplus",
    "features_extractor_class": "; images get conv_channels, conv_kernels and conv_strides",
    "features_extractor_kwargs": "; images get conv_channels, conv_kernels and conv_strides",
    "share_features_extractor": "; give shared_encoder",
    "normalize_images": "; images are always scaled",
    "layer_norm": "; give critic.norm = layer and actor.norm = layer",
    "dropout_rate": "; give critic.dropout",
    "n_quantiles": "; give quantiles, with the preset tqc",
}


def activation(function: Any) -> str:
    """Returns our name of an activation: a class or function of PyTorch, Flax or JAX, or text."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    if name.lower() not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ThespisError(f"activation_fn = {shown(name or function)}: give one of {known}")
    return name.lower()


def rate(value: Any) -> float:
    """Returns a learning rate; for a schedule, raises an error that says how to write it."""
    if isinstance(value, str) and value.startswith("lin_"):  # as in RL Zoo's files
        first, last = number("learning_rate", value.removeprefix("lin_")), 0.0
    elif callable(value):
        try:
            first, last = (number("learning_rate", value(x)) for x in (1.0, 0.0))
        except Exception:
            raise ThespisError(
                f"learning_rate = {shown(value)}: give a number; for a schedule, add lr_schedule = "
                "linear or cosine and lr_end, the final fraction of the rate"
            ) from None
    else:
        return number("learning_rate", value)
    share = f"{last / first:g}" if first else "0"
    raise ThespisError(
        f"learning_rate = {shown(value)} is a schedule: give learning_rate = {first:g}, "
        f"lr_schedule = linear (or cosine) and lr_end = {share}, the final fraction of the rate"
    )


def temperature(algorithm: type, value: Any, form: str) -> dict[str, Any]:
    """Returns our options for `ent_coef`: auto, auto_0.1 or a number."""
    require_entropy(algorithm, "ent_coef", value)
    learned, _, start = str(value).partition("_")
    if learned != "auto":
        fixed = number("ent_coef", value) if is_number(value) else None
        if fixed is None:
            raise ThespisError(f"ent_coef = {shown(value)}: give auto, auto_0.1 or a number")
        if default_of(algorithm, "temperature") is None:
            raise ThespisError(
                f"ent_coef = {shown(value)}: {algorithm.__name__} learns its temperatures; give "
                f"auto, or auto_{fixed:g} to start from {fixed:g}"
            )
        return {"temperature": "fixed", "alpha": fixed}
    if start and not is_number(start):
        raise ThespisError(f"ent_coef = {shown(value)}: give auto, auto_0.1 or a number")
    learns = {"temperature": "log"} if form == "fixed" else {}
    return learns | ({"alpha": float(start)} if start else {})


def is_number(value: Any) -> bool:
    try:
        number("ent_coef", value)
        return True
    except ThespisError:
        return False


def require_entropy(algorithm: type, name: str, value: Any) -> None:
    """Refuses options of the entropy for algorithms without an entropy bonus."""
    require(
        "alpha" in hyper.declared(algorithm.Hyper),
        f"{name} = {shown(value)}: {algorithm.__name__} has no entropy in its objective; leave it "
        "out, or use sac",
    )


def entropy(algorithm: type, value: Any) -> dict[str, Any]:
    """Returns our options for `target_entropy`: auto is the default, a number may be a total."""
    require_entropy(algorithm, "target_entropy", value)
    if not isinstance(value, str):
        return {"target_entropy": value}
    if value == "auto":
        return {"hp.target_entropy": hyper.defaults(algorithm.Hyper)["target_entropy"]}
    require(is_number(value), f"target_entropy = {shown(value)}: give a number, or auto")
    return {"target_entropy": number("target_entropy", value)}


def refuse_total(value: Any, spec: Spec) -> None:
    """Refuses a `target_entropy` that may be meant for the whole action, as in other libraries."""
    if spec.agents or not isinstance(spec.single, Box) or spec.single.size == 1:
        return
    size, numbers = spec.single.size, hyper.numbers("target_entropy", value)
    per_dimension = [f"{x / size:.4g}" for x in numbers]
    raise ThespisError(
        f"target_entropy = {show(value)}: is it per action dimension, of which there are {size}, "
        f"or the total as in Stable-Baselines3? Give hp.target_entropy = {show(numbers)} if per "
        f"dimension, hp.target_entropy = {show(per_dimension)} if it is the total"
    )


def train_freq(value: Any) -> int:
    """Returns the steps between updates, from a number or (4, "step") as in Stable-Baselines3."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        if value[1] != "step":
            raise ThespisError(
                f"train_freq = {shown(value)}: updates are scheduled by steps, not episodes; give "
                "updates_per_step, such as 1 update per step"
            )
        value = value[0]
    return int(number("train_freq", value, whole=True))
