"""The SDK's workspace calls."""

import grpc
import pytest
from openshell import DeletionOutcome, GatewayError


def test_a_workspace_is_created_shown_listed_and_deleted(workspaces, new_name):
    name = new_name("ws")
    created = workspaces.create(name, labels={"team": "blue"})
    assert (created.name, created.phase, created.labels) == (name, "WORKSPACE_PHASE_ACTIVE", {"team": "blue"})
    assert workspaces.get(name) == created
    assert created in workspaces.list_all()
    assert workspaces.delete(name).outcome == DeletionOutcome.COMPLETED
    with pytest.raises(GatewayError) as refused:
        workspaces.get(name)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_workspace_that_is_gone_can_be_deleted_only_if_missing_is_allowed(workspaces, new_name):
    name = new_name("ws")
    with pytest.raises(GatewayError) as refused:
        workspaces.delete(name)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert workspaces.delete(name, allow_missing=True).outcome == DeletionOutcome.ALREADY_ABSENT


def test_the_default_workspace_exists_and_stays(workspaces):
    assert workspaces.get("default").phase == "WORKSPACE_PHASE_ACTIVE"
    with pytest.raises(GatewayError) as refused:
        workspaces.delete("default")
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_a_second_workspace_of_a_name_is_refused(workspaces, workspace):
    with pytest.raises(GatewayError) as refused:
        workspaces.create(workspace)
    assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS


def test_workspaces_are_selected_by_label(workspaces, new_name):
    team = new_name("team")
    wanted = workspaces.create(new_name("ws"), labels={"team": team})
    workspaces.create(new_name("ws"), labels={"team": "another"})
    assert workspaces.list_all(label_selector=f"team={team}") == [wanted]


def test_a_workspace_with_a_sandbox_in_it_is_not_deleted(client, workspaces, workspace, new_name):
    client.create(workspace=workspace, name=new_name("box"))
    with pytest.raises(GatewayError) as refused:
        workspaces.delete(workspace)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "still contains resources" in refused.value.details()
