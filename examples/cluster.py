"""Three servers, one stream, and a leader that is killed while messages are published.

    python examples/cluster.py

Starts three servers on this machine, makes a stream with three replicas, publishes to it from two clients, kills the
server that leads the stream, goes on, starts the server again, and counts: every message that was acknowledged must be
in the stream, at the sequence that its acknowledgement said, at all three servers.
"""

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import nats

NAMES = ("n1", "n2", "n3")
HOST = "127.0.0.1"


def free_ports(count):
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """A server in a process of its own."""

    def __init__(self, name, directory, ports, routes):
        self.name, self.port, self.http_port = name, ports[0], ports[1]
        self.log, self.config = directory / f"{name}.log", directory / f"{name}.conf"
        self.config.write_text(
            f'server_name: {name}\nlisten: "{HOST}:{self.port}"\nhttp: "{HOST}:{self.http_port}"\n'
            f'jetstream {{ store_dir: "{directory / name}" }}\n'
            f'cluster {{ name: demo, listen: "{HOST}:{ports[2]}", routes: [{routes}] }}\n'
        )
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "jetlake.cli.main", "serve", "-c", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def get(self, path):
        with urlopen(f"http://{HOST}:{self.http_port}{path}", timeout=5) as answer:
            return json.loads(answer.read())

    def is_member(self):
        try:
            return self.get("/jsz")["meta_cluster"]["cluster_size"] == len(NAMES)
        except (URLError, OSError, KeyError):
            return False

    def messages(self):
        """How many messages of the stream this server has, and the last sequence."""
        for account in self.get("/jsz?streams=1")["account_details"]:
            for stream in account.get("stream_detail") or ():
                return stream["state"]["messages"], stream["state"]["last_seq"]
        return 0, 0


def say(line):
    print(f"{time.monotonic() - BEGIN:6.2f} s  {line}", flush=True)


def wait_for(is_true, what, seconds=30):
    stop = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > stop:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.05)


async def publish(js, number, acked, gaps, stop):
    """Publish one message after the other, each until it is acknowledged; its id keeps it from being stored twice."""
    count, last = 0, time.monotonic()
    while time.monotonic() < stop[0]:
        payload = f"{number}.{count}"
        try:
            ack = await js.publish("orders.new", payload.encode(), timeout=0.25, headers={"Nats-Msg-Id": payload})
        except Exception:
            await asyncio.sleep(0.005)
            continue
        acked[payload] = ack.seq
        gaps.append(time.monotonic() - last)
        count, last = count + 1, time.monotonic()


async def main(servers, seconds):
    for server in servers.values():
        server.start()
    wait_for(lambda: all(server.is_member() for server in servers.values()), "three servers that are one")
    say(f"{', '.join(NAMES)} are one JetStream")
    client = await nats.connect(f"nats://{HOST}:{servers['n1'].port}")
    made = await client.jetstream().add_stream(name="ORDERS", subjects=["orders.>"], num_replicas=3)
    await client.close()
    leader = made.cluster.leader
    say(f"stream ORDERS has three replicas; {leader} leads")
    others = [server for name, server in servers.items() if name != leader]
    clients = [await nats.connect(f"nats://{HOST}:{server.port}") for server in others]
    acked, gaps, stop = {}, [], [time.monotonic() + 2 * seconds]
    work = [publish(client.jetstream(), number, acked, gaps, stop) for number, client in enumerate(clients)]
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.sleep(seconds)
    before = len(acked)
    say(f"two clients have {before:,} acks; kill -9 {leader}")
    servers[leader].kill()
    await asyncio.gather(*tasks)
    say(f"{len(acked):,} acks; the longest pause of a client was {max(gaps):.2f} s")
    info = await clients[0].jetstream().stream_info("ORDERS")
    say(f"{info.cluster.leader} leads now; starting {leader} again")
    servers[leader].start()
    wait_for(lambda: servers[leader].is_member(), f"{leader} to be back")
    wait_for(lambda: len({server.messages() for server in servers.values()}) == 1, "equal replicas")
    say(f"all three replicas have {servers[leader].messages()[0]:,} messages")
    js, stored = clients[0].jetstream(), {}
    consumer = await js.pull_subscribe("orders.>", stream="ORDERS")
    while len(stored) < info.state.messages:
        for msg in await consumer.fetch(500, timeout=5):
            stored[msg.data.decode()] = msg.metadata.sequence.stream
            await msg.ack()
    lost = [payload for payload, seq in acked.items() if stored.get(payload) != seq]
    say(f"acknowledged {len(acked):,}, of these lost or moved: {len(lost)}")
    for client in clients:
        await client.close()
    return not lost and len(acked) > before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="of publishing before the leader is killed, and after"
    )
    options = parser.parse_args()
    BEGIN = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="jetlake-cluster-"))
    ports = free_ports(3 * len(NAMES))
    routes = ", ".join(f'"nats-route://{HOST}:{port}"' for port in ports[2::3])
    found = {name: Server(name, place, ports[3 * at : 3 * at + 3], routes) for at, name in enumerate(NAMES)}
    try:
        is_good = asyncio.run(main(found, options.seconds))
    finally:
        for each in found.values():
            each.kill()
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(0 if is_good else 1)
