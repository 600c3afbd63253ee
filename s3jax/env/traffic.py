"""Several controlled cars in each world: they see, avoid and hit each other.

N environments are N / A worlds of A cars: environment i is car i % A of world i // A. The bank's rows are
grouped by scene in the same way (`s3jax.env.scenes`), and the cars of a world track references of one scene,
in its frame.

The learner resets each car as its episode ends, one by one and knowing nothing of the others. A car that has
been reset therefore waits outside its world: nobody sees or hits it, and it sees zeros. In its next step,
whatever the action, it enters where there is room, as in Gymnasium's next-step reset. Among some random
places on random references of the scene it takes the clearest, and it goes on waiting if that is not clear
enough. All cars of a world share its clock, so its step limit ends them together; the next scene is drawn
when all of them wait.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from s3jax.config import ConfigError
from s3jax.env import boxes
from s3jax.env.layout import NEIGHBOUR_FIELDS
from s3jax.env.tracking import EnvState, Step, TrackingEnv, World
from s3jax.scenarios.bank import reference
from s3jax.spatial.frames import to_body, to_world
from s3jax.spatial.reference import point_at

_HORIZON = 1.0
"""Seconds for which an entering car's place has to stay clear at constant velocities."""


@struct.dataclass
class CarState:
    """State of one car.

    Attributes:
      env: the tracking task's state.
      waiting: [] whether the car has not entered its world yet.
      scene: [] scene that its world plays; of a waiting car, the one it proposes.
      size: [2] length and width of its box (m).
      key: PRNG key of its entry.
    """

    env: EnvState
    waiting: jax.Array
    scene: jax.Array
    size: jax.Array
    key: jax.Array


