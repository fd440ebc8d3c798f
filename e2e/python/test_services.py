"""Services that sandboxes expose."""

import uuid

import grpc
import pytest
from openshell import GatewayError, ServiceAuthorizationMode, ServiceExposure
from openshell._proto import datamodel_pb2, openshell_pb2

from replay import call

EVERYWHERE = datamodel_pb2.WorkspaceSelector(all_workspaces=datamodel_pb2.AllWorkspaces())


@pytest.fixture
def box(client, workspace) -> str:
    return client.create(workspace=workspace, name="box").name


def expose(scope, sandbox, name="", port=8080, **more) -> openshell_pb2.ExposeServiceRequest:
    return openshell_pb2.ExposeServiceRequest(
        workspace_scope=scope, sandbox=sandbox, name=name, target_port=port, **more
    )


def get(scope, sandbox, name="") -> openshell_pb2.GetServiceRequest:
    return openshell_pb2.GetServiceRequest(workspace_scope=scope, sandbox=sandbox, name=name)


def delete(scope, sandbox, name="", **more) -> openshell_pb2.DeleteServiceRequest:
    return openshell_pb2.DeleteServiceRequest(workspace_scope=scope, sandbox=sandbox, name=name, **more)


def names(stub, scope, **more) -> list[str]:
    """Of all pages."""
    found, token = [], ""
    while True:
        page = stub.ListServices(openshell_pb2.ListServicesRequest(workspace_scope=scope, page_token=token, **more))
        found += [service.endpoint.metadata.name for service in page.services]
        token = page.next_page_token
        if not token:
            return found


def refusal(method, request) -> GatewayError:
    with pytest.raises(grpc.RpcError) as refused:
        method(request)
    return GatewayError(refused.value)


def test_a_service_is_exposed_shown_and_deleted(stub, scope, workspace, box, url_of):
    told = stub.ExposeService(expose(scope, box, "web", 8080))
    endpoint, metadata = told.endpoint, told.endpoint.metadata
    assert (metadata.name, metadata.workspace, metadata.resource_version) == ("box--web", workspace, 1)
    assert dict(metadata.labels) == {"sandbox": "box"}
    assert (endpoint.sandbox, endpoint.name, endpoint.target_port, endpoint.domain) == ("box", "web", 8080, True)
    assert endpoint.authorization_mode == openshell_pb2.SERVICE_AUTHORIZATION_MODE_STRIP
    assert told.url == url_of("box", "web")
    assert stub.GetService(get(scope, box, "web")) == told

    unnamed = stub.ExposeService(expose(scope, box))
    assert (unnamed.endpoint.metadata.name, unnamed.url) == ("box", url_of("box", ""))

    assert stub.DeleteService(delete(scope, box, "web")).outcome == openshell_pb2.DELETION_OUTCOME_COMPLETED
    assert refusal(stub.GetService, get(scope, box, "web")).code() == grpc.StatusCode.NOT_FOUND
    assert stub.GetService(get(scope, box)) == unnamed


def test_a_service_that_is_exposed_again_is_changed(stub, scope, box):
    first = stub.ExposeService(expose(scope, box, "web", 8080)).endpoint
    passing = openshell_pb2.SERVICE_AUTHORIZATION_MODE_BEARER_PASSTHROUGH
    second = stub.ExposeService(expose(scope, box, "web", 9090, authorization_mode=passing)).endpoint
    assert (second.metadata.id, second.metadata.created_time) == (first.metadata.id, first.metadata.created_time)
    assert (second.metadata.resource_version, second.target_port) == (2, 9090)
    assert second.authorization_mode == passing


def test_a_missing_service_is_told_apart_and_a_missing_sandbox_is_never_hidden(stub, scope, box):
    missing = delete(scope, box, "web")
    assert refusal(stub.DeleteService, missing).code() == grpc.StatusCode.NOT_FOUND
    missing.allow_missing = True
    assert stub.DeleteService(missing).outcome == openshell_pb2.DELETION_OUTCOME_ALREADY_ABSENT
    orphan = delete(scope, "none", "web", allow_missing=True)
    assert refusal(stub.DeleteService, orphan).code() == grpc.StatusCode.NOT_FOUND
    assert refusal(stub.ExposeService, expose(scope, "none")).code() == grpc.StatusCode.NOT_FOUND


