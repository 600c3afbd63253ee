"""The emulated game's sockets and frame loop.

As in the game: requests are read once per frame; `Step` blocks the engine's socket, not the vehicle's, until
its frames are done; each vehicle has its own port; and without `ack` a step is not answered. While the game
is neither paused nor deterministic, its physics runs by the wall clock.
"""

import contextlib
import math
import select
import socket
import struct
import threading
import time

import msgpack

from beamng_bridge.emulator.faults import KINDS, Fault
from beamng_bridge.emulator.game import Game
from beamng_bridge.emulator.lua import LuaError, engine_machine, vehicle_machine

PROTOCOL = "v1.27"
SLOWEST_FRAME = 0.1  # s of simulated time that one frame makes up for, in real time
_REFUSED = "The request was not handled by BeamNG.tech. Its type is unknown to this emulator: "


class _Peer:
    """One client's connection: a length in 4 bytes, big-endian, then a MessagePack map, both ways."""

    def __init__(self, link: socket.socket):
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link, self._received = link, bytearray()

    def receive(self) -> list[dict] | None:
        """Returns the messages that have arrived, or None if the client has gone."""
        try:
            while True:
                data = self.link.recv(65536)
                if not data:
                    return None
                self._received += data
        except BlockingIOError:
            pass
        except OSError:
            return None
        messages = []
        while len(self._received) >= 4:
            (length,) = struct.unpack_from("!I", self._received)
            if len(self._received) < 4 + length:
                break
            packed = bytes(self._received[4 : 4 + length])
            messages.append(msgpack.unpackb(packed, raw=False, strict_map_key=False))
            del self._received[: 4 + length]
        return messages

    def send(self, message: dict, share: float = 1.0) -> None:
        packed = msgpack.packb(message, use_bin_type=True)
        data = struct.pack("!I", len(packed)) + packed
        with contextlib.suppress(OSError):  # a client that has gone needs no answer
            self.link.setblocking(True)
            self.link.sendall(data[: max(1, int(len(data) * share))])
            self.link.setblocking(False)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.link.close()


