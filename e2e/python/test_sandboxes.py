"""The SDK's sandbox calls."""

import grpc
import pytest
from openshell import DeletionOutcome, GatewayError
from openshell._proto import openshell_pb2


def test_a_sandbox_is_created_shown_and_deleted(client, workspace, new_name):
    name = new_name("box")
    created = client.create(workspace=workspace, name=name, labels={"team": "blue"})
    assert (created.name, created.workspace, created.phase) == (name, workspace, openshell_pb2.SANDBOX_PHASE_PROVISIONING)
    assert dict(created.labels) == {"team": "blue"}
    assert client.get(name, workspace=workspace) == created
    deleted = client.delete(name, workspace=workspace)
    assert deleted.sandbox_id == created.id
    assert deleted.outcome in (DeletionOutcome.ACCEPTED, DeletionOutcome.COMPLETED)
    client.wait_deleted(name, workspace=workspace, timeout_seconds=20)
    assert client.delete(name, workspace=workspace, allow_missing=True).outcome == DeletionOutcome.ALREADY_ABSENT


def test_a_sandbox_without_a_name_gets_one_of_two_words(client, workspace):
    words = client.create(workspace=workspace).name.split("-")
    assert len(words) == 2 and all(word.isalpha() and word.islower() for word in words), words


def test_a_new_sandbox_of_an_old_name_is_another_one(client, workspace, new_name):
    name = new_name("box")
    first = client.create(workspace=workspace, name=name)
    client.delete(name, workspace=workspace)
    client.wait_deleted(name, workspace=workspace, timeout_seconds=20)
    assert client.create(workspace=workspace, name=name).id != first.id


def test_a_list_goes_over_all_pages_in_order_and_shows_each_once(client, workspace):
    names = [f"box-{number}" for number in range(7)]
    for name in names:
        client.create(workspace=workspace, name=name)
    listed = client.list_all(workspace=workspace, page_size=3)
    assert [sandbox.name for sandbox in listed] == names
    pages = client.list(workspace=workspace, page_size=3)
    assert [len(page.items) for page in pages] == [3, 3, 1]


def test_a_list_may_end_with_a_full_page(client, workspace):
    for number in range(4):
        client.create(workspace=workspace, name=f"box-{number}")
    assert len(client.list_all(workspace=workspace, page_size=2)) == 4


def test_sandboxes_are_selected_by_label(client, workspace):
    wanted = client.create(workspace=workspace, name="wanted", labels={"team": "blue", "tier": "one"})
    client.create(workspace=workspace, name="other", labels={"team": "blue"})
    assert client.list_ids(workspace=workspace, label_selector="team=blue,tier=one") == [wanted.id]
    assert len(client.list_ids(workspace=workspace, label_selector="team=blue")) == 2


def test_sandboxes_of_all_workspaces_are_listed_for_an_administrator(client, workspace, new_name):
    team = new_name("team")
    here = client.create(workspace=workspace, name=new_name("box"), labels={"team": team})
    there = client.create(workspace="default", name=new_name("box"), labels={"team": team})
    found = client.list_ids_for_all_workspaces(label_selector=f"team={team}")
    assert sorted(found) == sorted([here.id, there.id])


def test_a_sandbox_is_seen_only_in_its_workspace(client, workspace, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    with pytest.raises(GatewayError) as refused:
        client.get(name, workspace="default")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_sandbox_is_stopped_and_started(client, workspace, supervise, new_name):
    name = new_name("box")
    created = client.create(workspace=workspace, name=name)
    supervise(name)
    client.wait_ready(name, workspace=workspace, timeout_seconds=30)
    client.stop(name, workspace=workspace)
    assert client.wait_stopped(name, workspace=workspace, timeout_seconds=20).id == created.id
    started = client.start(name, workspace=workspace)
    assert started.phase in (openshell_pb2.SANDBOX_PHASE_STARTING, openshell_pb2.SANDBOX_PHASE_PROVISIONING)


def test_a_sandbox_is_ready_once_its_supervisor_has_what_it_needs(client, workspace, supervise, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    supervise(name)
    ready = client.wait_ready(name, workspace=workspace, timeout_seconds=30)
    assert ready.phase == openshell_pb2.SANDBOX_PHASE_READY
    client.delete(name, workspace=workspace)
    client.wait_deleted(name, workspace=workspace, timeout_seconds=30)


def test_a_watch_shows_a_sandbox_from_its_start_to_its_end(client, stub, scope, workspace, supervise, new_name):
    name = new_name("box")
    client.create(workspace=workspace, name=name)
    request = openshell_pb2.WatchSandboxRequest(workspace_scope=scope, sandbox=name, follow_status=True)
    watch = stub.WatchSandbox(request, timeout=60)
    phases, versions = [], []
    for event in watch:
        if not event.HasField("sandbox"):
            continue
        sandbox = event.sandbox
        versions.append(sandbox.metadata.resource_version)
        if not phases or phases[-1] != sandbox.status.phase:
            phases.append(sandbox.status.phase)
            if len(phases) == 1:
                supervise(name)
            if sandbox.status.phase == openshell_pb2.SANDBOX_PHASE_READY:
                client.delete(name, workspace=workspace)
    assert phases[:2] == [openshell_pb2.SANDBOX_PHASE_PROVISIONING, openshell_pb2.SANDBOX_PHASE_READY]
    assert versions == sorted(set(versions))
