"""Threads and devices, chosen before JAX starts."""

import os

import jax
import pytest

from tests.xla.child import python
from thespis.errors import ThespisError
from thespis.xla import threads
from thespis.xla.threads import WIDE, cores, threads_for


def test_narrow_layers_get_one_thread_and_wide_ones_all_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert threads_for((64, 64)) == threads_for(()) == threads_for((WIDE - 1,)) == 1
    assert threads_for((256, 256)) == threads_for((WIDE,)) == threads_for((16, 512)) == 6


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux can bind processes")
def test_only_cores_that_the_process_may_use_are_counted():
    one = min(os.sched_getaffinity(0))
    assert python(f"os.sched_setaffinity(0, [{one}]); print(threads.cores())") == ["1"]
    assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("name", ["threads", "devices"])
def test_more_than_any_machine_has_is_refused(name):
    with pytest.raises(ThespisError, match=f"{name} = 1000000: give at most"):
        threads.set_threads(**{"threads": 1, name: 10**6})


def test_choosing_needs_no_jax():
    assert python("import sys; threads.set_threads(3); print('jax' in sys.modules)") == ["False"]


def test_importing_jax_does_not_start_it():
    code = "import jax; print(threads.started()); jax.devices(); print(threads.started())"
    assert python(code) == ["False", "True"]


def test_threads_are_given_before_jax_starts():
    assert python("print(threads.set_threads(3), os.environ['NPROC'])", NPROC=None) == ["True", "3"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_the_pool_has_the_threads_it_was_given():
    product = "import jax; x = jax.numpy.ones((300, 300)); (x @ x).block_until_ready()"
    code = f"threads.set_threads({{}}); {product}; print(len(os.listdir('/proc/self/task')))"
    chosen = {"NPROC": None, "JAX_ENABLE_COMPILATION_CACHE": "0"}  # compiling has threads too
    one, three = (int(python(code.format(n), **chosen)[0]) for n in (1, 3))
    assert three >= one + 2


def test_after_jax_has_started_only_what_it_has_is_granted():
    code = "import jax; jax.devices(); give = threads.set_threads; "
    code += "print(give(2), give(5), os.environ['NPROC'])"
    assert python(code, NPROC="2") == ["True", "False", "2"]


def test_without_a_choice_jax_has_a_thread_per_core():
    code = "import jax; jax.devices(); print(threads.set_threads(threads.cores()))"
    assert python(code, NPROC=None) == ["True"]


# --- the kind of device ---------------------------------------------------------------------


def test_a_kind_of_device_is_chosen_before_jax_starts():
    code = (
        "import jax; threads.choose_device('cpu'); print(jax.config.jax_platforms, jax.devices())"
    )
    assert python(code, JAX_PLATFORMS=None)[0] == "cpu"


def test_what_jax_takes_by_itself_is_left_to_it():
    code = "import jax; threads.choose_device('auto'); print(threads.started())"
    assert python(code) == ["False"]


@pytest.mark.parametrize("platforms", ["cpu", "cuda"])
def test_a_kind_of_device_that_is_not_there_is_refused_in_one_line(platforms):
    code = "\ntry: threads.choose_device('tpu')\nexcept Exception as error: print(error)"
    told = " ".join(python(code, JAX_PLATFORMS=platforms))
    assert told.startswith("device = tpu: JAX finds none here; install it for one (docs/accel")


def test_after_jax_has_started_another_kind_of_device_is_refused():
    jax.devices()
    with pytest.raises(ThespisError, match="device = gpu: JAX has started on cpu; call it before"):
        threads.choose_device("gpu")
    threads.choose_device("cpu")