@dataclasses.dataclass(frozen=True)
class TrafficEnv(TrackingEnv):
    """The tracking task with `config.cars` cars in each world; only `_many` functions make sense."""

    def reset_many(self, world: World, keys, part, parts: int):
        """Resets N cars, which then wait.

        Args:
          world: the bank holds `config.cars` rows for each scene.
          keys: [N] PRNG keys.
          part: [N] which of the bank's `parts` equal parts to draw the scene from.
          parts: number of parts.

        Returns:
          States and observations [N, D].

        Raises:
          ConfigError: if environments or rows cannot be grouped by world, or scenes by part.
        """
        cars, rows = self.config.cars, world.bank.size.shape[0]
        if len(keys) % (cars * parts) or rows % (cars * parts):
            raise ConfigError(
                f"{len(keys)} environments on {rows} references in {parts} parts cannot be grouped into "
                f"worlds of env.cars = {cars}; make both multiples of {cars * parts}"
            )
        scenes = rows // cars // parts

        def propose(key, part):
            return part * scenes + jax.random.randint(key, (), 0, scenes)

        scene = jnp.repeat(jax.vmap(propose)(keys[::cars], part[::cars]), cars)
        states = jax.vmap(lambda scene, key: self._outside(world, scene, key))(scene, keys)
        return states, self._observe_many(world, states)

    def start_many(self, world: World, scenarios):
        """Starts all cars of scenes at the beginning of their references.

        A car that would stand in another, such as one of a scene with fewer references than cars, waits.

        Args:
          world: as for `reset_many`.
          scenarios: [N] rows of the bank, grouped by scene.

        Returns:
          States and observations [N, D].
        """
        cars = self.config.cars
        env, _ = jax.vmap(self.start, (None, 0))(world, scenarios)
        middle = jnp.array([sum(self.config.traffic.length) / 2, sum(self.config.traffic.width) / 2])
        states = CarState(
            env=env,
            waiting=jnp.zeros(scenarios.shape, bool),
            scene=scenarios // cars,
            size=jnp.broadcast_to(middle, (*scenarios.shape, 2)),
            key=jax.vmap(jax.random.key)(scenarios),
        )
        hit = self._overlaps(states, jnp.ones(scenarios.shape, bool))
        blocked = jnp.any(hit & jnp.tri(cars, k=-1, dtype=bool), axis=-1).reshape(-1)
        states = states.replace(waiting=blocked)
        return states, self._observe_many(world, states)

    def step_many(self, world: World, states: CarState, actions) -> Step:
        """Steps N cars with actions [N, 2].

        The cars' episodes also end in `collision`. A waiting car earns nothing and has no error or cost.
        """
        steps = jax.vmap(self.move, (None, 0, 0))(world, states.env, actions)
        driving = ~states.waiting
        moved = states.replace(env=_select(driving, steps.state, states.env))
        entered, enters = self._enter(world, moved, driving & ~steps.ended["envelope"])
        states = _select(enters, entered, moved)
        inside = driving & ~steps.ended["envelope"]
        hit = jnp.any(self._overlaps(states, inside) & ~jnp.eye(self.config.cars, dtype=bool), axis=-1)
        hit = hit.reshape(-1) & ~steps.terminated & inside
        cost = self.config.reward.collision * hit
        ended = {name: flag & driving & ~hit for name, flag in steps.ended.items()}
        return Step(
            state=states,
            observation=self._observe_many(world, states),
            reward=jnp.where(driving, jnp.where(hit, -cost, steps.reward), 0.0),
            terminated=(steps.terminated & driving) | hit,
            truncated=steps.truncated & driving & ~hit,
            ended={"collision": hit, **ended},
            error=jax.tree.map(lambda value: jnp.where(driving, value, 0.0), steps.error),
            costs={name: jnp.where(driving, value, 0.0) for name, value in steps.costs.items()}
            | {"collision": cost},
        )

    def _outside(self, world, scene, key) -> CarState:
        """Returns a waiting car."""
        place_key, size_key, key = jax.random.split(key, 3)
        traffic = self.config.traffic
        low, high = jnp.array([traffic.length, traffic.width]).T
        return CarState(
            env=self.place(world, scene * self.config.cars, jnp.zeros(()), place_key),
            waiting=jnp.ones((), bool),
            scene=scene,
            size=jax.random.uniform(size_key, (2,), minval=low, maxval=high),
            key=key,
        )

    def _enter(self, world, states, present):
        """Places the waiting cars.

        Args:
          world: bank and dynamics parameters.
          states: all cars [N], moved.
          present: [N] those that take up room.

        Returns:
          The states [N] of cars that have entered, and [N] whether a car does.
        """
        traffic, waiting = self.config.traffic, states.waiting
        driving = self._by_world(~waiting)
        leader = jnp.argmax(driving, axis=-1)  # any car that is there, else car 0, whose proposal counts
        pick = lambda x: jnp.repeat(self._by_world(x)[jnp.arange(len(leader)), leader], self.config.cars)  # noqa: E731
        scene, step = pick(states.scene), jnp.where(pick(waiting), 0, pick(states.env.step))

        def draw(key, scene):
            key, row_key, cursor_key, place_key = jax.random.split(key, 4)
            row = jax.random.randint(row_key, (traffic.candidates,), 0, self.config.cars)
            rows = scene * self.config.cars + row
            cursors = self.draw_cursor(world, rows, cursor_key)
            points = jax.vmap(lambda row, cursor: point_at(reference(world.bank, row), cursor))(rows, cursors)
            return key, place_key, rows, cursors, points

        keys, place_keys, rows, cursors, points = jax.vmap(draw)(states.key, scene)
        radius = 0.5 * jnp.hypot(states.size[:, 0], states.size[:, 1])
        car = states.env.vehicle
        others = self._by_world(_motion(car.x, car.y, car.yaw, car.vx, car.vy, radius))[:, None, None]
        places = self._by_world(_motion(points.x, points.y, points.yaw, points.speed, 0.0, radius[:, None]))
        gap = _gap(places[:, :, :, None], others)
        gap = jnp.where(self._by_world(present)[:, None, None], gap, jnp.inf)
        clear = jnp.min(gap, axis=-1)  # [worlds, A, candidates]
        best = jnp.argmax(clear, axis=-1)[..., None]
        chosen = jnp.take_along_axis(places, best[..., None], axis=2)[:, :, 0]
        # Of cars that enter at once, those before have the right of way.
        rival = self._by_world(waiting)[:, None, :] & jnp.tri(self.config.cars, k=-1, dtype=bool)
        rivals = jnp.where(rival, _gap(chosen[:, :, None], chosen[:, None]), jnp.inf)
        room = jnp.minimum(jnp.max(clear, axis=-1), jnp.min(rivals, axis=-1)).reshape(-1)
        enters = waiting & (room >= traffic.clearance)
        best = best.reshape(-1, 1)
        row, cursor = (jnp.take_along_axis(x, best, axis=1)[:, 0] for x in (rows, cursors))
        env = jax.vmap(self.place, (None, 0, 0, 0))(world, row, cursor, place_keys).replace(step=step)
        return states.replace(env=env, waiting=jnp.zeros_like(waiting), scene=scene, key=keys), enters

    def _observe_many(self, world, states):
        """Returns observations [N, D]."""
        own = jax.vmap(lambda state: jnp.concatenate(self.policy_view(world, state)))(states.env)
        split = self.config.observation.size  # neighbours come before an oracle
        parts = [own[:, :split], states.size, self._neighbours(states), own[:, split:]]
        if self.config.oracle == "critic":
            parts.append(jax.vmap(lambda state: jnp.concatenate(self.critic_view(world, state)))(states.env))
        return jnp.where(states.waiting[:, None], 0.0, jnp.concatenate(parts, axis=-1))

    def _neighbours(self, states):
        """Returns what each car sees of others, [N, K * F]."""
        car, present = states.env.vehicle, self._by_world(~states.waiting)
        x, y = self._by_world(car.x), self._by_world(car.y)
        squared = (x[:, None, :] - x[:, :, None]) ** 2 + (y[:, None, :] - y[:, :, None]) ** 2
        seen = present[:, None, :] & ~jnp.eye(x.shape[-1], dtype=bool)
        seen &= squared <= self.config.traffic.sight**2
        number, found = boxes.nearest(jnp.where(seen, squared, jnp.inf), self.config.traffic.neighbours)
        world_velocity = to_world(car.vx, car.vy, car.yaw)
        columns = (car.x, car.y, jnp.cos(car.yaw), jnp.sin(car.yaw), *world_velocity)
        rows = self._by_world(jnp.concatenate([jnp.stack(columns, axis=-1), states.size], axis=-1))
        x, y, cos, sin, vx, vy, length, width = jnp.moveaxis(
            jax.vmap(lambda rows, number: rows[number])(rows, number), -1, 0
        )
        x0, y0, _, _, vx0, vy0, *_ = jnp.moveaxis(rows, -1, 0)[..., None]
        yaw = self._by_world(car.yaw)[..., None]
        features = (
            *to_body(x - x0, y - y0, yaw), *to_body(cos, sin, yaw), *to_body(vx - vx0, vy - vy0, yaw),
            length, width, jnp.ones_like(x),
        )  # fmt: skip
        features = jnp.where(found[..., None], jnp.stack(features, axis=-1), 0.0)
        return features.reshape(-1, self.config.traffic.neighbours * len(NEIGHBOUR_FIELDS))

    def _overlaps(self, states, present):
        """Returns [worlds, A, A] which of the present cars overlap."""
        car, size = states.env.vehicle, states.size
        columns = (car.x, car.y, car.yaw, size[:, 0], size[:, 1])
        present = self._by_world(present)
        return boxes.overlap(*map(self._by_world, columns)) & present[:, None, :] & present[:, :, None]

    def _by_world(self, x):
        """Returns [N, ...] as [worlds, A, ...]."""
        return x.reshape(-1, self.config.cars, *x.shape[1:])


def _motion(x, y, yaw, vx, vy, radius):
    """Returns place, velocity in the world frame and radius of cars [...] as [..., 5]."""
    return jnp.stack(jnp.broadcast_arrays(x, y, *to_world(vx, vy, yaw), radius), axis=-1)


def _gap(one, other):
    """Returns the lesser of the gaps [...] (m) between cars now and after `_HORIZON`, circles about boxes."""
    away, drift = one[..., :2] - other[..., :2], one[..., 2:4] - other[..., 2:4]
    later = away + _HORIZON * drift
    distance = jnp.minimum(jnp.hypot(away[..., 0], away[..., 1]), jnp.hypot(later[..., 0], later[..., 1]))
    return distance - one[..., 4] - other[..., 4]


def _select(chosen, new, old):
    """Returns the leaves [N, ...] of `new` where chosen [N], else those of `old`."""
    return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
