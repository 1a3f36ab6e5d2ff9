"""What users of Stable-Baselines3 and CleanRL write: its meaning here, or what to write instead."""

from __future__ import annotations

from typing import Any

from thespis.core import Box, Spec
from thespis.errors import ThespisError, require, shown
from thespis.tuning import hyper
from thespis.values import number, show

ACTIVATIONS = ("relu", "elu", "silu", "tanh")
NO_BAR = "leave it out; --json, or progress=False in Python, trains without a progress bar"
NUMBERED = "leave it out: runs are numbered, and out names another folder than runs"
HELD = "leave it out; noise_repeat lets up to so many steps share their exploration noise"
MEANINGLESS = {  # here, and what to do instead
    "policy": "leave it out: networks follow from the environment, and hidden gives their sizes",
    "policy_kwargs": "give its parts as options: net_arch, n_critics, actor.activation and "
    "critic.activation",
    "verbose": NO_BAR,
    "progress_bar": NO_BAR,
    "tensorboard_log": "leave it out: every run has a folder tensorboard",
    "tb_log_name": NUMBERED,
    "exp_name": NUMBERED,
    "log_interval": "give log_freq, the steps between rows of metrics",
    "cuda": "give device, one of auto, cpu, gpu and tpu",
    "torch_deterministic": "leave it out: a run is repeatable as it is",
    "reset_num_timesteps": "leave it out; to train a run on: thespis resume RUN --steps N",
    "action_noise": "give noise to td3, the standard deviation if actions are in [-1, 1]; "
    "noise_repeat lets steps share it",
    "use_sde": HELD,
    "sde_sample_freq": HELD,
    "use_sde_at_warmup": "leave it out; warm_up = policy acts by the untrained policy",
    "replay_buffer_class": "leave it out; prioritized_replay = true draws by priority",
    "replay_buffer_kwargs": "leave it out; a time limit is no termination here",
    "optimize_memory_usage": "leave it out: each observation is stored once",
    "stats_window_size": "leave it out: means are of the episodes since the last row",
    "vec_env": "leave it out; envs = N steps N of them together",
    "normalize": "give normalize_observations = true, and reward_norm = std for rewards",
    "track": "give wandb, mlflow or trackio, the name of a project",
    "wandb_entity": "give wandb, the name of a project, and set WANDB_ENTITY",
    "capture_video": "leave it out; thespis play RUN makes a video",
    "save_model": "leave it out: every run keeps checkpoints and its best policy",
    "autotune": "give ent_coef = auto, or a number for a temperature that is fixed",
}


def advice(name: str) -> str:
    """Returns what to do about a name of another library; nothing if it is none."""
    text = MEANINGLESS.get(name)
    return f"{name} is an option of another library: {text}" if text else ""


