"""Causal attention over a sliding window, as one pass over a sequence and as one step with cached keys.

Position i attends to itself and to the `window - 1` positions before it, with a learned bias per head and
age instead of absolute positions. So a token's output is the same function of what came before it whether
the whole sequence is at hand (`encode`) or each token arrives alone (`encode_step`).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.config import Config
from s3jax.dynamics.layers import dense, dense_init


class AttentionConfig(Config):
    """Size of an encoder.

    Attributes:
      width: of a token.
      heads: must divide the width.
      layers: number of them.
      window: positions that a position sees, itself included.
    """

    width: int = pydantic.Field(64, ge=1)
    heads: int = pydantic.Field(4, ge=1)
    layers: int = pydantic.Field(2, ge=1)
    window: int = pydantic.Field(20, ge=1)

    @pydantic.model_validator(mode="after")
    def _divisible(self):
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not divide a width of {self.width}")
        return self


class Cache(NamedTuple):
    """Keys and values of the last `window` tokens in one layer, in a ring: token n is in slot n % window.

    Attributes:
      keys: [heads, window, width / heads]. Heads come first because XLA then reads each head's keys in one
        piece: with the window first, a step took two and a half times as long.
      values: [heads, window, width / heads].
    """

    keys: jnp.ndarray
    values: jnp.ndarray


def encoder_init(key, config: AttentionConfig) -> dict:
    """Returns the parameters of an encoder."""
    return {
        f"layer{i}": {
            "attention": attention_init(jax.random.fold_in(key, 2 * i), config),
            "mlp": mlp_init(jax.random.fold_in(key, 2 * i + 1), config.width),
        }
        for i in range(config.layers)
    }


def encode(params, config: AttentionConfig, tokens):
    """Encodes a sequence of tokens [T, width] in one pass.

    Returns:
      The outputs [T, width] and the caches after the last token.
    """
    caches = []
    for i in range(config.layers):
        layer = params[f"layer{i}"]
        keys, values = keys_values(layer["attention"], config, tokens)
        read = attend(layer["attention"], config, queries(layer["attention"], config, tokens), keys, values)
        tokens = mlp(layer["mlp"], tokens + dense(layer["attention"]["out"], read))
        caches.append(ring(config, keys, values))
    return tokens, tuple(caches)


def encode_step(params, config: AttentionConfig, caches, count, token):
    """Encodes one token [width] after `count` others.

    Returns:
      The output [width] and the next caches.
    """
    after = []
    for i in range(config.layers):
        layer = params[f"layer{i}"]
        cache = store(config, caches[i], count, *keys_values(layer["attention"], config, token))
        query = queries(layer["attention"], config, token)
        read = attend_cached(layer["attention"], config, query, cache, count)
        token = mlp(layer["mlp"], token + dense(layer["attention"]["out"], read))
        after.append(cache)
    return token, tuple(after)


def attention_init(key, config: AttentionConfig) -> dict:
    """Returns the parameters of one attention layer."""
    keys = jax.random.split(key, 3)
    return {
        "norm": norm_init(config.width),
        "query": dense_init(keys[0], config.width, config.width),
        "key_value": dense_init(keys[1], config.width, 2 * config.width),
        "out": dense_init(keys[2], config.width, config.width, scale=0.5),
        "age_bias": jnp.zeros((config.heads, config.window)),
    }


def queries(params, config: AttentionConfig, tokens):
    """Returns the queries [..., heads, width / heads] of tokens [..., width]."""
    return _heads(config, dense(params["query"], norm(params["norm"], tokens)))


def keys_values(params, config: AttentionConfig, tokens):
    """Returns the keys and the values, each [..., heads, width / heads], of tokens [..., width]."""
    both = dense(params["key_value"], norm(params["norm"], tokens))
    return tuple(_heads(config, half) for half in jnp.split(both, 2, axis=-1))


def attend(params, config: AttentionConfig, query, keys, values):
    """Returns what queries [T, ..., heads, size] read, [T, ..., width], each from its own window."""
    count = len(keys)
    age = jnp.arange(count)[:, None] - jnp.arange(count)[None, :]
    scores = jnp.einsum("q...hd,khd->...hqk", query, keys) / math.sqrt(query.shape[-1])
    scores = scores + params["age_bias"][:, jnp.clip(age, 0, config.window - 1)]
    weights = jax.nn.softmax(jnp.where((age >= 0) & (age < config.window), scores, -jnp.inf))
    read = jnp.einsum("...hqk,khd->q...hd", weights, values)
    return read.reshape(*read.shape[:-2], config.width)


def attend_cached(params, config: AttentionConfig, query, cache: Cache, count):
    """Returns what queries [..., heads, size] made beside token number `count` read, [..., width]."""
    age = (count - jnp.arange(config.window)) % config.window
    scores = jnp.einsum("...hd,hkd->...hk", query, cache.keys) / math.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(age <= count, scores + params["age_bias"][:, age], -jnp.inf))
    read = jnp.einsum("...hk,hkd->...hd", weights, cache.values)
    return read.reshape(*read.shape[:-2], config.width)


def empty(config: AttentionConfig) -> Cache:
    """Returns a cache of no tokens."""
    shape = (config.heads, config.window, config.width // config.heads)
    zeros = jnp.zeros(shape, jnp.result_type(float))
    return Cache(zeros, zeros)


def store(config: AttentionConfig, cache: Cache, count, key, value) -> Cache:
    """Returns the cache with the key and value of token number `count`."""
    place = (0, count % config.window, 0)
    return Cache(
        jax.lax.dynamic_update_slice(cache.keys, key[:, None], place),
        jax.lax.dynamic_update_slice(cache.values, value[:, None], place),
    )


def ring(config: AttentionConfig, keys, values) -> Cache:
    """Returns the cache after a sequence's keys and values [T, heads, size]."""
    window, count = config.window, len(keys)
    slots = jnp.arange(max(0, count - window), count) % window
    cache = empty(config)
    keys, values = (jnp.swapaxes(rows[-window:], 0, 1) for rows in (keys, values))
    return Cache(cache.keys.at[:, slots].set(keys), cache.values.at[:, slots].set(values))


def mlp_init(key, width: int) -> dict:
    """Returns the parameters of a residual two-layer network four times as wide inside."""
    up, down = jax.random.split(key)
    return {
        "norm": norm_init(width),
        "up": dense_init(up, width, 4 * width),
        "down": dense_init(down, 4 * width, width, scale=0.5),
    }


def mlp(params, x):
    """Returns x [..., width] plus what the network makes of it."""
    return x + dense(params["down"], jax.nn.gelu(dense(params["up"], norm(params["norm"], x))))


def norm_init(width: int) -> dict:
    """Returns the parameters of a layer normalisation."""
    return {"gain": jnp.ones(width), "bias": jnp.zeros(width)}


def norm(params, x):
    """Returns x [..., width] with zero mean and unit variance along the last axis, scaled and shifted."""
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * params["gain"] + params["bias"]


def _heads(config: AttentionConfig, x):
    return x.reshape(*x.shape[:-1], config.heads, config.width // config.heads)
