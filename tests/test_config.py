"""Configuration: unknown keys, wrong types, overrides, round trip."""

import pytest
from pydantic import Field

from s3jax.config import Config, ConfigError


class Inner(Config):
    num_envs: int = Field(4, gt=0)
    rate: float = 1e-3


class Outer(Config):
    ppo: Inner = Inner()
    parts: tuple[Inner, ...] = ()
    name: str = "run"


def test_overrides_are_typed_and_nested():
    config = Outer.load(None, ["ppo.num_envs=2048", "ppo.rate=3e-4", "name=other"])
    assert config == Outer(ppo=Inner(num_envs=2048, rate=3e-4), name="other")
    assert hash(config) == hash(Outer(ppo=Inner(num_envs=2048, rate=3e-4), name="other"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo.num_env=8", "unknown key ppo.num_env; did you mean ppo.num_envs?"),
        ("pppo.num_envs=8", "unknown key pppo; did you mean ppo?"),
        ("parts=[{rat: 1}]", "unknown key parts.0.rat; did you mean parts.0.rate?"),
        ("ppo.num_envs=many", "ppo.num_envs: .*integer"),
        ("ppo.num_envs=0", "ppo.num_envs: .*greater than 0"),
        ("ppo.num_envs=1.5", "ppo.num_envs: .*integer"),
        ("ppo.rate=.nan", "ppo.rate: .*finite"),
        ("ppo=3", "ppo: "),
        ("ppo.num_envs", "expected key=value"),
        ("ppo.num_envs=[", "not YAML"),
    ],
)
def test_bad_overrides_name_the_key(override, message):
    with pytest.raises(ConfigError, match=message) as error:
        Outer.load(None, [override])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["- a list", "{unclosed", "\x00"])
def test_bad_files_are_named(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml") as error:
        Outer.load(path)
    assert "\n" not in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        Outer.load(tmp_path / "absent.yaml")


def test_round_trip_and_empty_file(tmp_path):
    config = Outer(ppo=Inner(num_envs=7), parts=(Inner(), Inner(rate=2.0)))
    config.save(tmp_path / "config.yaml")
    assert Outer.load(tmp_path / "config.yaml") == config
    (tmp_path / "empty.yaml").write_text("")
    assert Outer.load(tmp_path / "empty.yaml") == Outer()


class Kinds(Config):
    kind: str = "plain"
    size: int = 1


class Holder(Config):
    part: Kinds = Kinds()


@pytest.mark.parametrize("overrides", [["part=other", "part.size=3"], ["part.size=3", "part=other"]])
def test_the_kind_of_a_section_may_be_given_alone_before_or_after_its_values(overrides):
    assert Holder.load(None, overrides).part == Kinds(kind="other", size=3)
