"""The machine: threads before JAX starts, the user's own cache, and what compiling costs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from thespis import machine
from thespis.errors import ThespisError
from thespis.machine import WIDE, Ledger, cores, threads_for


def python(code: str, **environment) -> list[str]:
    """Run code in a new Python -> the words that it prints. None removes a variable."""
    code = f"import os; from thespis import machine as m; {code}"
    env = {k: v for k, v in (os.environ | environment).items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# --- threads --------------------------------------------------------------------------------


def test_narrow_layers_get_one_thread_and_wide_ones_all_cores(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 6)
    assert threads_for((64, 64)) == threads_for(()) == threads_for((WIDE - 1,)) == 1
    assert threads_for((256, 256)) == threads_for((WIDE,)) == threads_for((16, 512)) == 6


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux can bind processes")
def test_only_cores_that_the_process_may_use_are_counted():
    one = min(os.sched_getaffinity(0))
    assert python(f"os.sched_setaffinity(0, [{one}]); print(m.cores())") == ["1"]
    assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("name", ["threads", "devices"])
def test_more_than_any_machine_has_is_refused(name):
    with pytest.raises(ThespisError, match=f"{name} = 1000000: give at most"):
        machine.set_threads(**{"threads": 1, name: 10**6})


def test_choosing_needs_no_jax():
    assert python("import sys; m.set_threads(3); print('jax' in sys.modules)") == ["False"]


def test_importing_jax_does_not_start_it():
    code = "import jax; print(m.started()); jax.devices(); print(m.started())"
    assert python(code) == ["False", "True"]


def test_threads_are_given_before_jax_starts():
    assert python("print(m.set_threads(3), os.environ['NPROC'])", NPROC=None) == ["True", "3"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_the_pool_has_the_threads_it_was_given():
    product = "import jax; x = jax.numpy.ones((300, 300)); (x @ x).block_until_ready()"
    code = f"m.set_threads({{}}); {product}; print(len(os.listdir('/proc/self/task')))"
    chosen = {"NPROC": None, "JAX_ENABLE_COMPILATION_CACHE": "0"}  # compiling has threads too
    one, three = (int(python(code.format(n), **chosen)[0]) for n in (1, 3))
    assert three >= one + 2


def test_after_jax_has_started_only_what_it_has_is_granted():
    code = (
        "import jax; jax.devices(); print(m.set_threads(2), m.set_threads(5), os.environ['NPROC'])"
    )
    assert python(code, NPROC="2") == ["True", "False", "2"]


def test_without_a_choice_jax_has_a_thread_per_core():
    code = "import jax; jax.devices(); print(m.set_threads(m.cores()))"
    assert python(code, NPROC=None) == ["True"]


# --- the compilation cache ------------------------------------------------------------------

USE = "import jax; m.use_cache(); print(jax.config.jax_compilation_cache_dir)"


def test_programs_are_kept_in_the_users_cache(tmp_path):
    chosen = {
        "JAX_COMPILATION_CACHE_DIR": None,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": None,
        "XDG_CACHE_HOME": str(tmp_path),
    }
    program = "jax.random.gamma(jax.random.key(0), 2.0)"  # long enough to be worth keeping
    assert python(f"{USE}; {program}", **chosen) == [str(tmp_path / "thespis" / "jax")]
    assert any((tmp_path / "thespis" / "jax").iterdir())


@pytest.mark.parametrize("unset", [None, ""])
def test_without_a_place_for_caches_it_is_in_the_home(tmp_path, unset):
    chosen = {"JAX_COMPILATION_CACHE_DIR": None, "XDG_CACHE_HOME": unset, "HOME": str(tmp_path)}
    assert python(USE, **chosen) == [str(tmp_path / ".cache" / "thespis" / "jax")]


def test_a_place_chosen_by_the_user_stays(tmp_path):
    chosen = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine")}
    assert python(USE, **chosen) == [str(tmp_path / "mine")]


def test_jax_fetches_nothing_from_where_others_may_write(tmp_path):
    """Neither does the command from a place that was chosen; nor anybody from our own."""
    lax = tmp_path / "lax"
    lax.mkdir()
    lax.chmod(0o777)
    on = "print(jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache)"
    code = f"import jax; m.keeping = True; m.use_cache(); m.use_cache(); {on}"
    chosen = {"JAX_COMPILATION_CACHE_DIR": str(lax)}
    assert python(code, **chosen) == [str(lax), "False"]
    ours = {"JAX_COMPILATION_CACHE_DIR": None, "XDG_CACHE_HOME": str(lax)}
    assert python(code, **ours) == ["None", "True"]


# --- the cost of compiling ------------------------------------------------------------------


@pytest.fixture
def ledger():
    ledger = Ledger()
    yield ledger
    ledger.close()


def test_seconds_of_compiling_are_counted_by_program(ledger):
    def wave(x):
        return jnp.sin(x) + 1.25

    assert ledger.seconds == 0
    jax.jit(wave)(jnp.ones(7))
    assert 0 < ledger.programs["wave"] <= ledger.seconds < 60


def test_running_what_is_compiled_costs_nothing(ledger):
    program, x = jax.jit(lambda x: jnp.cos(x) + 1.5), jnp.ones(7)
    program(x)
    before = ledger.seconds
    program(x).block_until_ready()
    assert ledger.seconds == before


def test_a_closed_ledger_counts_no_more():
    ledger = Ledger()
    ledger.close()
    jax.jit(lambda x: jnp.tan(x) + 1.75)(jnp.ones(7))
    assert ledger.seconds == 0
