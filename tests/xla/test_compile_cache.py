"""Where compiled programs are kept between processes."""

import pytest

from tests.xla.child import python

USE = "import jax; compile_cache.use_cache(); print(jax.config.jax_compilation_cache_dir)"


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


@pytest.mark.posix
def test_jax_fetches_nothing_from_where_others_may_write(tmp_path):
    """Neither does the command from a place that was chosen; nor anybody from our own."""
    lax = tmp_path / "lax"
    lax.mkdir()
    lax.chmod(0o777)
    on = "print(jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache)"
    twice = "compile_cache.use_cache(); compile_cache.use_cache()"
    code = f"import jax; compile_cache.keeping = True; {twice}; {on}"
    chosen = {"JAX_COMPILATION_CACHE_DIR": str(lax)}
    assert python(code, **chosen) == [str(lax), "False"]
    ours = {"JAX_COMPILATION_CACHE_DIR": None, "XDG_CACHE_HOME": str(lax)}
    assert python(code, **ours) == ["None", "True"]
