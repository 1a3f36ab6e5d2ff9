"""DADS against an independent NumPy form, and what users rely on beyond one update."""

import dataclasses
import math
import re
from fractions import Fraction
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from thespis.algos import DADS
from thespis.algos.dads import Batch, Extra, Memory, SkillObservation
from thespis.algos.skill_dynamics import SCALES
from thespis.core import Row, ThespisError
from thespis.engine import population
from thespis.engine.evaluation import Descriptor, diversity
from thespis.engine.loop import DeviceDriver, Loop
from thespis.engine.rollout import FrozenPolicy, unroll
from thespis.envs.autoreset import Autoreset
from thespis.envs.classic import PointMass
from thespis.nn.normalization import Running
from thespis.tuning import PBT, hyper
from thespis.xla import fast_random

HYPER = reference.HYPER | {
    "dynamics_lr": 0.04,
    "dynamics_scale": 0.7,
    "importance_clip": 1.5,
    "multiplier": 3.0,
    "slack": 0.2,
    "diversity_scale": 0.6,
    "margin": 0.3,
}
SKILLS = {"one-hot": 3, "uniform": 2}


def make(obs=3, **options) -> DADS:
    """Of observations whose first two coordinates are the descriptor."""
    spec = dataclasses.replace(reference.spec(obs), descriptor="0:2")
    small = {"hidden": (4,), "components": 2, "alternatives": 5, "batch_size": 8}
    return DADS(spec, **(small | options))


def scalars():
    return reference.scalars(DADS.Hyper, HYPER)


def begun(algo: DADS):
    """A state whose networks have learned a little, but whose statistics are new."""
    state = reference.drawn(algo, scalars())
    floats = lambda x: jnp.asarray(np.float32(x))

    def fresh(x):
        if not isinstance(x, Running):
            return x
        mean, var = (floats(np.full(x.mean.shape, number)) for number in (0, 1))
        return Running(mean, var, jnp.int32(0), x.prior)

    state = jax.tree.map(fresh, state, is_leaf=lambda x: isinstance(x, Running))
    none = jax.tree.map(lambda x: jnp.asarray(np.zeros_like(x)), state.returns)
    return dataclasses.replace(state, returns=none)


def returned(state):
    """After four episodes of three skills: two are near the best."""
    skills, yes = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]], np.ones(4, bool)
    add = reference.quick(lambda *x: state.returns.add(*x))
    known = add(skills, np.float32([-3.0, -5.0, -2.6, -2.0]), yes)
    return dataclasses.replace(state, returns=known)


def batch(algo: DADS, seed: int = 0):
    """Transitions of three coordinates with skills; what an invalid one holds must not matter."""
    rng = np.random.default_rng(seed)
    floats = lambda x: jnp.asarray(x, jnp.float32)
    n, wild = reference.BATCH, 1 + 50 * (1 - np.asarray(reference.transitions().valid))[:, None]
    skill = np.eye(algo.skills)[rng.integers(0, algo.skills, n)]
    if algo.skill_kind == "uniform":
        skill = rng.uniform(-1, 1, (n, algo.skills))
    log_p = floats(rng.normal(-1, 0.5, n)) if algo.dynamics_data == "weighted" else None
    return dataclasses.replace(
        reference.transitions(seed=seed),
        obs=floats(rng.normal(size=(n, 3)) * wild),
        next_obs=floats(rng.normal(size=(n, 3)) * wild),
        steps=floats(np.ones(n)),
        extra=Extra(floats(skill), log_p),
    )


# --- the same in NumPy ----------------------------------------------------------------------


def views(algo, obs):
    """What policy and dynamics see, and what is predicted."""
    parts = {"observation": obs, "descriptor": obs[..., :2], "none": obs[..., :0]}
    policy = obs[..., 2:] if algo.policy_sees is None else parts[algo.policy_sees]
    return policy, parts[algo.dynamics_sees or "none"], parts[algo.predicts]


