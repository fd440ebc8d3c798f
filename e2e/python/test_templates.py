"""Workload templates, and sandboxes made from them."""

import uuid

import grpc
import pytest
from google.protobuf import duration_pb2
from openshell import GatewayError, SandboxClient, SandboxTemplateClient
from openshell._proto import datamodel_pb2, openshell_pb2

from replay import call


@pytest.fixture
def templates(client: SandboxClient) -> SandboxTemplateClient:
    return client.sandbox_templates()


def template(name: str, **workload) -> openshell_pb2.SandboxWorkloadTemplate:
    return openshell_pb2.SandboxWorkloadTemplate(
        metadata=datamodel_pb2.ObjectMeta(name=name),
        spec=openshell_pb2.SandboxWorkloadTemplateSpec(workload=openshell_pb2.SandboxWorkloadConfig(**workload)),
    )


def code(refused) -> grpc.StatusCode:
    return refused.value.code()


def test_a_template_is_created_shown_listed_and_deleted(templates, stub, scope, workspace):
    created = templates.create(
        workspace=workspace,
        name="python",
        image="python:3.13",
        labels={"team": "blue"},
        annotations={"note": "ours"},
        environment={"MODE": "test"},
        cpu="500m",
        memory="1Gi",
        gpu_count=1,
        driver_config={"pool": "fast"},
    )
    metadata = created.metadata
    assert (metadata.name, metadata.workspace, metadata.resource_version) == ("python", workspace, 1)
    assert metadata.id and metadata.created_time.seconds > 0
    assert created.spec.workload.image == "python:3.13"
    assert templates.get("python", workspace=workspace) == created
    assert templates.list_all(workspace=workspace) == [created]
    everywhere = openshell_pb2.ListSandboxTemplatesRequest(
        workspace_scope=datamodel_pb2.WorkspaceSelector(all_workspaces=datamodel_pb2.AllWorkspaces()), page_size=1000
    )
    assert created in stub.ListSandboxTemplates(everywhere).templates

    templates.delete("python", workspace=workspace)
    with pytest.raises(GatewayError) as refused:
        templates.get("python", workspace=workspace)
    assert code(refused) == grpc.StatusCode.NOT_FOUND


def test_a_template_that_is_gone_can_be_deleted_only_if_missing_is_allowed(stub, scope):
    request = openshell_pb2.DeleteSandboxTemplateRequest(workspace_scope=scope, name="none")
    with pytest.raises(grpc.RpcError) as refused:
        stub.DeleteSandboxTemplate(request)
    assert code(refused) == grpc.StatusCode.NOT_FOUND
    request.allow_missing = True
    outcome = stub.DeleteSandboxTemplate(request).outcome
    assert outcome == openshell_pb2.DELETION_OUTCOME_ALREADY_ABSENT


def test_templates_are_listed_page_by_page_and_by_label(templates, workspace):
    names = [f"t-{number}" for number in range(5)]
    for number, name in enumerate(names):
        templates.create(workspace=workspace, name=name, labels={"odd": str(number % 2)})
    pages = [[found.metadata.name for found in page.items] for page in templates.list(workspace=workspace, page_size=2)]
    assert pages == [names[:2], names[2:4], names[4:]]
    odd = templates.list_all(workspace=workspace, label_selector="odd=1")
    assert [found.metadata.name for found in odd] == ["t-1", "t-3"]


def test_a_template_is_refused_with_the_field_at_fault(stub, scope, workspace):
    slow = template("t")
    slow.spec.desired_service_level.startup.ready_within.CopyFrom(duration_pb2.Duration(seconds=0))
    elsewhere = template("t")
    elsewhere.metadata.workspace = "elsewhere"
    empty = openshell_pb2.SandboxWorkloadTemplate(metadata=datamodel_pb2.ObjectMeta(name="t"))
    for wrong, field in [
        (template(""), "template.metadata.name"),
        (elsewhere, "template.metadata.workspace"),
        (empty, "template.spec.workload"),
        (slow, "template.spec.desired_service_level.startup.ready_within"),
        (template("t", environment={"1": ""}), "template.spec.workload.environment"),
    ]:
        with pytest.raises(grpc.RpcError) as refused:
            stub.CreateSandboxTemplate(
                openshell_pb2.CreateSandboxTemplateRequest(workspace_scope=scope, template=wrong)
            )
        error = GatewayError(refused.value)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in error.field_violations] == [field]


def test_a_second_template_of_a_name_is_refused(templates, workspace):
    templates.create(workspace=workspace, name="one")
    with pytest.raises(GatewayError) as refused:
        templates.create(workspace=workspace, name="one")
    assert code(refused) == grpc.StatusCode.ALREADY_EXISTS