def test_services_are_listed_by_workspace_and_by_sandbox(client, stub, scope, workspace, box):
    client.create(workspace=workspace, name="other")
    for sandbox, service in [(box, "b"), ("other", ""), (box, "a"), (box, "")]:
        stub.ExposeService(expose(scope, sandbox, service))
    assert names(stub, scope, page_size=1) == ["box--b", "other", "box--a", "box"]
    assert names(stub, scope, sandbox=box, page_size=2) == ["box--b", "box--a", "box"]
    assert set(names(stub, scope)) <= set(names(stub, EVERYWHERE, page_size=1000))
    both = openshell_pb2.ListServicesRequest(workspace_scope=EVERYWHERE, sandbox=box)
    assert refusal(stub.ListServices, both).code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("request_of", "field"),
    [
        (lambda scope: expose(scope, "box", "web", 0), "target_port"),
        (lambda scope: expose(scope, "box", "web", 65536), "target_port"),
        (lambda scope: expose(scope, "box", "a--b"), "name"),
        (lambda scope: expose(scope, ""), "sandbox"),
        (lambda scope: expose(scope, "box", authorization_mode=9), "authorization_mode"),
    ],
)
def test_a_service_is_refused_with_the_field_at_fault(stub, scope, box, request_of, field):
    error = refusal(stub.ExposeService, request_of(scope))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.field_violations] == [field]


def test_a_repeated_exposure_shows_the_recorded_version_only(stub, scope, box):
    request = expose(scope, box, "web", 8080, request_id=str(uuid.uuid4()))
    first, replayed = call(stub.ExposeService, request)
    assert not replayed
    assert call(stub.ExposeService, request) == (first, True)
    stub.ExposeService(expose(scope, box, "web", 9090))
    assert refusal(stub.ExposeService, request).error_info.reason == "REQUEST_REPLAY_UNAVAILABLE"
    assert stub.GetService(get(scope, box, "web")).endpoint.target_port == 9090


def test_a_repeated_deletion_spares_what_took_the_name_since(stub, scope, box):
    stub.ExposeService(expose(scope, box, "web"))
    request = delete(scope, box, "web", request_id=str(uuid.uuid4()))
    first, _ = call(stub.DeleteService, request)
    replacement = stub.ExposeService(expose(scope, box, "web"))
    assert call(stub.DeleteService, request) == (first, True)
    assert stub.GetService(get(scope, box, "web")) == replacement


def test_a_sandbox_exposes_services_from_its_creation_on(client, stub, scope, workspace, url_of):
    created = client.create(
        workspace=workspace,
        name="served",
        service_exposures=[
            ServiceExposure(target_port=8080),
            ServiceExposure(9090, "api", ServiceAuthorizationMode.BEARER_PASSTHROUGH),
        ],
    )
    assert dict(created.service_urls) == {"": url_of("served", ""), "api": url_of("served", "api")}
    # Nothing but the creation shows them.
    assert not client.get("served", workspace=workspace).service_urls
    api = stub.GetService(get(scope, "served", "api"))
    assert (api.endpoint.sandbox_id, api.endpoint.target_port) == (created.id, 9090)
    assert api.url == created.service_urls["api"]


def test_a_repeated_creation_shows_the_services_again(stub, scope, workspace):
    request = openshell_pb2.CreateSandboxRequest(
        workspace_scope=scope,
        name="served",
        spec=openshell_pb2.SandboxSpec(),
        service_exposures=[
            openshell_pb2.SandboxServiceExposure(service=name, target_port=80) for name in ("", "api")
        ],
        request_id=str(uuid.uuid4()),
    )
    first, _ = call(stub.CreateSandbox, request)
    second, replayed = call(stub.CreateSandbox, request)
    assert replayed
    assert second.service_urls == first.service_urls
    stub.DeleteService(delete(scope, "served", "api"))
    assert set(call(stub.CreateSandbox, request)[0].service_urls) == {""}


def test_exposures_that_collide_or_are_too_many_make_no_sandbox(client, workspace):
    for exposures in [
        [ServiceExposure(80, "web"), ServiceExposure(81, "web")],
        [ServiceExposure(80, f"web-{number}") for number in range(33)],
        [ServiceExposure(0, "web")],
    ]:
        with pytest.raises(GatewayError) as refused:
            client.create(workspace=workspace, name="box", service_exposures=exposures)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert client.list_all(workspace=workspace) == []


def test_services_keep_a_workspace_and_go_with_their_sandbox(client, stub, scope, workspaces, workspace, box):
    stub.ExposeService(expose(scope, box, "web"))
    with pytest.raises(GatewayError) as refused:
        workspaces.delete(workspace)
    assert "still contains resources (sandbox, service)" in refused.value.details()
    assert "being deleted" in refusal(stub.ExposeService, expose(scope, box, "api")).details()
    client.delete(box, workspace=workspace)
    client.wait_deleted(box, workspace=workspace, timeout_seconds=20)
    assert names(stub, scope) == []
    workspaces.delete(workspace)
