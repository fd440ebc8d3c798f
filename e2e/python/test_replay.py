"""The same mutation twice, by its request id."""

import pathlib
import uuid

import grpc
import pytest
from openshell import GatewayError
from openshell._proto import openshell_pb2

from replay import call

def create_sandbox(scope, name, request_id, **more):
    return openshell_pb2.CreateSandboxRequest(
        workspace_scope=scope, name=name, spec=openshell_pb2.SandboxSpec(), request_id=request_id, **more
    )


def reason(refused) -> str:
    return GatewayError(refused.value).error_info.reason


def test_a_repeated_creation_gives_the_first_answer_and_says_so(stub, client, scope, workspace, new_name):
    request = create_sandbox(scope, new_name("box"), str(uuid.uuid4()))
    first, replayed = call(stub.CreateSandbox, request)
    assert not replayed
    second, replayed = call(stub.CreateSandbox, request)
    assert replayed
    assert second.sandbox.metadata.id == first.sandbox.metadata.id
    assert len(client.list_all(workspace=workspace)) == 1


def test_the_id_counts_whatever_its_case(stub, scope, new_name):
    name, request_id = new_name("box"), str(uuid.uuid4())
    call(stub.CreateSandbox, create_sandbox(scope, name, request_id))
    _, replayed = call(stub.CreateSandbox, create_sandbox(scope, name, request_id.upper()))
    assert replayed


def test_another_request_under_a_used_id_is_refused_and_does_nothing(stub, client, scope, workspace):
    request_id = str(uuid.uuid4())
    call(stub.CreateSandbox, create_sandbox(scope, "first", request_id))
    with pytest.raises(grpc.RpcError) as refused:
        call(stub.CreateSandbox, create_sandbox(scope, "second", request_id))
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert reason(refused) == "REQUEST_ID_PAYLOAD_MISMATCH"
    assert [sandbox.name for sandbox in client.list_all(workspace=workspace)] == ["first"]


def test_one_id_serves_different_methods_and_targets(stub, scope, workspace, new_name):
    request_id = str(uuid.uuid4())
    names = [new_name("ws"), new_name("ws")]
    for name in names:
        _, replayed = call(stub.CreateWorkspace, openshell_pb2.CreateWorkspaceRequest(name=name, request_id=request_id))
        assert not replayed
    _, replayed = call(stub.CreateSandbox, create_sandbox(scope, "box", request_id))
    assert not replayed
    deletion = openshell_pb2.DeleteWorkspaceRequest(name=names[0], request_id=request_id)
    assert not call(stub.DeleteWorkspace, deletion)[1]
    assert call(stub.DeleteWorkspace, deletion)[1]


def test_a_replayed_deletion_spares_what_took_the_name_since(stub, client, scope, workspace, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    deletion = openshell_pb2.DeleteSandboxRequest(workspace_scope=scope, name=name, request_id=str(uuid.uuid4()))
    first, _ = call(stub.DeleteSandbox, deletion)
    client.wait_deleted(name, workspace=workspace, timeout_seconds=20)
    replacement = client.create(workspace=workspace, name=name)
    second, replayed = call(stub.DeleteSandbox, deletion)
    assert replayed
    assert second.sandbox_id == first.sandbox_id != replacement.id
    assert client.get(name, workspace=workspace).id == replacement.id


def test_a_refusal_frees_the_id(stub, client, scope, workspace):
    client.create(workspace=workspace, name="taken")
    request = create_sandbox(scope, "taken", str(uuid.uuid4()))
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as refused:
            call(stub.CreateSandbox, request)
        assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS
    client.delete("taken", workspace=workspace)
    client.wait_deleted("taken", workspace=workspace, timeout_seconds=20)
    _, replayed = call(stub.CreateSandbox, request)
    assert not replayed


def test_the_example_in_the_page_for_clients_does_what_it_says(endpoint, client, workspace, capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "replay.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    example = example.replace("127.0.0.1:17670", endpoint).replace('workspace="default"', f'workspace="{workspace}"')
    names = {}
    exec(compile(example, "docs/replay.md", "exec"), names)
    assert capsys.readouterr().out.endswith(" created\n")
    response, replayed = names["at_most_once"](names["stub"].CreateSandbox, names["request"])
    assert replayed
    assert [sandbox.id for sandbox in client.list_all(workspace=workspace)] == [response.sandbox.metadata.id]


@pytest.mark.parametrize(
    "request_id",
    [
        "00000000-0000-0000-0000-000000000000",
        "not-an-id",
        "{123e4567-e89b-12d3-a456-426614174000}",
        "123e4567e89b12d3a456426614174000",
        "123e4567-e89b-12d3-a456-4266141740000",
    ],
)
def test_an_id_that_is_none_is_refused_with_its_field(stub, scope, request_id):
    with pytest.raises(grpc.RpcError) as refused:
        call(stub.CreateSandbox, create_sandbox(scope, "box", request_id))
    error = GatewayError(refused.value)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.field_violations] == ["request_id"]
