"""Errors as the SDK decodes them."""

import grpc
import pytest
from openshell import GatewayError
from openshell._proto import datamodel_pb2, openshell_pb2

DOMAIN = "openshell.nvidia.com"


def fields(error: GatewayError) -> list[str]:
    return [violation.field for violation in error.field_violations]


def test_a_name_that_is_none_is_refused_with_its_field(client, workspace):
    with pytest.raises(GatewayError) as refused:
        client.create(workspace=workspace, name="Not_A_Name")
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.error_info.reason == "INVALID_ARGUMENT"
    assert refused.value.error_info.domain == DOMAIN
    assert fields(refused.value) == ["name"]


def test_a_call_without_a_workspace_is_refused_with_its_field(client, stub):
    with pytest.raises(grpc.RpcError) as refused:
        stub.ListSandboxes(openshell_pb2.ListSandboxesRequest())
    error = GatewayError(refused.value)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert fields(error) == ["workspace_scope"]


def test_a_missing_sandbox_is_not_found(client, workspace):
    with pytest.raises(GatewayError) as refused:
        client.get("missing", workspace=workspace)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_missing_workspace_is_not_found_and_named(client, new_name):
    name = new_name("ws")
    with pytest.raises(GatewayError) as refused:
        client.create(workspace=name, name="box")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert name in refused.value.details()


def test_a_version_conflict_tells_the_current_version(client, stub, scope, workspace, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    provider = datamodel_pb2.Provider(
        metadata=datamodel_pb2.ObjectMeta(name="keys"), type="generic", credentials={"TOKEN": "secret-value"}
    )
    stub.CreateProvider(openshell_pb2.CreateProviderRequest(workspace_scope=scope, provider=provider))
    with pytest.raises(grpc.RpcError) as refused:
        stub.AttachSandboxProvider(
            openshell_pb2.AttachSandboxProviderRequest(
                workspace_scope=scope, sandbox=name, provider="keys", expected_resource_version=999
            )
        )
    error = GatewayError(refused.value)
    assert error.code() == grpc.StatusCode.ABORTED
    assert error.error_info.reason == "RESOURCE_VERSION_CONFLICT"
    assert error.error_info.metadata["recovery"] == "REFRESH_STATE"
    assert error.error_info.metadata["current_resource_version"] == "1"


def test_a_page_token_serves_only_the_list_it_is_from(client, workspace):
    for number in range(3):
        client.create(workspace=workspace, name=f"box-{number}")
    token = next(client.list(workspace=workspace, page_size=1)).next_page_token
    assert len(next(client.list(workspace=workspace, page_size=5, page_token=token)).items) == 2
    for wrong in (
        lambda: client.list(workspace="default", page_token=token),
        lambda: client.list(workspace=workspace, page_token=token, label_selector="team=blue"),
        lambda: client.list(workspace=workspace, page_token=token[:-2]),
        lambda: client.list(workspace=workspace, page_token="no token"),
    ):
        with pytest.raises(GatewayError) as refused:
            next(wrong())
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_supervisor_that_calls_here_is_told_where_it_is_served(client, stub, workspace, token_of, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    bearer = [("authorization", f"Bearer {token_of(name).read_text().strip()}")]
    with pytest.raises(grpc.RpcError) as refused:
        stub.RefreshSandboxToken(openshell_pb2.RefreshSandboxTokenRequest(), metadata=bearer)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "bridge" in refused.value.details()


def test_a_user_cannot_call_what_is_a_supervisors(stub):
    with pytest.raises(grpc.RpcError) as refused:
        stub.RefreshSandboxToken(openshell_pb2.RefreshSandboxTokenRequest())
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_no_answer_shows_a_credential(stub, scope):
    provider = datamodel_pb2.Provider(
        metadata=datamodel_pb2.ObjectMeta(name="keys"), type="generic", credentials={"TOKEN": "secret-value"}
    )
    created = stub.CreateProvider(openshell_pb2.CreateProviderRequest(workspace_scope=scope, provider=provider))
    shown = stub.GetProvider(openshell_pb2.GetProviderRequest(workspace_scope=scope, name="keys"))
    listed = stub.ListProviders(openshell_pb2.ListProvidersRequest(workspace_scope=scope))
    for answer in (created, shown, listed):
        assert "secret-value" not in str(answer)
    assert dict(created.provider.credentials) == {"TOKEN": "REDACTED"}
