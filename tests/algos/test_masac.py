"""Multi-agent SAC against an independent NumPy form, agents that leave, and legal actions."""

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import thespis
from tests.algos import masac_reference, reference
from thespis.algos import MASAC, SAC, DiscreteSAC
from thespis.algos.multi_agent import Team
from thespis.core import Box, Discrete, Row, Spec, ThespisError, Transition
from thespis.engine.loop import DeviceDriver, Loop
from thespis.envs.autoreset import Autoreset
from thespis.tuning import hyper

EPSILON = {"epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_decay": 1000.0}
HYPER = reference.HYPER | {"discrete_entropy": 0.4} | EPSILON
FORMS = ("sizes", "discrete", "masked", "rewards", "flags", "state")


def make(**options) -> MASAC:
    of_spec = {name: options.pop(name) for name in FORMS if name in options}
    return MASAC(reference.team_spec(**of_spec), **({"hidden": (3,)} | options))


def scalars(values=HYPER):
    return reference.scalars(MASAC.Hyper, values)


def batch_of(algo: MASAC, seed: int = 0) -> Transition:
    """Entries of every kind; agents leave by an end (4, 5) or are cut off (7), one was away (8)."""
    it, n, agents = algo.spec, reference.BATCH, algo.agents
    rng, b = np.random.default_rng(seed), reference.transitions()
    obs, next_obs = (reference.observations(it, n, seed) for seed in (1, 2))
    if "alive" in it.obs:
        alive, ended = np.ones((n, agents), bool), np.zeros((n, agents), bool)
        was, had_ended = alive.copy(), ended.copy()
        alive[[4, 5, 7, 8], 1], ended[[4, 5, 8], 1] = False, True
        was[8, 1], had_ended[8, 1] = False, True
        obs |= {"alive": jnp.asarray(was), "ended": jnp.asarray(had_ended)}
        next_obs |= {"alive": jnp.asarray(alive), "ended": jnp.asarray(ended)}
    if algo.masked:  # a terminal and a truncated successor in which somebody can do nothing
        mask = np.asarray(next_obs["agents"]["action_mask"]).copy()
        mask[1:3, 0] = False
        next_obs["agents"] = next_obs["agents"] | {"action_mask": jnp.asarray(mask)}
    action = jnp.asarray(rng.uniform(-1, 1, (n, *it.action_shape)), jnp.float32)
    if not algo.continuous:
        legal = np.broadcast_to(it.legal, (n, *it.legal.shape))
        legal = legal & np.asarray(obs["agents"]["action_mask"]) if algo.masked else legal
        action = jnp.asarray(np.where(legal, rng.random(legal.shape), -1).argmax(-1), jnp.int32)
    reward = b.reward
    if it.reward_dim:
        reward = jnp.asarray(np.stack([b.reward, np.float32(rng.normal(size=n))], -1))
    logits = jnp.asarray(rng.normal(size=(n, agents, algo.size)), jnp.float32)
    extra = {"logits": logits} if algo.store_logits and not algo.continuous else None
    parts = {"obs": obs, "next_obs": next_obs, "action": action, "reward": reward, "extra": extra}
    return dataclasses.replace(b, **parts)


def midway(algo: MASAC, hp):
    agents = jax.eval_shape(algo.init, random.key(0), hp).temperature
    alphas = None if agents is None else np.linspace(0.2, 0.3, agents.params.size)
    return reference.midway(algo, hp, alphas)


