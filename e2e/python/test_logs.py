"""Logs and platform events, by the calls the SDK has no method for, through two edges."""

import time

import grpc
import pytest
from openshell._proto import openshell_pb2, openshell_pb2_grpc

SOON = 30


@pytest.fixture
def push(deployment, token_of):
    """Logs messages as a sandbox."""

    def push(sandbox, messages, level="INFO"):
        metadata = [("authorization", f"Bearer {token_of(sandbox.name).read_text().strip()}")]
        lines = [openshell_pb2.SandboxLogLine(level=level, target="t", message=message) for message in messages]
        batches = (
            openshell_pb2.PushSandboxLogsRequest(sandbox_id=sandbox.id, logs=lines[at : at + 50])
            for at in range(0, len(lines), 50)
        )
        with grpc.insecure_channel(deployment.door("supervisor-bridge")) as channel:
            stub = openshell_pb2_grpc.OpenShellStub(channel)
            stub.PushSandboxLogs(batches, metadata=metadata, timeout=SOON)

    return push


def lines_of(stream, count):
    """The messages of the next lines, and the cursors with which they came."""
    lines = []
    for event in stream:
        if event.WhichOneof("payload") == "log":
            lines.append((event.log.message, event.cursor))
            if len(lines) == count:
                return lines
    pytest.fail(f"the stream ended after {lines}")


def test_logs_are_pushed_once_and_read_at_every_edge(client, stub, other_stub, workspace, scope, new_name, push):
    sandbox = client.create(workspace=workspace, name=new_name("box"))
    push(sandbox, [str(number) for number in range(120)])
    push(sandbox, ["bad"], level="ERROR")
    for edge in (stub, other_stub):
        request = openshell_pb2.GetSandboxLogsRequest(workspace_scope=scope, sandbox=sandbox.name, lines=2)
        response = edge.GetSandboxLogs(request)
        assert [line.message for line in response.logs] == ["119", "bad"]
        assert response.buffer_total == 121
        assert {(line.source, line.sandbox_id) for line in response.logs} == {("sandbox", sandbox.id)}
        request.min_level = "WARN"
        assert [line.message for line in edge.GetSandboxLogs(request).logs] == ["bad"]


def test_a_watch_resumes_at_the_other_stub_without_a_gap_or_a_repeat(
    client, stub, other_stub, workspace, scope, new_name, push
):
    sandbox = client.create(workspace=workspace, name=new_name("box"))
    request = openshell_pb2.WatchSandboxRequest(
        workspace_scope=scope, sandbox=sandbox.name, follow_logs=True, log_tail_lines=5
    )
    push(sandbox, [str(number) for number in range(10)])
    stream = stub.WatchSandbox(request, timeout=SOON)
    first = next(stream)
    assert first.WhichOneof("payload") == "sandbox" and first.cursor == ""
    lines = lines_of(stream, 5)
    assert [message for message, _ in lines] == ["5", "6", "7", "8", "9"]
    push(sandbox, ["10", "11"])
    lines += lines_of(stream, 1)
    stream.cancel()

    request.resume_after_cursor = lines[-1][1]
    resumed = other_stub.WatchSandbox(request, timeout=SOON)
    push(sandbox, ["12"])
    assert [message for message, _ in lines_of(resumed, 2)] == ["11", "12"]
    resumed.cancel()


def test_cursors_that_cannot_be_resumed_after_are_told_apart(client, stub, workspace, scope, new_name, push):
    one, other = (client.create(workspace=workspace, name=new_name("box")) for _ in range(2))
    push(one, [str(number) for number in range(2)])

    def watch(sandbox, cursor=""):
        return stub.WatchSandbox(
            openshell_pb2.WatchSandboxRequest(
                workspace_scope=scope, sandbox=sandbox.name, follow_logs=True, resume_after_cursor=cursor
            ),
            timeout=SOON,
        )

    def refusal(sandbox, cursor):
        with pytest.raises(grpc.RpcError) as raised:
            next(watch(sandbox, cursor))
        return raised.value.code()

    cursor = lines_of(watch(one), 1)[0][1]
    assert refusal(one, "no cursor") == grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(other, cursor) == grpc.StatusCode.INVALID_ARGUMENT
    push(one, [str(number) for number in range(2001)])
    assert refusal(one, cursor) == grpc.StatusCode.OUT_OF_RANGE


def test_events_are_followed_beside_the_status(client, stub, workspace, scope, new_name, supervise):
    sandbox = client.create(workspace=workspace, name=new_name("box"))
    supervise(sandbox.name)
    request = openshell_pb2.WatchSandboxRequest(
        workspace_scope=scope, sandbox=sandbox.name, follow_status=True, follow_events=True, event_tail=50
    )
    reasons = []
    for event in stub.WatchSandbox(request, timeout=SOON):
        if event.WhichOneof("payload") == "event":
            reasons.append(event.event.reason)
            if reasons[-1] == "DependenciesReady":
                break
    assert reasons[:2] == ["Created", "SupervisorConnected"]
    # The supervisor says what it does.
    request = openshell_pb2.GetSandboxLogsRequest(workspace_scope=scope, sandbox=sandbox.name)
    deadline = time.monotonic() + SOON
    while not (logs := stub.GetSandboxLogs(request).logs) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert logs[0].target == "roadstead.supervisor" and "connected" in logs[0].message
