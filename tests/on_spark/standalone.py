"""A real Spark on this machine: a Master, two Workers on addresses of their own, a Connect server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

HOME = Path(pyspark.__file__).parent
# A JVM takes its time on a busy machine.
UP_WITHIN = 60.0

# A JVM that starts soon rather than runs fast.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Of every session here: loopback only, and nothing that the tests do not look at.
QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What a session tells of its tasks is that of this moment.
    "spark.ui.liveUpdate.period": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # A few rows: compiling costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}
# Of sessions on the standalone cluster: one executor with one core on each Worker, there when the session is.
TWO_EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def environment() -> dict[str, str]:
    """What Spark's programs need to know."""
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Standalone:
    """A cluster, until it is closed."""

    def __init__(self, folder: Path, cores: int) -> None:
        """Start the Master and both Workers, and wait until they know each other."""
        self.folder = folder
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        port, web = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._web = f"http://127.0.0.1:{web}/json/"
        try:
            ports = ["--port", port, "--webui-port", web]
            self._start("127.0.0.1", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
            wait_for_port(port)
            for number in (2, 3):
                self.start_worker(number)
            self.wait_for_workers()
        except BaseException:
            self.close()
            raise

    def start_worker(self, number: int) -> None:
        """Start the Worker at 127.0.0.`number`."""
        host = f"127.0.0.{number}"
        options = ["--host", host, "--webui-port", free_port(), "--cores", self._cores, "--memory", "2g"]
        options += ["--work-dir", self.folder / f"work-{number}", self.master]
        self.workers[number] = self._start(host, "org.apache.spark.deploy.worker.Worker", *options)

    def wait_for_workers(self, count: int = 2) -> None:
        """Until the Master knows so many."""
        end = time.monotonic() + UP_WITHIN
        while self._alive() < count:
            assert time.monotonic() < end, "the Workers do not come"
            time.sleep(0.05)

    def _start(self, host: str, main: str, *arguments: object) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{main.rsplit('.', 1)[-1]}-{host}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [HOME / "bin" / "spark-class", main, *map(str, arguments)],
                env={
                    **environment(),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": QUICK,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _alive(self) -> int:
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(self._web, timeout=2) as answer:
            return int(json.load(answer)["aliveworkers"])
        return 0

    def applications(self) -> list[str]:
        """Names of those that run."""
        with urllib.request.urlopen(self._web, timeout=5) as answer:
            return [found["name"] for found in json.load(answer)["activeapps"]]

    def connect_server(self) -> str:
        """Start a Connect server on it; return the address for clients."""
        port = free_port()
        conf = {
            **QUIET,
            **TWO_EXECUTORS,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        log = (self.folder / "connect.log").open("wb")
        with log:
            process = subprocess.Popen(
                [
                    *[str(HOME / "bin" / "spark-submit"), "--master", self.master, "--name", "connect"],
                    *["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *words],
                    "spark-internal",
                ],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        wait_for_port(port)
        return f"sc://127.0.0.1:{port}"

    def close(self) -> None:
        """End all of it."""
        while self._processes:
            _end(self._processes.pop())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def wait_for_port(port: int) -> None:
    end = time.monotonic() + UP_WITHIN
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < end, f"nobody listens at {port}"
        time.sleep(0.05)


def classic(master: str, settings: dict[str, str]) -> Any:
    """A session of this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in {**QUIET, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def end_gateway() -> None:
    """End the JVM in which sessions of this process were."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)
        SparkContext._gateway = SparkContext._jvm = None
