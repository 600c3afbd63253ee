"""Compiled programs are kept where the user's programs keep such things, unless he says otherwise."""

import os
import stat
import subprocess
import sys

import pytest

from s3jax.compilation_cache import DIRECTORY, use_compilation_cache

PROGRAM = """
from s3jax.compilation_cache import use_compilation_cache
use_compilation_cache()
import jax, jax.monitoring, jax.numpy as jnp
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
print(float(jax.jit(lambda x: jnp.sin(x).sum())(jnp.arange(8.0))))
print(events.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.fixture
def environment(tmp_path):
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XDG_"))}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return plain | home | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def run(environment):
    """Returns the program's result and how many compiled programs it found."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0 and not result.stderr, result.stderr
    value, hits = result.stdout.split()
    return float(value), int(hits)


def programs(folder):
    return sorted(folder.glob("jit_*-cache"))


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is where Linux has it")
def test_a_second_process_compiles_nothing_even_after_a_write_was_cut_short(environment, tmp_path):
    value, hits = run(environment)
    kept = programs(tmp_path / "cache" / "s3jax" / "xla")
    assert kept and not hits
    assert run(environment) == (value, len(kept))
    torn = kept[0]
    torn.write_bytes(torn.read_bytes()[:100])  # as a kill leaves it: cut short, and its time never written
    torn.with_name(torn.name.removesuffix("-cache") + "-atime").unlink()
    assert run(environment) == (value, len(kept) - 1)
    assert run(environment) == (value, len(kept))


def test_the_users_own_folder_stays(tmp_path):
    environment = {DIRECTORY: str(tmp_path / "mine"), "JAX_COMPILATION_CACHE_MAX_SIZE": "-1"}
    use_compilation_cache(environment)
    assert environment[DIRECTORY] == str(tmp_path / "mine")
    assert environment["JAX_COMPILATION_CACHE_MAX_SIZE"] == "-1"


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("in the way")
    environment = {DIRECTORY: str(tmp_path / "file" / "xla")}
    use_compilation_cache(environment)
    assert environment == {DIRECTORY: str(tmp_path / "file" / "xla")}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_home_is_left_alone(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    environment = {DIRECTORY: str(tmp_path / "xla")}
    use_compilation_cache(environment)
    assert set(environment) == {DIRECTORY}