def log_density(algo, hp, net, seen, skill, x):
    """Of one x [n] under the mixture, one component and coordinate after the other."""
    parts, n = algo.components, len(x)
    raw = reference.forward(net, np.concatenate([seen, skill]))
    chance = np.exp(raw[:parts]) / np.exp(raw[:parts]).sum()
    density = 0.0
    for k in range(parts):
        product = chance[k]
        for i in range(n):
            mean, std = raw[parts + k * n + i], hp["dynamics_scale"]
            if algo.dynamics_std == "learned":
                std = std + np.log1p(np.exp(raw[parts + parts * n + k * n + i]))
            product *= np.exp(-0.5 * ((x[i] - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        density += product
    return np.log(max(density, 1e-300))  # so unlikely only in invalid entries


def normalised(numbers, alive, wanted):
    if not wanted or numbers.shape[-1] == 0:
        return numbers
    kept = numbers[alive.astype(bool)]
    return np.clip((numbers - kept.mean(0)) / kept.std(0), -5, 5)


def numpys(algo, state, hp, b, others, noise):
    """One update -> state, losses, rewards. Statistics are those of this batch alone."""
    skill = b["extra"]["skill"]
    policy, seen, before = views(algo, b["obs"])
    next_policy, _, after = views(algo, b["next_obs"])
    alive = b["valid"] * (1 - b["terminated"])
    target = normalised(after - before, alive, algo.normalize_target)
    seen = normalised(seen, alive, algo.normalize_input)
    weight = np.ones(len(alive))
    if algo.dynamics_data == "weighted":
        out = reference.forward(state["actor"].params, np.concatenate([policy, skill], -1))
        mean, raw = np.split(out, 2, -1)
        std, u = np.exp(np.clip(raw, -20, 2)), np.arctanh(b["action"])
        log_normal = -0.5 * ((u - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
        log_p = (log_normal - np.log(1 - b["action"] ** 2)).sum(-1)
        limit = hp["importance_clip"]
        weight = np.clip(np.exp(log_p - b["extra"]["log_p"]), 1 / limit, limit)
    log_q = partial(log_density, algo, hp)

    def dynamics_loss(net):
        found = np.array([log_q(net, *x) for x in zip(seen, skill, target)])
        return -reference.averaged(weight * found, alive)

    if algo.objective == "metra":
        new, told, own = metras(algo, state, hp, b, weight, alive)
    else:
        dynamics, loss = state["dynamics"].descend(dynamics_loss, hp["dynamics_lr"])
        net = (dynamics if algo.order == "sequential" else state["dynamics"]).params
        new, own = {"dynamics": dynamics}, np.zeros(len(alive))
        for i in range(len(alive)):
            mine = log_q(net, seen[i], skill[i], target[i])
            ratios = [np.exp(log_q(net, seen[i], z, target[i]) - mine) for z in others]
            if algo.skill_kind == "uniform":
                ratios.append(1.0)
            own[i] = np.log(len(ratios)) - np.log(np.sum(ratios))
        told = {
            "dynamics_loss": loss,
            "target_mean": reference.averaged(target.T, alive).mean(),
            "target_std": target[alive.astype(bool)].std(0).mean(),
        }
    own = reward = np.where(b["terminated"] > 0, 0, own)
    if algo.with_reward:
        near = smerls(hp, state["returns"], skill)
        reward = b["reward"] + hp["diversity_scale"] * near * own
        told["near_best"] = reference.averaged(near, b["valid"])
    informed = b | {
        "obs": np.concatenate([policy, skill], -1),
        "next_obs": np.concatenate([next_policy, skill], -1),
        "reward": reward,
    }
    rest, metrics, priorities = reference.sac(algo, state | {"stats": None}, hp, informed, noise)
    told |= {
        "intrinsic_reward": reference.averaged(own, b["valid"]),
        "change": reference.averaged(np.abs(after - before).max(-1), alive),
    }
    return rest | new, metrics | told, priorities


def metras(algo, state, hp, b, weight, alive):
    """The representation and its constraint -> new state, metrics, rewards."""
    raw = [
        x if algo.dynamics_sees == "observation" else x[:, :2] for x in (b["obs"], b["next_obs"])
    ]
    kept = raw[0][alive.astype(bool)]
    before, after = (np.clip((x - kept.mean(0)) / kept.std(0), -5, 5) for x in raw)
    way = b["extra"]["skill"]
    if algo.skill_kind == "one-hot":  # its own coordinate 1, the others alike, all together 0
        way = np.where(way > 0, 1, -1 / (algo.skills - 1))
    strength = np.exp(state["multiplier"].params)

    def moved(net):
        return reference.forward(net, after) - reference.forward(net, before)

    def room(net):
        return np.minimum(1 - np.linalg.norm(moved(net), axis=-1) ** 2, hp["slack"])

    def loss(net):
        far = np.array([m @ z for m, z in zip(moved(net), way)])
        return -reference.averaged(weight * (far + strength * room(net)), alive)

    old = state["dynamics"].params
    phi, found = state["dynamics"].descend(loss, hp["dynamics_lr"])
    left = reference.averaged(room(old), alive)
    multiplier, _ = state["multiplier"].descend(lambda log: log * left, hp["dynamics_lr"])
    told = {
        "representation_loss": found,
        "step_length": reference.averaged(np.linalg.norm(moved(old), axis=-1), alive),
        "multiplier": strength,
    }
    net = phi.params if algo.order == "sequential" else old
    reward = np.array([m @ z for m, z in zip(moved(net), way)])
    return {"dynamics": phi, "multiplier": multiplier}, told, reward


def smerls(hp, returns, skill):
    """1 where the return of a skill, a weighted mean over episodes, is near the best."""
    known = int(returns["count"])
    skills, totals = returns["skill"][:known], returns["total"][:known]

    def expected(z):
        weights = [np.exp(-np.sum((z - other) ** 2) / (2 * 0.2**2)) for other in skills]
        return np.average(totals, weights=weights)

    best = max(map(expected, skills))
    return np.array([float(expected(z) >= best - hp["margin"] * abs(best)) for z in skill])


FORMS = [
    {},
    {"skill_kind": "one-hot", "dynamics_data": "replay"},
    {"skill_kind": "one-hot", "dynamics_data": "replay", "order": "simultaneous"},
    {"dynamics_std": "learned", "dynamics_sees": "descriptor"},
    {"dynamics_data": "weighted", "normalize_target": False, "normalize_input": False},
    {"predicts": "observation", "dynamics_sees": "observation", "policy_sees": "observation"},
    {"objective": "metra"},
    {"objective": "metra", "skill_kind": "one-hot", "dynamics_data": "weighted"},
    {
        "with_reward": True,
        "skill_kind": "one-hot",
        "dynamics_data": "replay",
        "policy_sees": "observation",
        "dynamics_sees": "descriptor",
    },
]


@pytest.mark.cases(4)
@pytest.mark.parametrize("options", FORMS, ids=reference.named)
def test_update_is_what_numpy_computes(monkeypatch, options):
    """Middle, terminal, truncated and invalid entries; every loss, reward and metric."""
    algo = make(skills=SKILLS[options.get("skill_kind", "uniform")], **options)
    hp, noise = scalars(), reference.fixed_noise(monkeypatch)
    others = np.eye(algo.skills)
    if algo.skill_kind == "uniform":
        others = np.random.default_rng(3).uniform(-1, 1, (algo.alternatives, algo.skills))
        drawn = lambda self, key, n: jnp.asarray(others, jnp.float32)
        monkeypatch.setattr(DADS, "draw_skills", drawn)
    state = begun(algo)
    names = [name for name in LEARNED if getattr(state, name) is not None]
    if algo.with_reward:
        state = returned(state)
    b = batch(algo)
    given = Batch(b, b if algo.dynamics_data == "recent" else None)
    new, metrics, priorities = reference.quick(algo.update)(state, hp, given, random.key(2), 0)

    plain = [reference.plain(x) for x in (state, hp, b)]
    want, wanted, errors = numpys(algo, *plain, others, noise)
    shared = {name: getattr(metrics[name], "total", metrics[name]) for name in wanted}
    assert metrics.keys() == wanted.keys()
    reference.close(shared, wanted, rtol=1e-3, atol=1e-4)
    for name in (*names, "target"):
        pair = ({name: getattr(new, name)}, {name: want[name]})
        reference.close(*pair, rtol=1e-3, atol=2e-4)
    valid = np.asarray(b.valid, bool)
    np.testing.assert_allclose(np.asarray(priorities)[valid], errors[valid], 1e-3, 1e-4)


LEARNED = ("actor", "critic", "temperature", "dynamics", "multiplier")


@pytest.mark.parametrize("options", [{}, {"objective": "metra", "dynamics_period": 3}])
def test_the_schedule_is_of_all_learning_rates_once(options):
    """At its end, an update equals one with constant rates of that size."""
    new = {}
    for schedule, factor in (("linear", 1.0), ("constant", 0.2)):
        algo = make(dynamics_data="replay", lr_schedule=schedule, **options)
        rates = {name: factor * x for name, x in HYPER.items() if name.endswith("_lr")}
        ends = {"lr_end": 0.2, "schedule_updates": 6.0}
        hp = reference.scalars(DADS.Hyper, HYPER | rates | ends)
        inputs = begun(algo), hp, Batch(batch(algo), None), random.key(2), np.int32(6)
        new[schedule] = reference.quick(algo.update)(*inputs)[0]
    learned = lambda s: [getattr(s, name).params for name in LEARNED if getattr(s, name)]
    assert reference.difference(*map(learned, new.values())) < 1e-6


# --- hyper-parameters are data --------------------------------------------------------------

CHANGED = reference.CHANGED | {
    "dynamics_lr": 0.1,
    "dynamics_scale": 0.4,
    "importance_clip": 1.01,
    "multiplier": 9.0,
    "slack": 0.99,
    "diversity_scale": 0.1,
    "margin": 0.01,
}
LEARNS = {"critic", "target", "actor"}
NOTHING = {name: set() for name in CHANGED}
EFFECTS = [
    (
        {"dynamics_data": "weighted", "with_reward": True, "skills": 3, "skill_kind": "one-hot"},
        {
            "dynamics_lr": LEARNS | {"dynamics"},
            "dynamics_scale": LEARNS | {"dynamics"},
            "importance_clip": LEARNS | {"dynamics"},
            "diversity_scale": LEARNS,
            "margin": LEARNS,
        },
    ),
    (
        {"objective": "metra", "dynamics_data": "replay"},
        {
            "dynamics_lr": LEARNS | {"dynamics", "multiplier"},
            "slack": LEARNS | {"dynamics", "multiplier"},
            "multiplier": {"initial multiplier"},
        },
    ),
]


@pytest.mark.parametrize(("options", "effect"), EFFECTS, ids=["dads", "metra"])
def test_each_hyper_parameter_changes_what_it_should_and_nothing_else(options, effect):
    algo = make(**options)
    state = returned(begun(algo)) if algo.with_reward else begun(algo)
    assert CHANGED.keys() == reference.updating(DADS.Hyper)
    found = reference.effects_of(algo, state, Batch(batch(algo), None), HYPER, CHANGED)
    assert found == NOTHING | reference.EFFECT | effect


# --- the reward -----------------------------------------------------------------------------


def test_ends_give_no_reward_and_teach_the_dynamics_nothing():
    """Wherever a terminal transition leads to: reward, loss and statistics stay."""
    algo = make(skills=3, skill_kind="one-hot", dynamics_data="replay")
    hp, b = scalars(), batch(algo)
    state, update = begun(algo), reference.quick(algo.update)
    far = np.asarray(b.next_obs) + np.float32(40) * np.asarray(b.terminated)[:, None]
    moved = dataclasses.replace(b, next_obs=jnp.asarray(far))
    one, other = (update(state, hp, Batch(x, None), random.key(0), 0) for x in (b, moved))
    for name in ("dynamics", "change_stats"):
        assert reference.difference(getattr(one[0], name), getattr(other[0], name)) == 0
    for name in ("intrinsic_reward", "target_mean", "target_std", "change"):
        assert one[1][name] == other[1][name]
    assert int(one[0].change_stats.count) == int(algo.alive(b).sum())


# --- time and randomness --------------------------------------------------------------------


def test_dynamics_learn_at_every_kth_update_and_skipped_ones_count_for_nothing():
    algo = make(dynamics_period=3)
    hp, b = scalars(), batch(algo)
    state, update = begun(algo), reference.quick(algo.update)
    for step in range(7):
        new, metrics, _ = update(state, hp, Batch(b, b), random.key(step), step)
        learned = reference.difference(new.dynamics, state.dynamics) > 0
        assert learned == (step % 3 == 0)
        loss = metrics["dynamics_loss"]
        assert (float(loss.count), np.isfinite(loss.total)) == (float(learned), True)
        assert reference.difference(new.critic, state.critic) > 0
        state = new


@pytest.mark.slow
def test_each_use_of_randomness_has_a_key_of_its_own(monkeypatch):
    """Of sampling and updating: which rows, which alternatives, which actions."""
    used = []

    def draw(key, shape, *more):
        used.append(tuple(np.asarray(random.key_data(key)).tolist()))
        return original(key, shape, *more)

    algo, hp = make(), scalars()
    b, state = batch(algo), algo.init(random.key(0), hp)
    original = fast_random.uniform  # of which normal draws are made as well
    monkeypatch.setattr("thespis.xla.fast_random.uniform", draw)
    with jax.disable_jit():
        algo.update(state, hp, Batch(b, b), random.key(4), jnp.asarray(0))
    assert len(used) >= 3
    assert len(set(used)) == len(used)


# --- what is seen ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assignment": "equal"}, "skill_kind = one-hot"),
        ({"n_step": 3}, "n_step = 3: .* give 1"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ThespisError, match=message):
        make(**options)


def test_a_descriptor_that_never_changes_ends_the_run_with_a_hint():
    for algo in (make(descriptor="2"), make(objective="metra", descriptor="2")):
        hint = "descriptor = 2 never changes, .*such as --descriptor 0,1"
        assert re.search(hint, algo.complaint({"train/change": 0.0}))
        assert algo.complaint({"train/change": 1e-9}) is None
        assert algo.complaint({"eval/mean_reward": 0.0}) is None  # nothing was learned yet


def test_observations_are_normalised_for_the_policy():
    algo, hp = make(normalize_observations=True), scalars()
    obs = np.random.default_rng(0).normal(5, 3, (50, 3)).astype(np.float32)

    @reference.quick
    def see(obs):
        zeros = jnp.zeros(50)
        row = Row(obs, zeros, zeros > 0, zeros > 0, jnp.zeros((50, 2)))
        state = algo.observe(algo.init(random.key(0), hp), row)
        return algo.see(state, told(obs))

    seen = np.asarray(see(obs))
    np.testing.assert_allclose(seen[:, 0].mean(), 0, atol=0.1)
    np.testing.assert_allclose(seen[:, 0].std(), 1, atol=0.1)
    np.testing.assert_array_equal(seen[:, 1:], 0)


def told(obs):
    return SkillObservation(obs, jnp.zeros((obs.shape[0], 2)))


# --- skills ---------------------------------------------------------------------------------


def test_skills_come_from_their_prior():
    of = lambda algo: np.asarray(reference.quick(lambda: algo.memory(random.key(0), 4000))().skill)
    uniform = of(make())
    assert uniform.shape == (4000, 2)
    counts = np.histogram(uniform[:, 0], 10, (-1, 1))[0]
    assert (abs(counts - 400) < 100).all()
    hot = of(make(skills=5, skill_kind="one-hot"))
    np.testing.assert_array_equal(hot.sum(1), 1)
    assert (abs(hot.sum(0) - 800) < 140).all()


@pytest.mark.parametrize("n", [5, 10, 7])
def test_an_equal_assignment_is_fixed_and_fits_any_number_of_environments(n):
    algo = make(skills=5, skill_kind="one-hot", assignment="equal")
    memory = reference.quick(lambda key: algo.memory(key, n))
    one, other = (np.asarray(memory(random.key(i)).skill) for i in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one.argmax(1), np.arange(n) % 5)


def test_the_policy_acts_by_its_skill_and_stores_it():
    algo, hp = make(), scalars()
    memory = Memory(jnp.asarray(np.float32([[1.0, 1.0], [-1.0, -1.0]])), None)
    act = reference.quick(lambda *x: algo.act(*x, random.key(0), 0, "greedy"))
    action, kept, extra = act(begun(algo), hp, memory, np.zeros((2, 3), np.float32))
    action = np.asarray(action)
    assert reference.difference(action[0], action[1]) > 0
    np.testing.assert_array_equal(kept.skill, memory.skill)
    np.testing.assert_array_equal(extra.skill, memory.skill)
    assert extra.log_p is None


def test_the_density_of_actions_is_stored_for_importance_weights():
    """That of the policy when it explores, and of uniform noise in a random warm-up."""
    algo, hp = make(dynamics_data="weighted"), scalars()
    state, obs = begun(algo), np.ones((5, 3), np.float32)

    @reference.quick
    def densities(obs):
        memory = algo.memory(random.key(1), 5)
        act = lambda mode: algo.act(state, hp, memory, obs, random.key(2), 0, mode)[2].log_p
        seen = algo.see(state, told(obs)._replace(skill=memory.skill))
        sampled = algo.policy(state.actor.params, seen).sample(random.key(2))[1]
        return act("explore"), act("random"), sampled

    explored, warming, sampled = densities(obs)
    np.testing.assert_allclose(explored, sampled, rtol=1e-3)
    np.testing.assert_allclose(warming, -2 * math.log(2), rtol=1e-6)


# --- whole episodes -------------------------------------------------------------------------


ENV = Autoreset(PointMass(limit=10))


@cache
def trained(members=2):
    """A few updates with three environments, drawn by priority."""
    more = {"prioritized_replay": True, "recent_steps": 60}
    algo = DADS(ENV.spec, hidden=(8,), batch_size=8, alternatives=5, **more)
    loop = Loop(algo, ENV, envs=3, capacity=64, updates_per_step=Fraction(1, 3))
    tuner = PBT(best=1, replaced=1)
    p = reference.quick(partial(population.begin, loop, tuner))(jnp.arange(members))
    warm = reference.quick(partial(population.train, loop, mode="random", learn=False))
    return loop, tuner, reference.quick(partial(population.train, loop))(warm(p, 10), 30)


@cache
def played():
    """The evaluation of those members, with descriptors."""
    loop, _, p = trained()
    describe = Descriptor(look=lambda obs, env_state: loop.algo.describe(obs))
    evaluate = partial(population.evaluate_qd, loop, episodes=4, descriptor=describe)
    return jax.tree.map(np.asarray, reference.quick(evaluate)(p))


def test_a_skill_lasts_an_episode_and_no_longer():
    _, _, p = trained()
    rows = jax.tree.map(lambda x: np.asarray(x)[:40], p.learner.replay.rows)
    skill, final = rows.extra.skill, rows.terminated | rows.truncated
    same = (skill[1:] == skill[:-1]).all(-1)
    np.testing.assert_array_equal(same, ~final[:-1])
    assert final.any()


def test_the_dynamics_learn_from_recent_rows():
    """Of which every environment has its share."""
    algo = make(recent_steps=12)
    asked = []

    class View:
        class ring:
            class rows:
                reward = np.zeros((100, 1, 4))

        def transitions(self, key, size, gamma, n, recent=None):
            asked.append((size, n, recent))

    algo.sample(View(), None, scalars(), random.key(0), 0)
    assert asked == [(8, 1, None), (8, 1, 3)]
    assert dataclasses.replace(algo, dynamics_data="replay").sample(
        View(), None, scalars(), random.key(0), 0
    ) == Batch(None, None)


def test_qd_evaluation_gives_descriptors_and_diversity_returns():
    found = played()
    assert found.descriptors.shape == (2, 4, 2)
    assert found.returns.shape == found.diversity.shape == found.dependence.shape == (2, 4)
    assert (found.dependence.mean(1) > -1e-3).all()
    assert (found.dependence <= 10 * math.log(6) + 1e-4).all()
    assert np.isfinite(found.diversity).all()
    assert (found.diversity <= 10 * math.log(6) + 1e-4).all()
    assert (np.linalg.norm(found.descriptors, axis=-1) <= 0.3).all()  # ten steps of 0.02


def steps_of(algo: DADS):
    """A state, and rows before and after as evaluations see them; the last step is terminal."""
    b = batch(algo)
    n = len(b.reward)
    last = jnp.arange(n) == n - 1
    row = lambda obs, end: Row(obs, b.reward, end, jnp.zeros(n, bool), b.action, b.extra)
    return begun(algo), row(b.obs, last & False), row(b.next_obs, last)


@pytest.mark.parametrize(
    "options",
    [{}, {"skill_kind": "one-hot"}, {"dynamics_std": "learned", "normalize_target": False}],
)
def test_what_skills_are_worth_does_not_depend_on_the_scale_that_is_tuned(options):
    """It is the intrinsic reward at the scale that fits all steps best: a bound of information."""
    algo = make(**options)
    state, now, after = steps_of(algo)
    told = lambda scale: eqx.tree_at(lambda h: h.dynamics_scale, scalars(), jnp.float32(scale))
    worth = reference.quick(
        lambda hp: algo.dependence(algo.dependence_terms(state, hp, now, after))
    )
    found = np.asarray(worth(told(1.0)))
    for scale in (0.3, 0.1):
        np.testing.assert_array_equal(worth(told(scale)), found)
    paid = reference.quick(lambda hp: algo.diversity_reward(state, hp, now, after))
    at = np.stack([paid(told(scale)) for scale in SCALES])
    np.testing.assert_allclose(found, at[at.mean(1).argmax()], rtol=1e-4, atol=1e-5)
    assert found[-1] == 0
    assert found.mean() > -1e-3  # a wide scale knows nothing, and claims nothing
    assert (found <= math.log(2 if options.get("skill_kind") else 6) + 1e-5).all()


def test_the_diversity_return_is_the_sum_over_the_first_episode():
    loop, _, p = trained()
    algo, first = loop.algo, lambda tree: jax.tree.map(lambda x: x[0], tree)

    @reference.quick
    def play(p):
        state, hp = first((p.learner.state, p.hps))
        policy = FrozenPolicy(state, hp, p.learner.clock.iteration)
        rows = unroll(algo, ENV, policy, random.key(0), 3, 14, "greedy")
        return rows, diversity(algo, policy, rows)

    @reference.quick
    def paid(p, now, after):
        return algo.diversity_reward(*first((p.learner.state, p.hps)), now, after)

    rows, found = play(p)
    total = np.zeros(3)
    for t in range(10):  # rows 10 .. 13 belong to the next episode, or to none
        at = lambda t: jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[t]), rows)
        total += np.asarray(paid(p, at(t), at(t + 1)))
    np.testing.assert_allclose(found[:, 0], total, rtol=1e-4, atol=1e-5)


def test_members_of_a_population_copy_the_more_diverse():
    """Whose episodes depend more on their skills; these and their statistics are copied as well."""
    loop, tuner, p = trained()
    score = played().dependence.mean(1, keepdims=True)
    exchange = reference.quick(partial(population.exchange, loop, tuner))
    after, parents = exchange(p, score)
    best = int(score[:, 0].argmax())
    np.testing.assert_array_equal(parents, [best, best])
    dynamics, stats = after.learner.state.dynamics.params, after.learner.state.change_stats
    for leaf in jax.tree.leaves((dynamics, stats.mean)):
        np.testing.assert_array_equal(*np.asarray(leaf))


def test_a_population_tunes_nothing_that_has_no_effect():
    """Numbers of importance weights, of METRA and of rewards are tuned only if they are named."""
    drawn, defaults = hyper.sample(DADS.Hyper, random.key(0), 3), vars(DADS.Hyper())
    for name in ("importance_clip", "multiplier", "slack", "diversity_scale", "margin"):
        np.testing.assert_allclose(getattr(drawn, name), [defaults[name]] * 3, rtol=1e-6)
    assert len(set(np.asarray(drawn.dynamics_lr).tolist())) == 3


@pytest.mark.slow
@pytest.mark.optimised
def test_a_member_equals_its_run_alone_and_new_hypers_compile_nothing():
    algo = DADS(ENV.spec, hidden=(8,), batch_size=8, alternatives=5)
    loop = Loop(algo, ENV, envs=2, capacity=64)
    values = {"dynamics_lr": [1e-3, 3e-3], "dynamics_scale": [1.0, 0.5]}
    both, seeds = hyper.fill(DADS.Hyper, values, 2), jnp.arange(2)

    def run(hps, seeds):
        driver = DeviceDriver(loop, seeds)
        x = driver.init(seeds, hps)
        return driver, driver.run(x, hps, None, seeds, 16, "explore", True)

    driver, x = run(both, seeds)
    _, alone = run(jax.tree.map(lambda h: h[1:], both), seeds[1:])
    for mine, theirs in zip(jax.tree.leaves(x.state), jax.tree.leaves(alone.state), strict=True):
        np.testing.assert_array_equal(mine[1:], theirs)
    program = driver.programs(jax.tree.structure(x), "explore", True)
    compiled = program._cache_size()
    others = jax.tree.map(lambda h: h * 0.9, both)
    driver.run(x, others, None, seeds, 3, "explore", True)
    assert program._cache_size() == compiled