FULL = {"flags": True, "rewards": True}
CONTINUOUS = [
    {},
    FULL | {"shared_weights": False, "sizes": (1, 2), "state": True},
    FULL | {"team_reward": True, "reward_weights": (2.0, -1.0), "temperature": "fixed"},
    FULL | {"critic": "own", "n_step": 3, "drop_truncated": True, "temperature": "linear"},
    FULL | {"critic": "own", "shared_weights": False, "team_reward": True},
    FULL | {"critic": "state", "log_derivative": "epsilon", "temperature": "exp"},
    FULL | {"normalize_observations": True, "state": True},
]
DISCRETE = [
    {},
    {"masked": True, "flags": True},
    {"masked": True, "shared_weights": False, "sizes": (1, 2), "store_logits": True} | FULL,
    {"masked": True, "critic": "own", "team_reward": True} | FULL,
    {"critic": "own", "shared_weights": False, "critics": 1, "ignore_done": True} | FULL,
    {"masked": True, "normalize_observations": True, "entropy_unit": "actions"} | FULL,
    MASAC.presets["di-engine"]["algo"] | {"hidden": (3,), "critic_hidden": (2,)} | FULL,
]


@pytest.mark.cases(5)
@pytest.mark.parametrize(
    "options", [*CONTINUOUS, *(o | {"discrete": True} for o in DISCRETE)], ids=reference.named
)
def test_update_is_what_numpy_computes(options, monkeypatch):
    algo, hp = make(**options), scalars()
    state, batch = midway(algo, hp), batch_of(algo)
    noise = masac_reference.fixed_draws(monkeypatch, algo.agents, algo.size)

    update = reference.quick(algo.update)
    new, metrics, priorities = update(state, hp, batch, random.key(2), jnp.int32(0))

    inputs = (reference.plain(x) for x in (state, hp, batch))
    wanted = masac_reference.update(algo, *inputs, noise, masac_reference.last_legal)
    reference.close(new, wanted[0])
    assert metrics.keys() == wanted[1].keys()
    for name, value in wanted[1].items():
        np.testing.assert_allclose(metrics[name], value, 1e-4, 1e-5, err_msg=name)
    valid = np.asarray(batch.valid) > 0
    np.testing.assert_allclose(np.asarray(priorities)[valid], wanted[2][valid], 1e-4, 1e-5)