def test_a_repeated_creation_shows_the_original_while_it_stands(stub, scope):
    request = openshell_pb2.CreateSandboxTemplateRequest(
        workspace_scope=scope, template=template("t", image="one"), request_id=str(uuid.uuid4())
    )
    first, replayed = call(stub.CreateSandboxTemplate, request)
    assert not replayed
    assert call(stub.CreateSandboxTemplate, request) == (first, True)

    deletion = openshell_pb2.DeleteSandboxTemplateRequest(
        workspace_scope=scope, name="t", request_id=str(uuid.uuid4())
    )
    gone, replayed = call(stub.DeleteSandboxTemplate, deletion)
    assert not replayed
    with pytest.raises(grpc.RpcError) as refused:
        call(stub.CreateSandboxTemplate, request)
    assert GatewayError(refused.value).error_info.reason == "REQUEST_REPLAY_UNAVAILABLE"

    # What took the name since is spared.
    replacement = openshell_pb2.CreateSandboxTemplateRequest(workspace_scope=scope, template=template("t"))
    kept, _ = call(stub.CreateSandboxTemplate, replacement)
    assert call(stub.DeleteSandboxTemplate, deletion) == (gone, True)
    shown = stub.GetSandboxTemplate(openshell_pb2.GetSandboxTemplateRequest(workspace_scope=scope, name="t"))
    assert shown.template.metadata.id == kept.template.metadata.id


def test_a_sandbox_is_made_from_a_template_and_outlives_it(client, templates, stub, scope, workspace, new_name):
    templates.create(
        workspace=workspace, name="python", image="python:3.13", environment={"MODE": "test"}, cpu="2", memory="1Gi"
    )
    name = new_name("box")
    created = client.create_from_template(
        workspace=workspace,
        workload_template="python",
        name=name,
        spec=openshell_pb2.SandboxSpec(command=["sleep", "1"]),
    )
    provenance = created.created_from_workload_template
    assert (provenance.name, provenance.resource_version) == ("python", "1")
    get = openshell_pb2.GetSandboxRequest(workspace_scope=scope, name=name)
    spec = stub.GetSandbox(get).sandbox.spec
    assert (spec.template.image, dict(spec.environment), list(spec.command)) == (
        "python:3.13",
        {"MODE": "test"},
        ["sleep", "1"],
    )
    limits = spec.template.resources["limits"]
    assert (limits["cpu"], limits["memory"]) == ("2", "1Gi")

    templates.delete("python", workspace=workspace)
    assert client.get(name, workspace=workspace).created_from_workload_template == provenance
    with pytest.raises(GatewayError) as refused:
        client.create_from_template(workspace=workspace, workload_template="python")
    assert code(refused) == grpc.StatusCode.NOT_FOUND


def test_what_a_template_decides_is_left_out_of_the_request(client, templates, workspace):
    templates.create(workspace=workspace, name="t")
    for spec, field in [
        (openshell_pb2.SandboxSpec(log_level="debug"), "spec.log_level"),
        (openshell_pb2.SandboxSpec(environment={"A": "1"}), "spec.environment"),
        (openshell_pb2.SandboxSpec(template=openshell_pb2.SandboxTemplate()), "spec.template"),
        (
            openshell_pb2.SandboxSpec(resource_requirements=openshell_pb2.ResourceRequirements()),
            "spec.resource_requirements",
        ),
    ]:
        with pytest.raises(GatewayError) as refused:
            client.create_from_template(workspace=workspace, workload_template="t", spec=spec)
        assert code(refused) == grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in refused.value.field_violations] == [field]


def test_a_repeated_creation_from_a_template_works_after_the_template_is_gone(templates, stub, scope, workspace):
    templates.create(workspace=workspace, name="t")
    request = openshell_pb2.CreateSandboxRequest(
        workspace_scope=scope, name="box", workload_template="t", request_id=str(uuid.uuid4())
    )
    first, _ = call(stub.CreateSandbox, request)
    templates.delete("t", workspace=workspace)
    second, replayed = call(stub.CreateSandbox, request)
    assert replayed
    assert second.sandbox.metadata.id == first.sandbox.metadata.id
    assert second.sandbox.created_from_workload_template == first.sandbox.created_from_workload_template


def test_a_workspace_with_a_template_in_it_is_not_deleted(templates, workspaces, workspace):
    templates.create(workspace=workspace, name="t")
    with pytest.raises(GatewayError) as refused:
        workspaces.delete(workspace)
    assert code(refused) == grpc.StatusCode.FAILED_PRECONDITION
    assert "still contains resources (template)" in refused.value.details()
    with pytest.raises(GatewayError) as refused:
        templates.create(workspace=workspace, name="another")
    assert "being deleted" in refused.value.details()
    templates.delete("t", workspace=workspace)
    workspaces.delete(workspace)
