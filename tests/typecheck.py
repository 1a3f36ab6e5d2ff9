"""How annotations are checked while tests run: see conftest.py."""

import jax
from beartype import BeartypeConf, FrozenDict, beartype

# A number may be written 1 instead of 1.0, and hyper-parameters are arrays once they are data.
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({float: float | int | jax.Array})))
