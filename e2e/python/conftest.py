"""A running Roadstead for the tests of this folder, and clients of it.

ROADSTEAD_ENDPOINT (host:port or a URL) names one that runs already; without it one is started from the program that
ROADSTEAD_PROGRAM names, and stopped at the end. Tests that need a supervisor are skipped against a foreign one.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator

import grpc
import pytest
from openshell import SandboxClient, WorkspaceClient
from openshell._proto import datamodel_pb2, openshell_pb2_grpc

START_SECONDS = 90
STOP_SECONDS = 60
# Where a deployment of the tests' own says that services are reached.
SERVICE_DOMAIN = "apps.localhost"


class Deployment:
    """All of Roadstead in one process, data in a folder that goes with it."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.program = program
        self.folder = folder
        self.log = folder / "all.log"
        with self.log.open("wb") as log:
            command = [program, "all", "--data", folder / "data", "--free-ports", "--not-durable"]
            environment = {**os.environ, "ROADSTEAD_SERVICE_DOMAIN": SERVICE_DOMAIN}
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.facts = self._wait_until_ready()

    def _wait_until_ready(self) -> dict:
        run_file = self.folder / "data" / "run.json"
        deadline = time.monotonic() + START_SECONDS
        while not run_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                pytest.exit(f"roadstead did not become ready:\n{self.log.read_text()[-5000:]}", returncode=1)
            time.sleep(0.05)
        return json.loads(run_file.read_text())

    def door(self, role: str) -> str:
        return next(replica["listen"] for replica in self.facts["replicas"] if replica["role"] == role)

    def run(self, *arguments: str) -> str:
        """One of the operator's commands."""
        environment = {
            **os.environ,
            "ROADSTEAD_ENDPOINT": f"http://{self.door('edge')}",
            "ROADSTEAD_NATS_URL": self.facts["nats_url"],
            "ROADSTEAD_OPERATOR_KEYS": str(self.folder / "data/keys/operator/keys.json"),
        }
        command = [self.program, *arguments]
        return subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == 0, self.log.read_text()[-5000:]


@pytest.fixture(scope="session")
def deployment() -> Iterator[Deployment | None]:
    if os.environ.get("ROADSTEAD_ENDPOINT"):
        yield None
        return
    program = os.environ.get("ROADSTEAD_PROGRAM")
    if not program:
        pytest.exit("set ROADSTEAD_ENDPOINT or ROADSTEAD_PROGRAM; `./dev test` does", returncode=1)
    with tempfile.TemporaryDirectory(prefix="roadstead-python-") as name:
        folder = pathlib.Path(name)
        # Postgres may run as another user and has to reach its own folder in there.
        folder.chmod(0o711)
        running = Deployment(pathlib.Path(program), folder)
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="session")
def endpoint(deployment: Deployment | None) -> str:
    told = os.environ.get("ROADSTEAD_ENDPOINT", "").removeprefix("http://")
    return told or deployment.door("edge")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def other_endpoint(deployment: Deployment | None) -> Iterator[str]:
    """A second edge of the same deployment."""
    if deployment is None:
        pytest.skip("needs a deployment of its own")
    door, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    keys = deployment.folder / "data/keys/edge/keys.json"
    command = [deployment.program, "edge", "--keys", keys, "--nats-url", deployment.facts["nats_url"]]
    command += ["--listen", door, "--admin-listen", admin]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://{admin}/readyz", timeout=1)
            break
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    else:
        process.kill()
        pytest.fail("the other edge did not become ready")
    yield door
    process.terminate()
    process.wait(STOP_SECONDS)


@pytest.fixture
def client(endpoint: str) -> Iterator[SandboxClient]:
    with SandboxClient(endpoint) as client:
        yield client


@pytest.fixture
def other_client(other_endpoint: str) -> Iterator[SandboxClient]:
    """A client of the second edge."""
    with SandboxClient(other_endpoint) as client:
        yield client


@pytest.fixture
def workspaces(client: SandboxClient) -> WorkspaceClient:
    return WorkspaceClient.from_sandbox_client(client)


@pytest.fixture
def stub(endpoint: str) -> Iterator[openshell_pb2_grpc.OpenShellStub]:
    """The calls the SDK has no method for, and the metadata it does not show."""
    with grpc.insecure_channel(endpoint) as channel:
        yield openshell_pb2_grpc.OpenShellStub(channel)


@pytest.fixture
def other_stub(other_endpoint: str) -> Iterator[openshell_pb2_grpc.OpenShellStub]:
    """The same at the second edge."""
    with grpc.insecure_channel(other_endpoint) as channel:
        yield openshell_pb2_grpc.OpenShellStub(channel)


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names that no other test has: at most 19 bytes, as the API wants them."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def workspace(workspaces: WorkspaceClient, new_name: Callable[[str], str]) -> str:
    """A workspace of the test's own."""
    return workspaces.create(new_name("ws")).name


@pytest.fixture
def scope(workspace: str) -> datamodel_pb2.WorkspaceSelector:
    return datamodel_pb2.WorkspaceSelector(workspace=workspace)


@pytest.fixture
def url_of(deployment: Deployment | None, workspace: str) -> Callable[[str, str], str]:
    """Where a service of a sandbox of the test's workspace is reached; "" is the service without a name."""
    if deployment is None:
        pytest.skip("needs a deployment of its own, whose domain is known")

    def url(sandbox: str, service: str) -> str:
        name = f"{sandbox}--{service}" if service else sandbox
        return f"http://{workspace}--{name}.{SERVICE_DOMAIN}/"

    return url


@pytest.fixture
def token_of(deployment: Deployment | None, workspace: str, tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Mints a token for the supervisor of a sandbox of the test's workspace, into a file."""
    if deployment is None:
        pytest.skip("needs a deployment of its own")

    def mint(sandbox: str) -> pathlib.Path:
        file = tmp_path / f"{sandbox}.token"
        deployment.run("sandbox", "--workspace", workspace, "token", sandbox, "--to", str(file))
        return file

    return mint


@pytest.fixture
def supervise(
    deployment: Deployment, workspace: str, tmp_path: pathlib.Path, token_of: Callable[[str], pathlib.Path]
) -> Iterator[Callable[[str], None]]:
    """Starts a supervisor for a sandbox of the test's workspace."""
    started: list[subprocess.Popen] = []

    def start(sandbox: str) -> None:
        command = [deployment.program, "supervisor", "--workspace", workspace, "--sandbox", sandbox]
        command += ["--token-file", token_of(sandbox), "--dir", tmp_path / sandbox]
        command += ["--bridge", f"http://{deployment.door('supervisor-bridge')}"]
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(STOP_SECONDS)
