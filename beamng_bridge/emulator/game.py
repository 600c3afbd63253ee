"""The emulated world: one embedded car, its inputs, the road's ground models, and simulated time.

Conventions are the game's: `steering` and `steering_input` are + right, `electrics.steering` is degrees of
the steering wheel and + left, `pos` and `vel` belong to a reference node that is not the centre of gravity.
"""

import collections
import math

from s3jax.source.car import EmbeddedCar
from s3jax.spatial.friction import friction_map

GROUND_MODELS = {
    "ASPHALT": (1.0, 0.68),
    "ASPHALT_WET": (0.8, 0.5),
    "GRAVEL": (0.7, 0.7),
    "SNOW": (0.65, 0.4),
    "ICE": (0.4, 0.2),
}
ALIASES = {"GROUNDMODEL_ASPHALT1": "ASPHALT"}
WHEEL_LOCK = 450.0
NODE_BEHIND, NODE_RIGHT = 0.35, 0.02  # of the centre of gravity (m)
PAD_RATE = {"steering": 2.0}  # 1/s, a stand-in for the game's gamepad filter; other inputs follow at once


class Game:
    """What the server's messages act upon.

    Args:
      vehicle: of the embedded car.
      road: ground model that the level's road is made of.

    Attributes:
      time: simulated (s).
      inputs: name -> value that the car receives now.
      events: time, name and value of the latest input events.
    """

    def __init__(self, vehicle: str = "sedan", road: str = "ASPHALT"):
        self.car = EmbeddedCar(vehicle)
        self.road = road
        self.time = 0.0
        self.inputs = {"steering": 0.0, "throttle": 0.0, "brake": 0.0, "parkingbrake": 0.0}
        self._wanted = {}
        self._push, self._owed = None, 0.0
        self.events = collections.deque(maxlen=10_000)
        self.each_ground_model(
            lambda name, static, sliding, parent: self.set_ground_model(name, static, sliding)
        )
        self.place(0.0, 0.0, 0.0)

    def place(self, x: float, y: float, yaw: float) -> None:
        """Puts the reference node at x, y (m), the car at rest, heading yaw (rad) from +x to +y."""
        cos, sin = math.cos(yaw), math.sin(yaw)
        centre = (x + NODE_BEHIND * cos - NODE_RIGHT * sin, y + NODE_BEHIND * sin + NODE_RIGHT * cos, yaw)
        self._push = None
        self._reading = self.car.reset(centre, 0.0)

    def push(self, speed: float, seconds: float) -> None:
        """Begins to push the car straight on, from rest to a speed (m/s) within some seconds."""
        state = self._reading.state
        self._push = (state.x, state.y, state.yaw, speed, max(seconds, 1e-3), self.time)

    def input_event(self, name: str, value: float, direct: bool) -> None:
        """Receives an input, which stays until the next one; directly, or through the gamepad's filter."""
        if not math.isfinite(value):
            raise ValueError(f"input {name} is {value}")
        if name in self.inputs:
            self.events.append((self.time, name, value))
            low = -1.0 if name == "steering" else 0.0
            self._wanted[name] = min(max(value, low), 1.0)
            if direct:
                self.inputs[name] = self._wanted.pop(name)

    def set_ground_model(self, name: str, static: float, sliding: float) -> None:
        """Changes the coefficients of a ground model."""
        if name == self.road:
            self.car.set_friction(friction_map(min(max(self.grip(static, sliding), 0.01), 2.0)))

    def grip(self, static: float, sliding: float) -> float:
        """Returns the car's friction on a road of these coefficients."""
        return static

    @staticmethod
    def each_ground_model(visit) -> None:
        """Calls `visit` with name, static and sliding coefficient of each model as the game ships it, and the
        model that it is an alias of, or None."""
        for name, (static, sliding) in GROUND_MODELS.items():
            visit(name, static, sliding, None)
        for name, parent in ALIASES.items():
            visit(name, *GROUND_MODELS[parent], parent)

    def advance(self, seconds: float) -> None:
        """Simulates one frame."""
        self._owed += seconds
        steps = int(self._owed / self.car.substep + 1e-6)
        self._owed -= steps * self.car.substep
        if not steps:
            return
        interval = steps * self.car.substep
        self.time += interval
        for name in list(self._wanted):
            reach = PAD_RATE.get(name, 100.0) * interval
            change = min(max(self._wanted[name] - self.inputs[name], -reach), reach)
            self.inputs[name] += change
            if self.inputs[name] == self._wanted[name]:
                del self._wanted[name]
        if self._push is not None:
            self._push_on()
            return
        brake = max(self.inputs["brake"], 0.4 * self.inputs["parkingbrake"])
        pedal = self.inputs["throttle"] - brake if brake == 0.0 else -brake
        self._reading = self.car.step((-self.inputs["steering"], pedal), interval)

    def _push_on(self):
        x, y, yaw, speed, seconds, start = self._push
        gone = min(self.time - start, seconds)
        way = 0.5 * speed / seconds * gone * gone
        pose = (x + way * math.cos(yaw), y + way * math.sin(yaw), yaw)
        self._reading = self.car.reset(pose, speed * gone / seconds)
        if gone >= seconds - 1e-9:
            self._push = None

    def centre_of_gravity(self) -> list[float]:
        """Returns its place in the level (m)."""
        return [self._reading.state.x, self._reading.state.y, 0.535]

    def state(self) -> dict:
        """Returns what the sensor State says."""
        s = self._reading.state
        cos, sin = math.cos(s.yaw), math.sin(s.yaw)
        node_vx, node_vy = s.vx + NODE_RIGHT * s.yaw_rate, s.vy - NODE_BEHIND * s.yaw_rate
        return {
            "time": self.time,
            "pos": [
                s.x - NODE_BEHIND * cos + NODE_RIGHT * sin,
                s.y - NODE_BEHIND * sin - NODE_RIGHT * cos,
                0.2,
            ],
            "dir": [cos, sin, 0.0],
            "up": [0.0, 0.0, 1.0],
            "vel": [cos * node_vx - sin * node_vy, sin * node_vx + cos * node_vy, 0.0],
            "front": [s.x + 2.0 * cos, s.y + 2.0 * sin, 0.2],
            "rotation": [0.0, 0.0, math.cos(0.5 * s.yaw), math.sin(0.5 * s.yaw)],
        }

    def electrics(self) -> dict:
        """Returns what the sensor Electrics says, under the game's names."""
        r, inputs = self._reading, self.inputs
        speed = math.hypot(r.state.vx, r.state.vy)
        return {
            "steering": math.degrees(r.state.steer_angle)
            / math.degrees(self.car.vehicle.steering.max_angle)
            * WHEEL_LOCK,
            "steering_input": inputs["steering"],
            "throttle": r.throttle,
            "throttle_input": inputs["throttle"],
            "brake": r.brake,
            "brake_input": inputs["brake"],
            "parkingbrake": inputs["parkingbrake"],
            "parkingbrake_input": inputs["parkingbrake"],
            "clutch_input": 0.0,
            "wheelspeed": abs(float(r.wheel_speed[2:].mean())) * self.car.vehicle.body.wheel_radius,
            "airspeed": speed,
            "rpm": r.engine_speed * 30.0 / math.pi,
            "gear": "D",
            "gearIndex": r.gear,
            "absActive": 0,
            "escActive": 0,
            "tcsActive": 0,
            "running": 1,
        }