@pytest.mark.parametrize("discrete", [False, True])
def test_one_agent_that_shares_with_nobody_is_sac(discrete):
    """Independent SAC of a team of one takes the very steps of the single-agent algorithm."""
    algo = MASAC(reference.team_spec((2,), discrete), hidden=(3,), critic="own")
    single = DiscreteSAC if discrete else SAC
    one = single(Spec(algo.local_spec, algo.spec.actions[0]), hidden=(3,))
    hp, theirs = scalars(), {"target_entropy": 0.4 if discrete else -0.6}
    shared = {k: v for k, v in HYPER.items() if hasattr(one.Hyper(), k)} | theirs
    b = reference.choices() if discrete else reference.transitions()
    mine = reference.quick(one.init)(random.key(0), one.Hyper(**shared))
    state = reference.quick(algo.init)(random.key(0), hp)
    leaves = jax.tree.leaves((mine.actor, mine.critic, mine.target))
    structure = jax.tree.structure((state.actor, state.critic, state.target))
    parts = dict(zip(("actor", "critic", "target"), jax.tree.unflatten(structure, leaves)))
    state = dataclasses.replace(state, **parts)
    several = lambda x: jnp.asarray(np.asarray(x)[:, None])
    team = lambda obs: {"agents": several(obs)}
    many = dataclasses.replace(
        b, obs=team(b.obs), next_obs=team(b.next_obs), action=several(b.action), extra=None
    )
    learn = lambda it, *given: reference.quick(it.update)(*given, random.key(2), jnp.int32(0))
    new, metrics, priorities = learn(algo, state, hp, many)
    alone, told, errors = learn(one, mine, one.Hyper(**shared), b)
    valid = np.asarray(b.valid) > 0
    for part in ("actor", "critic", "target", "temperature"):
        a, c = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(getattr(s, part))])
            for s in (new, alone)
        )
        np.testing.assert_allclose(a, c, atol=2e-5, err_msg=part)
    np.testing.assert_allclose(metrics["critic_loss"], told["critic_loss"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(priorities)[valid], np.asarray(errors)[valid], rtol=1e-4)


# --- who may change whom --------------------------------------------------------------------


def changed(algo, batch, other):
    """Which networks of agents, by their number, learn otherwise from another batch."""
    state, hp = midway(algo, scalars()), scalars()
    update = reference.update_of(algo)
    news = [update(state, hp, b, random.key(2), jnp.int32(0))[0] for b in (batch, other)]
    nets = [(s.actor.params.networks, list(zip(*(t.networks for t in s.target)))) for s in news]
    actors, critics = (
        {i for i, (x, y) in enumerate(zip(*pair)) if reference.difference(x, y) > 1e-7}
        for pair in zip(*nets)
    )
    return actors, critics


def test_independent_agents_learn_nothing_of_each_other():
    """Neither what the other saw, did, got, nor that it left."""
    algo = make(critic="own", shared_weights=False, **FULL)
    batch = batch_of(algo)
    put = lambda x, at, value: jnp.asarray(np.where(at, np.asarray(value, x.dtype), x))
    second = np.array([[False, True]])
    bent = lambda x: put(x, second if x.ndim == 2 else second[..., None], -2 * np.asarray(x))
    flag = lambda obs: put(obs["alive"], second & (np.arange(reference.BATCH) < 3)[:, None], False)
    other = dataclasses.replace(
        batch,
        obs={**batch.obs, "agents": bent(batch.obs["agents"]), "alive": flag(batch.obs)},
        next_obs={**batch.next_obs, "agents": bent(batch.next_obs["agents"])},
        action=bent(batch.action),
        reward=bent(batch.reward),
    )
    assert changed(algo, batch, other) == ({1}, {1})
    joint = make(shared_weights=False, **FULL)
    assert changed(joint, batch, dataclasses.replace(batch, action=bent(batch.action))) == (
        {0, 1},
        {0, 1},
    )


@pytest.mark.parametrize(
    ("critic", "discrete"),
    [
        ("joint", True),
        ("state", False),
        ("own", True),
        pytest.param("joint", False, marks=pytest.mark.slow),
        pytest.param("state", True, marks=pytest.mark.slow),
        pytest.param("own", False, marks=pytest.mark.slow),
    ],
)
def test_an_agent_that_is_away_teaches_nothing(critic, discrete):
    """What stands in the rows of one who left, as observation, action or reward of its own."""
    algo = make(critic=critic, shared_weights=False, discrete=discrete, **FULL)
    batch = batch_of(algo)
    away = np.zeros((reference.BATCH, 2), bool)
    away[:, 1] = True
    gone = {"alive": jnp.asarray(~away), "ended": jnp.asarray(away)}
    batch = dataclasses.replace(batch, obs=batch.obs | gone, next_obs=batch.next_obs | gone)
    odd, paid = np.array(batch.action), np.array(batch.reward)
    odd[:, 1], paid[:, 1] = 0 if discrete else 0.7, 50
    other = dataclasses.replace(batch, action=jnp.asarray(odd), reward=jnp.asarray(paid))
    assert changed(algo, batch, other) == (set(), set())


def test_ended_agents_expect_nothing_and_those_cut_off_do():
    algo, hp = make(critic="own", **FULL), scalars()
    batch = batch_of(algo)
    state = midway(algo, hp)

    @reference.quick
    def targets(batch):
        now, then = algo.see_team(state, batch.obs), algo.see_team(state, batch.next_obs)
        return algo.targets(hp, batch, now, then, jnp.full((reference.BATCH, 2), 100.0))

    target, valid = map(np.asarray, targets(batch))
    rest = target - np.float32(1.7) * np.asarray(batch.reward)
    worth = rest / 100 / 0.9 ** np.asarray(batch.steps)[:, None]
    wanted = np.ones((reference.BATCH, 2))
    wanted[[1, 4, 9]] = 0  # the whole episode terminated
    wanted[[4, 5, 8], 1] = 0  # this agent did, while the other goes on; number 7 was cut off
    np.testing.assert_allclose(worth, wanted, atol=1e-4)
    assert valid[8].tolist() == [1, 0]  # it had left before
    assert valid[7].tolist() == [1, 1]


def test_a_shared_reward_counts_once():
    """A team of three that share a reward of 1 has the return of one of them."""
    algo = make(sizes=(1, 1, 1), rewards=True)
    np.testing.assert_allclose(algo.scalar(jnp.ones((4, 3))), 1.0, rtol=1e-6)
    weighted = make(sizes=(1, 1, 1), rewards=True, reward_weights=(1.0, 2.0, 3.0))
    np.testing.assert_allclose(weighted.scalar(jnp.ones((4, 3))), 6.0, rtol=1e-6)


# --- statistics -----------------------------------------------------------------------------


def test_statistics_are_of_each_agent_while_it_is_there():
    algo = make(normalize_observations=True, flags=True)
    obs = reference.observations(algo.spec, 30, 3)
    alive = np.random.default_rng(0).random((30, 2)) < 0.5
    obs |= {"alive": jnp.asarray(alive)}

    @reference.quick
    def observe(obs):
        zeros = jnp.zeros(30)
        rows = Row(obs, zeros, zeros > 0, zeros > 0, zeros)
        return algo.observe(algo.init(random.key(0), scalars()), rows).stats

    own, _ = jax.tree.map(np.asarray, observe(obs))
    for i in range(2):
        seen = np.asarray(obs["agents"])[alive[:, i], i]
        np.testing.assert_allclose(own.mean[i], seen.mean(0), rtol=1e-4, atol=1e-6)
        assert own.count[i] == len(seen)
        squares = ((seen - seen.mean(0)) ** 2).sum(0)
        np.testing.assert_allclose(own.var[i], (1 + squares) / (len(seen) + 1), rtol=1e-4)


# --- hyper-parameters are data --------------------------------------------------------------

CHANGED = {name: value * 0.5 for name, value in HYPER.items()}
LEARNS = {"critic", "target", "actor"}
EFFECT = {
    "actor_lr": {"actor"},
    "critic_lr": LEARNS,
    "alpha_lr": {"temperature"},
    "gamma": LEARNS,
    "tau": {"target"},
    "reward_scale": LEARNS,
    "alpha": {"initial temperature"},
    "target_entropy": {"temperature"},
    "discrete_entropy": {"temperature"},
    **{name: set() for name in EPSILON},  # they are of acting
}


@pytest.mark.parametrize("discrete", [False, True])
def test_each_hyper_parameter_changes_what_it_should_and_compiles_nothing(discrete):
    algo = make(discrete=discrete, shared_weights=False, **FULL)
    bold = HYPER | {"actor_lr": 0.5, "critic_lr": 0.5, "tau": 0.5}
    sets = [bold, *(bold | {name: x} for name, x in CHANGED.items())]
    hps = hyper.fill(MASAC.Hyper, {name: [s[name] for s in sets] for name in bold}, len(sets))
    state, batch = midway(algo, scalars()), batch_of(algo)
    update = reference.quick(jax.vmap(algo.update, in_axes=(None, 0, None, None, None)))
    new, _, _ = update(state, hps, batch, random.key(2), jnp.int32(0))
    first = jax.vmap(lambda hp: algo.init(random.key(0), hp).temperature)
    initial = reference.quick(first)(hps)
    parts = {p: getattr(new, p) for p in ("actor", "critic", "target", "temperature")}
    found = reference.effects(parts | {"initial temperature": initial}, CHANGED)
    idle = "target_entropy" if discrete else "discrete_entropy"
    assert found == EFFECT | {idle: set()}
    others = jax.tree.map(lambda x: jnp.asarray(np.float32(0.9) * x), hps)
    update(state, others, batch, random.key(2), jnp.int32(1))
    assert update._cache_size() <= 1  # 0 if others pushed it out


# --- exploration ----------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["linear", "exponential"])
@pytest.mark.parametrize("step", [0, 400, 5000])
def test_discrete_agents_stray_as_numpy_says(schedule, step, monkeypatch):
    """Each for itself, by the chance that epsilon has then; their logits are stored."""
    algo, hp = (
        make(discrete=True, masked=True, store_logits=True, epsilon_schedule=schedule),
        scalars(),
    )
    state, obs, rng = (
        midway(algo, hp),
        reference.observations(algo.spec, 40, 3),
        np.random.default_rng(4),
    )
    luck, gumbel = rng.random((40, 2)).astype(np.float32), rng.gumbel(size=(40, 2, 3))
    monkeypatch.setattr("thespis.xla.fast_random.uniform", lambda key, shape: jnp.asarray(luck))

    def sample(self, key):
        noisy = jnp.where(self.legal, self.logits + jnp.asarray(gumbel, jnp.float32), -jnp.inf)
        return noisy.argmax(-1)

    monkeypatch.setattr("thespis.nn.distributions.Categorical.sample", sample)
    play = lambda mode: jax.tree.map(
        np.asarray, algo.act(state, hp, None, obs, random.key(0), jnp.int32(step), mode)
    )

    plain = reference.plain(state)
    sight = masac_reference.Sight(algo, plain, reference.plain(obs))
    out = [masac_reference.of(plain["actor"].params, i, 2, x) for i, x in enumerate(sight.own)]
    logits, legal = np.stack(out, 1), np.stack(sight.legal, 1)
    rest = max(1 - step / 1000, 0) if schedule == "linear" else np.exp(-step / 1000)
    strays = luck < 0.2 + 0.6 * rest
    assert 0 < strays.mean() < 1
    best = lambda x: np.where(legal, x, -np.inf).argmax(-1)

    action, memory, extra = play("explore")
    np.testing.assert_array_equal(action, best(np.where(strays[..., None], 0, logits) + gumbel))
    np.testing.assert_allclose(extra["logits"], logits, atol=1e-5)
    assert memory is None
    np.testing.assert_array_equal(play("random")[0], best(gumbel))
    np.testing.assert_array_equal(play("greedy")[0], best(logits))


def test_no_agent_strays_by_default():
    """Continuous ones never do, whatever epsilon is, and store no logits."""
    algo, state = make(discrete=True), midway(make(discrete=True), scalars())
    obs = reference.observations(algo.spec, 40, 3)
    play = lambda algo, state, hp: algo.act(state, hp, None, obs, random.key(0), 0, "explore")
    action, _, extra = play(algo, state, MASAC.Hyper())
    policy = algo.policy(state.actor.params, algo.see_team(state, obs))
    np.testing.assert_array_equal(action, policy.sample(random.key(0)))
    assert extra is None
    algo = make(store_logits=True)
    state = midway(algo, scalars())
    one, other = (play(algo, state, scalars(HYPER | {"epsilon_start": x})) for x in (0.0, 1.0))
    np.testing.assert_array_equal(one[0], other[0])
    assert one[2] is None


# --- legal actions --------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_no_illegal_action_is_ever_taken_sampled_or_bootstrapped_from(seed):
    algo, hp = LURED
    state, rng = lured(algo, hp, [-9.0, 0.0, 9.0]), np.random.default_rng(seed)
    mask = rng.random((64, 2, 3)) < 0.4
    mask[np.arange(64)[:, None], np.arange(2), rng.integers(0, [[2, 3]], (64, 2))] = True
    legal = mask & algo.spec.legal[None]
    obs = reference.observations(algo.spec, 64, seed)
    obs["agents"] = obs["agents"] | {"action_mask": jnp.asarray(mask)}
    for mode in ("random", "explore", "greedy"):
        action = np.asarray(ACT(state, obs, random.key(seed), mode))
        assert np.take_along_axis(legal, action[..., None], -1).all(), mode
    # What critics say of illegal actions changes no value: neither one's own nor others'.
    one, other = (SOFT(state, obs, random.key(seed), jnp.float32(x)) for x in (0.0, 1e6))
    np.testing.assert_array_equal(one, other)


def lured(algo, hp, bias):
    """A policy that likes some actions much better, whatever it sees and whether they are legal."""
    state = reference.drawn(algo, hp)
    biases = lambda s: [net.biases[-1] for net in s.actor.params.networks]
    return eqx.tree_at(biases, state, [jnp.asarray(np.float32(bias))] * len(biases(state)))


LURED = make(discrete=True, masked=True, sizes=(1, 2), hidden=()), scalars()


def _act(state, obs, key, mode):
    return LURED[0].act(state, LURED[1], None, obs, key, jnp.int32(0), mode)[0]


def _soft(state, obs, key, lure):
    algo, _ = LURED
    seen = algo.see_team(state, obs)

    class Critics(Team):
        """Legal actions are worth 1, others `lure`, and so is any illegal action of others."""

        def __call__(self, x):
            chosen = jnp.where(seen.legal[:, ::-1], 0.0, x[..., -3:]) * lure  # by the other one
            own = jnp.where(seen.legal, 1.0, lure)
            return own + chosen.sum(-1, keepdims=True)

    return algo.soft_values(state.actor.params, (Critics(()),), seen, key)[0]


ACT, SOFT = jax.jit(_act, static_argnums=3), jax.jit(_soft)


# --- in the loop: probes with known values ---------------------------------------------------


@dataclass(frozen=True)
class Shift:
    """Two agents observe a number each, s and -s, of which s is -1 or 1, for two steps.

    Each gets what its action is worth: 0 or 1, of continuous ones (1 + a) / 2. The first leaves
    after one step. So with discount g, the first one's action is worth just that, and that of the
    second, in its first step, g more.
    """

    discrete: bool = True
    limit: int = 5
    reward_dim: int = 2
    agents: ClassVar = ("brief", "lasting")

    @property
    def action(self):
        return (Discrete(2) if self.discrete else Box((-1.0,), (1.0,), (1,)),) * 2

    @property
    def obs(self):
        flag = jax.ShapeDtypeStruct((2,), bool)
        return {"agents": jax.ShapeDtypeStruct((2, 2), jnp.float32), "alive": flag}

    def start(self, key):
        return random.rademacher(key, (), jnp.float32), jnp.zeros(())

    def observe(self, state):
        s, time = state
        own = jnp.stack([jnp.stack([s, time]), jnp.stack([-s, time])])
        return {"agents": own, "alive": jnp.stack([time < 1, time < 2])}

    def step(self, state, action):
        s, time = state
        worth = action.astype(jnp.float32) if self.discrete else 0.5 + action[:, 0] / 2
        reward = jnp.where(jnp.stack([time < 1, jnp.array(True)]), worth, 0.0)
        return (s, time + 1), reward, time + 1 >= 2


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="discrete"),
        pytest.param(False, id="continuous", marks=pytest.mark.slow),
    ],
)
def probed(request):
    env = Autoreset(Shift(request.param))
    options = {"temperature": "fixed", "hidden": (32,), "batch_size": 64}
    algo = MASAC(env.spec, **options)
    loop = Loop(algo, env, envs=8, capacity=600, updates_per_step=Fraction(1, 8))
    fast = {"actor_lr": 1e-2, "critic_lr": 1e-2, "tau": 0.05, "alpha": 0.01, "gamma": 0.5}
    hps, seeds = hyper.fill(MASAC.Hyper, fast), jnp.arange(1)
    driver = DeviceDriver(loop, seeds)
    learner = driver.run(driver.init(seeds, hps), hps, None, seeds, 500, "random", True)
    return algo, env, jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[0]), (learner.state, hps))


