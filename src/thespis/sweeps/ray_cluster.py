"""Ray, started here or joined elsewhere."""

from __future__ import annotations

import os
from typing import Any

from thespis.errors import ThespisError, one_line


def connect(address: str | None = None) -> Any:
    """Returns the module `ray`, connected to the cluster at an address, or to one started here."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ThespisError("executor = ray needs a library: pip install 'thespis[ray]'") from None
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or None
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            include_dashboard=False if address is None else None,
            logging_level="error",
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        where = "here" if address is None else f"at {address}"
        raise ThespisError(f"Ray does not answer {where}: {one_line(error)}") from error
    return ray
