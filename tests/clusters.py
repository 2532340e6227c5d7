"""One cluster for all tests of a file that writes `runtime = one_cluster(workers=2)`."""

import pytest
from leftovers import leaving_nothing

import grampus as gp

TORCH = ("numpy", "torch", "torch._dynamo")


def one_cluster(workers, preload=TORCH, **settings):
    """In the place of `conftest.runtime`: workers start once, and what is left is looked for once."""

    @pytest.fixture(scope="module", autouse=True)
    def runtime(tmp_path_factory):
        with pytest.MonkeyPatch.context() as patch, leaving_nothing(patch) as folder:
            # Torch leaves a cache in the temporary folder; ours must stay empty.
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
            gp.init(workers=workers, preload=preload, **settings)
            yield folder

    return runtime


def no_cluster():
    """In the place of `conftest.runtime`, where no process is started: what is left is looked for once."""

    @pytest.fixture(scope="module", autouse=True)
    def runtime():
        with pytest.MonkeyPatch.context() as patch, leaving_nothing(patch) as folder:
            yield folder

    return runtime


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Runs write into the current folder."""
    monkeypatch.chdir(tmp_path)