def test_values_and_policies_of_agents_that_leave_at_different_times(probed):
    algo, env, (state, hp) = probed
    s, none = np.float32([-1.0, 1.0, -1.0, 1.0]), np.zeros(4, np.float32)
    observe = reference.quick(jax.vmap(env.task.observe))
    observed, later = observe((s, none)), observe((s, none + 1))
    up = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    action, worth = jnp.asarray(up, jnp.int32), up
    if algo.continuous:
        worth = np.where(up, 0.75, 0.25)
        action = jnp.asarray(np.where(up, 0.5, -0.5), jnp.float32)[..., None]

    @reference.quick
    def judge(obs):
        greedy = random.key(0), jnp.int32(0), "greedy"
        value = algo.q(state.critic.params, algo.see_team(state, obs), action)
        return value, algo.act(state, hp, None, obs, *greedy)[0]

    q = lambda obs: np.asarray(judge(obs)[0])
    for values in q(observed):
        np.testing.assert_allclose(values, worth + np.array([0.0, 0.5]), atol=0.2)
    for values in q(later):
        np.testing.assert_allclose(values[:, 1], worth[:, 1], atol=0.2)
    for obs in (observed, later):
        greedy = np.asarray(judge(obs)[1])
        chosen = greedy[..., 0] > 0 if algo.continuous else greedy == 1
        assert chosen[:, 1].all()
    assert (np.asarray(judge(observed)[1])[:, 0] > 0).all()


