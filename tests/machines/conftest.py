"""What tests of maps share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def client():
    """Two threads of this process."""
    distributed = pytest.importorskip("distributed", reason="no Dask")
    with distributed.Client(
        processes=False,
        n_workers=1,
        threads_per_worker=2,
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        set_as_default=False,
    ) as found:
        yield found