class Emulator:
    """Serves a game on 127.0.0.1 in a thread of its own; a context manager.

    Args:
      game: the world.
      port: 0 for any free one; see `port`.
      fps: frames per second of wall time; None as fast as requests come, 60 while the game is not paused.
      licensed: whether it claims a BeamNG.tech licence.
    """

    def __init__(self, game: Game, port: int = 0, fps: float | None = None, licensed: bool = False):
        self.game, self.messages, self.fault = game, 0, None
        self._fps, self._licensed = fps, licensed
        self._engine = self._listen(port)
        self.port = self._engine.getsockname()[1]
        self._vehicle = self._listen(0)
        self._clients = {"engine": [], "vehicle": []}
        self._queues = {"engine": [], "vehicle": []}
        self._blocked, self._pending = None, 0
        self.paused, self.loaded, self._scenario = False, False, None
        self._factor, self._limit = 0, 60.0
        self._broken = False
        self._last_state = None
        self._engine_lua, self._vehicle_lua = engine_machine(game), vehicle_machine(game)
        self._frame_time = time.monotonic()
        self._late = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @staticmethod
    def _listen(port):
        server = socket.create_server(("127.0.0.1", port), backlog=8)
        server.setblocking(False)
        return server

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._hang_up()
        self._engine.close()
        self._vehicle.close()

    def inject(self, fault: Fault) -> None:
        """Lets something go wrong, counted from the next message."""
        if fault.kind not in KINDS:
            raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(KINDS)}")
        self.messages, self.fault = 0, fault

    def heal(self) -> None:
        """Ends a fault."""
        self.fault, self._broken = None, False

    def join(self) -> None:
        """Waits until the server is stopped from elsewhere, such as by Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def _run(self):
        due = time.monotonic()
        while not self._stop.is_set():
            fps = self._fps or (60.0 if self.loaded and not self.paused else None)
            if fps:
                due = max(due + 1.0 / fps, time.monotonic() - 1.0)
                time.sleep(max(0.0, due - time.monotonic()))
            elif not self._pending:
                self._wait()
                due = time.monotonic()
            self._frame()

    def _wait(self):
        if any(self._queues.values()):
            return
        peers = [peer.link for peers in self._clients.values() for peer in peers]
        select.select([self._engine, self._vehicle, *peers], [], [], 0.05)

    def _frame(self):
        began, self._frame_time = self._frame_time, time.monotonic()
        if self.loaded and (self._pending or not self.paused):
            interval = self._interval(self._frame_time - began)
            self._vehicle_lua.graphics_step(interval)
            self.game.advance(interval)
            self._pending = max(0, self._pending - 1)
        self._send_late()
        self._serve("vehicle", self._vehicle)
        if self._blocked is not None and not self._pending:
            (peer, identity), self._blocked = self._blocked, None
            self._answer(peer, identity, {"type": "Stepped"})
        self._serve("engine", self._engine)

    def _interval(self, wall):
        """Returns the simulated seconds of a frame: fixed, or, in real time, as many as it took."""
        if self._factor == -1:
            return 1.0 / self._limit
        if self._factor == 0 and not self._pending:
            return min(wall, SLOWEST_FRAME)
        return 0.05 * self._factor or 1.0 / 60.0

    def _serve(self, side, server):
        with contextlib.suppress(BlockingIOError):
            while True:
                self._clients[side].append(_Peer(server.accept()[0]))
        for peer in list(self._clients[side]):
            messages = peer.receive()
            if messages is None:
                peer.close()
                self._clients[side].remove(peer)
                self._queues[side] = [(p, m) for p, m in self._queues[side] if p is not peer]
            else:
                self._queues[side] += [(peer, message) for message in messages]
        while self._queues[side] and not (side == "engine" and self._blocked is not None):
            peer, message = self._queues[side].pop(0)
            self._handle(side, peer, message)

    def _handle(self, side, peer, message):
        kind, identity = str(message.get("type")), message.get("_id")
        handler = getattr(self, f"_{side}_{kind}", None) or getattr(self, f"_any_{kind}", None)
        try:
            answer = handler(message) if handler else {"bngError": _REFUSED + kind}
        except (KeyError, TypeError, ValueError, LuaError) as error:
            answer = {"bngError": f"{type(error).__name__}: {error}"}
        if kind == "Step" and message.get("ack"):
            self._blocked = (peer, identity)
        elif answer is not None:
            self._answer(peer, identity, answer)

    def _answer(self, peer, identity, answer):
        self.messages += 1
        fault = self.fault
        if fault is None or self.messages <= fault.message:
            peer.send({**answer, "_id": identity})
            return
        if fault.kind == "lag":
            self._late.append((time.monotonic() + fault.seconds, peer, {**answer, "_id": identity}))
            return
        first, self._broken = not self._broken, True
        if fault.kind == "stale" and answer.get("type") == "SensorData":
            self._last_state = self._last_state or answer["data"]
            answer = {**answer, "data": self._last_state}
        if fault.kind == "nan" and answer.get("type") == "SensorData":
            answer["data"]["state"]["state"]["vel"][0] = math.nan
        if fault.kind in ("disconnect", "restart") and first:
            if fault.kind == "restart":
                self.loaded, self._pending, self._blocked = False, 0, None
            self._hang_up()
        elif fault.kind == "half" and first:
            peer.send({**answer, "_id": identity}, share=0.5)
        elif fault.kind in ("drop", "half") and first:
            pass
        else:
            if fault.kind == "delay" and first:
                time.sleep(fault.seconds)
            off = 1000 if fault.kind == "wrong_id" and first else 0
            peer.send({**answer, "_id": identity + off})

    def _send_late(self):
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, peer, answer = self._late.pop(0)
            peer.send(answer)

    def _hang_up(self):
        for side, peers in self._clients.items():
            for peer in peers:
                peer.close()
            self._clients[side], self._queues[side] = [], []

    # Requests of both sides.

    def _any_Hello(self, message):
        return {"type": "Hello", "protocolVersion": PROTOCOL}

    # Requests to the engine.

    def _engine_GetSystemInfo(self, message):
        return {"type": "GetSystemInfo", "tech": self._licensed, "os": {"type": "emulator"}}

    def _engine_GetEnvironmentPaths(self, message):
        return {"type": "GetEnvironmentPaths", "home": "/emulator/", "user": "/emulator/user/current/"}

    def _engine_CreateScenario(self, message):
        path = "/levels/{level}/scenarios/{name}/{name}.json".format(**message)
        self._scenario = path
        return {"type": "CreateScenario", "result": path}

    def _engine_LoadScenario(self, message):
        if message["path"] != self._scenario:
            return {"bngValueError": f"Scenario not found: {message['path']!r}"}
        self.loaded = True
        self._vehicle_lua = vehicle_machine(self.game)  # the vehicle is spawned anew
        self.game.place(0.0, 0.0, -math.pi / 2)
        return {"type": "MapLoaded"}

    def _engine_StartScenario(self, message):
        return {"type": "ScenarioStarted"} if self.loaded else {"bngError": "No scenario is running."}

    def _engine_StopScenario(self, message):
        self.loaded = False
        return {"type": "ScenarioStopped"}

    def _engine_GetCurrentVehicles(self, message):
        car = {"id": 1, "model": "emulated", "name": "ego", "options": {}}
        car["port"] = self._vehicle.getsockname()[1]
        return {"type": "GetCurrentVehicles", "result": {"ego": car} if self.loaded else []}

    def _engine_GetPlayerVehicleID(self, message):
        return {"type": "getPlayerVehicleID", "vid": "ego", "id": 1}

    def _engine_StartVehicleConnection(self, message):
        port = self._vehicle.getsockname()[1]
        return {"type": "StartVehicleConnection", "vid": message["vid"], "result": port}

    def _engine_SetPhysicsDeterministic(self, message):
        factor = message.get("speedFactor")
        self._factor = -1 if factor is None else factor
        return {"type": "SetPhysicsDeterministic"}

    def _engine_SetPhysicsNonDeterministic(self, message):
        self._factor = 0
        return {"type": "SetPhysicsNonDeterministic"}

    def _engine_FPSLimit(self, message):
        self._limit = float(message["fps"])
        return {"type": "SetFPSLimit"}

    def _engine_RemoveFPSLimit(self, message):
        self._limit = 60.0
        return {"type": "RemovedFPSLimit"}

    def _engine_Pause(self, message):
        self.paused = True
        return {"type": "Paused"}

    def _engine_Resume(self, message):
        self.paused = False
        return {"type": "Resumed"}

    def _engine_Step(self, message):
        self._pending += int(message["count"])

    def _engine_Teleport(self, message):
        if message["vehicle"] != "ego":
            return {"type": "Teleported", "success": False}
        x, y, z, w = message["rot"]
        # The inverse rotation of the quaternion, applied to the model's nose, which points to -y.
        nose_x = -2 * (x * y + z * w)
        nose_y = -(1 - 2 * (x * x + z * z))
        self.game.place(message["pos"][0], message["pos"][1], math.atan2(nose_y, nose_x))
        return {"type": "Teleported", "success": True}

    def _engine_QueueLuaCommandGE(self, message):
        return self._lua(self._engine_lua, "ExecutedLuaChunkGE", message)

    def _engine_GameStateRequest(self, message):
        return {"type": "GameState", "state": "scenario" if self.loaded else "menu"}

    # Requests to the vehicle.

    def _vehicle_SensorRequest(self, message):
        answers = {
            "State": lambda: {"type": "VehicleUpdate", "state": self.game.state()},
            "Electrics": lambda: {"type": "Electrics", "values": self.game.electrics()},
        }
        wanted = {name: request["type"] for name, request in message["sensors"].items()}
        data = {name: answers[kind]() for name, kind in wanted.items() if kind in answers}
        return {"type": "SensorData", "data": data}

    def _vehicle_Control(self, message):
        for name in ("steering", "throttle", "brake", "parkingbrake"):
            if name in message:
                self.game.input_event(name, message[name], direct=False)
        return {"type": "Controlled"}

    def _vehicle_SetShiftMode(self, message):
        return {"type": "ShiftModeSet"}

    def _vehicle_SetVelocity(self, message):
        self.game.push(message["velocity"], message["dt"])
        return {"type": "VelocitySet"}

    def _vehicle_GetCenterOfGravity(self, message):
        return {"type": "GetCenterOfGravity", "data": self.game.centre_of_gravity()}

    def _vehicle_QueueLuaCommandVE(self, message):
        return self._lua(self._vehicle_lua, "ExecutedLuaChunkVE", message)

    def _lua(self, machine, kind, message):
        try:
            result = machine.run(message["chunk"])
        except LuaError as error:
            if message.get("resp"):
                return {"bngError": str(error).splitlines()[0]}
            return {"type": kind}  # the game only logs it
        return {"type": kind, "resp": result} if message.get("resp") else {"type": kind}