# --- runs -----------------------------------------------------------------------------------

SMALL = {
    "steps": 300,
    "hidden": (8,),
    "batch_size": 16,
    "learning_starts": 100,
    "eval_freq": 100,
    "eval_episodes": 2,
    "progress": False,
}


@pytest.mark.usefixtures("undrawn")
def test_a_run_tells_the_return_of_the_team_and_of_each_agent(tmp_path):
    run = thespis.train("masac", env=Shift(), out=tmp_path, **SMALL, updates_per_step=0)
    for name in ("eval/mean_reward", "rollout/ep_rew_mean"):
        team, brief, lasting = (run.metrics[name + x] for x in ("", "/brief", "/lasting"))
        known = np.isfinite(team)
        assert known.any()
        np.testing.assert_allclose(team[known], (brief + lasting)[known] / 2, rtol=1e-5)
    assert (run.metrics["eval/mean_ep_length"][np.isfinite(team)] == 2).all()


@pytest.mark.slow
def test_a_population_of_teams_tunes_itself(tmp_path):
    run = thespis.train(
        "masac", env="jax:meeting", members=4, pbt={"interval": 100}, out=tmp_path, **SMALL
    )
    assert run.status["state"] == "done"
    table = run.lineage
    assert (table["member"] != table["parent"]).any()
    policy = run.policy("best")
    action = policy({"agents": np.zeros((2, 3), np.float32)})
    assert action.keys() == {"agent_0", "agent_1"}
    assert all(0 <= x < 4 for x in action.values())


@pytest.mark.parametrize(
    ("algo", "env", "message"),
    [
        ("sac", "jax:meeting-continuous", "SAC is for one agent, and there are 2: take masac"),
        ("discrete-sac", "jax:meeting", "DiscreteSAC is for one agent, .*: take masac"),
        ("taac", "jax:meeting-continuous", "TAAC is for one agent, .*: take masac"),
        ("masac", "jax:pendulum", "MASAC is for several agents, and there is one: take sac"),
        ("masac", "jax:cartpole", "and there is one: take discrete-sac"),
    ],
)
def test_the_wrong_number_of_agents_is_a_line_that_says_what_to_take(algo, env, message, tmp_path):
    with pytest.raises(ThespisError, match=message):
        thespis.train(algo, env=env, out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())
