"""What goes wrong on a machine is said in one sentence with the remedy."""

import errno

import jax
import jax.numpy as jnp
import pytest

from s3jax.archive import FileError
from s3jax.errors import DivergedError
from s3jax.ppo.guards import OutOfMemoryError, check_finite, explained

FINE = {"update": 7, "loss/value": 0.5, "loss/skipped": 0.0, "env/not_finite": 0.0}


def test_a_device_out_of_memory(tmp_path):
    with pytest.raises(OutOfMemoryError, match=r"lower ppo\.num_envs"), explained(tmp_path):
        jax.block_until_ready(jax.jit(lambda: jnp.zeros(2**44))())


def test_a_machine_out_of_memory(tmp_path):
    with pytest.raises(OutOfMemoryError, match=r"lower ppo\.num_envs"), explained(tmp_path):
        bytearray(2**60)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EACCES, "cannot be written"),
        (errno.EROFS, "cannot be written"),
    ],
)
def test_errors_of_the_file_system_also_inside_others(tmp_path, number, message):
    with pytest.raises(FileError, match=message), explained(tmp_path):
        raise OSError(number, "as the system says")
    with pytest.raises(FileError, match=message), explained(tmp_path):
        try:
            raise OSError(number, "as the system says")
        except OSError as error:
            raise ValueError("a checkpoint failed") from error


def test_a_folder_under_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"), explained(tmp_path):
        (tmp_path / "file" / "run").mkdir()


def test_other_errors_pass(tmp_path):
    for error in (RuntimeError("bug"), FileNotFoundError("bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)), explained(tmp_path):
            raise error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss/skipped": 3.0}, "3 gradient steps were not finite"),
        ({"env/not_finite": 0.01}, "the dynamics model's state was not finite in 1 % of steps"),
        ({"loss/value": float("nan")}, "not finite: loss/value"),
        ({"held_out/speed_rms": float("inf")}, "not finite: held_out/speed_rms"),
    ],
)
def test_what_is_not_finite_is_named_with_the_checkpoint_to_go_back_to(tmp_path, change, message):
    check_finite(FINE, tmp_path, 5)
    with pytest.raises(DivergedError, match=rf"update 7: {message}.*of update 5"):
        check_finite(FINE | change, tmp_path, 5)