def networks(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values in which `policy_kwargs` and a `net_arch` of several parts are ours."""
    values = dict(values)
    inside = values.pop("policy_kwargs", None)
    if inside is not None:
        if not isinstance(inside, dict):
            raise ThespisError(
                f"policy_kwargs = {shown(inside)}: {MEANINGLESS['policy_kwargs']}, or a dict"
            )
        for name, value in inside.items():
            if name in ("net_arch", "n_critics"):
                values.setdefault(name, value)
            elif name == "activation_fn":
                chosen = activation(value)
                values = {"actor.activation": chosen, "critic.activation": chosen} | values
            else:
                raise ThespisError(
                    f"policy_kwargs = {name}: of these there are net_arch, n_critics and "
                    f"activation_fn{FURTHER.get(name, '')}"
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


FURTHER = {  # parts of policy_kwargs, and what is nearest to them
    "optimizer_class": "; give optimizer = adam or adamw",
    "optimizer_kwargs": "; give adam_b1, adam_b2, weight_decay or max_grad_norm",
    "log_std_init": "; give log_std_range or std",
    "clip_mean": "; give log_std_range or std",
    "use_expln": "; give std, such as softplus",
    "features_extractor_class": "; images get conv_channels, conv_kernels and conv_strides",
    "features_extractor_kwargs": "; images get conv_channels, conv_kernels and conv_strides",
    "share_features_extractor": "; give shared_encoder",
    "normalize_images": "; images are scaled as they are",
    "layer_norm": "; give critic.norm = layer and actor.norm = layer",
    "dropout_rate": "; give critic.dropout",
    "n_quantiles": "; give quantiles, with the preset tqc",
}


def activation(function: Any) -> str:
    """Returns our name of a class or function of PyTorch, Flax or JAX, or of a text."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    if name.lower() not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ThespisError(f"activation_fn = {shown(name or function)}: give one of {known}")
    return name.lower()


def rate(value: Any) -> float:
    """Returns a learning rate, or says how a schedule is written."""
    if isinstance(value, str) and value.startswith("lin_"):  # as in the zoo's files
        first, last = number("learning_rate", value.removeprefix("lin_")), 0.0
    elif callable(value):
        try:
            first, last = (number("learning_rate", value(x)) for x in (1.0, 0.0))
        except Exception:
            raise ThespisError(
                f"learning_rate = {shown(value)}: give a number, and lr_schedule = linear or "
                "cosine if it goes to lr_end of itself over the run"
            ) from None
    else:
        return number("learning_rate", value)
    share = f"{last / first:g}" if first else "0"
    raise ThespisError(
        f"learning_rate = {shown(value)} is a schedule: give learning_rate = {first:g}, "
        f"lr_schedule = linear (or cosine) and lr_end = {share}, the share that is left at the end"
    )


def temperature(algorithm: type, value: Any, form: str) -> dict[str, Any]:
    """Returns what `ent_coef` says: auto, auto_0.1 or a number."""
    require_entropy(algorithm, "ent_coef", value)
    learned, _, start = str(value).partition("_")
    if learned != "auto":
        fixed = number("ent_coef", value) if is_number(value) else None
        if fixed is None:
            raise ThespisError(f"ent_coef = {shown(value)}: give auto, auto_0.1 or a number")
        if not hasattr(algorithm, "temperature"):
            raise ThespisError(
                f"ent_coef = {shown(value)}: {algorithm.__name__} learns its temperatures; give "
                f"auto, or auto_{fixed:g} to begin with that"
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
    """Refuses options of the entropy where there is none."""
    require(
        "alpha" in hyper.declared(algorithm.Hyper),
        f"{name} = {shown(value)}: {algorithm.__name__} has no entropy in its objective; leave it "
        "out, or take sac",
    )


def entropy(algorithm: type, value: Any) -> dict[str, Any]:
    """Returns what `target_entropy` says: auto is the default, a number may be a total."""
    require_entropy(algorithm, "target_entropy", value)
    if not isinstance(value, str):
        return {"target_entropy": value}
    if value == "auto":
        return {"hp.target_entropy": hyper.defaults(algorithm.Hyper)["target_entropy"]}
    require(is_number(value), f"target_entropy = {shown(value)}: give a number, or auto")
    return {"target_entropy": number("target_entropy", value)}


def refuse_total(value: Any, spec: Spec) -> None:
    """Refuses a `target_entropy` that may be meant for the whole action, as others have it."""
    if spec.agents or not isinstance(spec.single, Box) or spec.single.size == 1:
        return
    size, given = spec.single.size, hyper.numbers("target_entropy", value)
    each = [f"{x / size:.4g}" for x in given]
    raise ThespisError(
        f"target_entropy = {show(value)}: of each of the {size} dimensions of the action, or of "
        f"all together as in Stable-Baselines3? Give hp.target_entropy = {show(given)} for the "
        f"one, hp.target_entropy = {show(each)} for the other"
    )


def train_freq(value: Any) -> int:
    """Returns the steps between updates; Stable-Baselines3 may write (4, "step")."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        if value[1] != "step":
            raise ThespisError(
                f"train_freq = {shown(value)}: updates follow steps here, not episodes; give "
                "updates_per_step, such as 1 update for every step"
            )
        value = value[0]
    return int(number("train_freq", value, whole=True))
