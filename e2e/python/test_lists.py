"""Lists of every kind: page by page, by label and over all workspaces, with each page from another edge."""

import grpc
import pytest
from openshell import GatewayError, WorkspaceClient
from openshell._proto import datamodel_pb2, openshell_pb2, sandbox_pb2

EVERYWHERE = datamodel_pb2.WorkspaceSelector(all_workspaces=datamodel_pb2.AllWorkspaces())
COUNT = 5


def in_turns(lists, **asked):
    """All items of a list of the SDK, two a page, each page from the next of the clients."""
    items, token, turn = [], "", 0
    while True:
        page = next(lists[turn % len(lists)](page_size=2, page_token=token, **asked))
        assert len(page.items) <= 2
        items += page.items
        token, turn = page.next_page_token, turn + 1
        if not token:
            return items


def raw_in_turns(methods, request, field):
    """The same of a list that the SDK has no method for."""
    items, turn = [], 0
    request.page_size = 2
    while True:
        page = methods[turn % len(methods)](request)
        items += getattr(page, field)
        request.page_token, turn = page.next_page_token, turn + 1
        if not request.page_token:
            return items


def test_sandboxes(client, other_client, workspace, new_name):
    team = new_name("team")
    names = [f"box-{number}" for number in range(COUNT)]
    for number, name in enumerate(names):
        labels = {"team": team, "half": "even" if number % 2 == 0 else "odd"}
        [client, other_client][number % 2].create(workspace=workspace, name=name, labels=labels)
    elsewhere = client.create(workspace="default", name=new_name("box"), labels={"team": team, "half": "even"})

    lists = [client.list, other_client.list]
    assert [box.name for box in in_turns(lists, workspace=workspace)] == names
    assert [box.name for box in in_turns(lists, workspace=workspace, label_selector="half=even")] == names[::2]
    assert in_turns(lists, workspace=workspace, label_selector="half=even,team=nobody") == []
    everywhere = [client.list_for_all_workspaces, other_client.list_for_all_workspaces]
    assert [box.name for box in in_turns(everywhere, label_selector=f"team={team}")] == [*names, elsewhere.name]
    assert [box.name for box in in_turns(everywhere, label_selector=f"half=even,team={team}")] == [
        *names[::2],
        elsewhere.name,
    ]


def test_templates(client, other_client, workspace, new_name):
    one, other = client.sandbox_templates(), other_client.sandbox_templates()
    names = [f"t-{number}" for number in range(COUNT)]
    team = new_name("team")
    for number, name in enumerate(names):
        [one, other][number % 2].create(workspace=workspace, name=name, labels={"team": team, "number": str(number)})

    def shown(templates):
        return [template.metadata.name for template in templates]

    assert shown(in_turns([one.list, other.list], workspace=workspace)) == names
    assert shown(in_turns([one.list, other.list], workspace=workspace, label_selector="number=3")) == ["t-3"]
    everywhere = [one.list_for_all_workspaces, other.list_for_all_workspaces]
    assert shown(in_turns(everywhere, label_selector=f"team={team}")) == names


def test_workspaces(client, other_client, new_name):
    one, other = (WorkspaceClient.from_sandbox_client(each) for each in (client, other_client))
    team = new_name("team")
    names = [new_name(f"w{number}") for number in range(COUNT)]
    for number, name in enumerate(names):
        [one, other][number % 2].create(name, labels={"team": team})
    lists = [one.list, other.list]
    assert [each.name for each in in_turns(lists, label_selector=f"team={team}")] == names
    every = [each.name for each in in_turns(lists)]
    assert len(set(every)) == len(every) and {"default", *names} <= set(every)


def test_what_the_sdk_lists_not(client, stub, other_stub, workspace, scope, new_name):
    names = [f"p-{number}" for number in range(COUNT)]
    team = new_name("team")
    for name in reversed(names):
        provider = datamodel_pb2.Provider(
            metadata=datamodel_pb2.ObjectMeta(name=name, labels={"team": team}),
            type="generic",
            credentials={name.upper().replace("-", "_"): "hidden"},
        )
        stub.CreateProvider(openshell_pb2.CreateProviderRequest(workspace_scope=scope, provider=provider))
        member = openshell_pb2.AddWorkspaceMemberRequest(
            workspace_scope=scope, principal_subject=name, role=openshell_pb2.WORKSPACE_ROLE_USER
        )
        stub.AddWorkspaceMember(member)
    client.create(workspace=workspace, name="box")
    for name in reversed(names):
        stub.AttachSandboxProvider(
            openshell_pb2.AttachSandboxProviderRequest(workspace_scope=scope, sandbox="box", provider=name)
        )
        stub.ExposeService(
            openshell_pb2.ExposeServiceRequest(workspace_scope=scope, sandbox="box", name=name, target_port=80)
        )

    def both(method):
        return [getattr(each, method) for each in (other_stub, stub)]

    def shown(method, request, field="providers"):
        return [each.metadata.name for each in raw_in_turns(both(method), request, field)]

    created = list(reversed(names))
    assert shown("ListProviders", openshell_pb2.ListProvidersRequest(workspace_scope=scope)) == created
    asked = openshell_pb2.ListProvidersRequest(workspace_scope=EVERYWHERE, label_selector=f"team={team}")
    assert shown("ListProviders", asked) == created
    attached = openshell_pb2.ListSandboxProvidersRequest(workspace_scope=scope, sandbox="box")
    assert shown("ListSandboxProviders", attached) == names
    asked = openshell_pb2.ListWorkspaceMembersRequest(workspace_scope=scope)
    assert shown("ListWorkspaceMembers", asked, "members") == created
    services = openshell_pb2.ListServicesRequest(workspace_scope=scope, sandbox="box")
    listed = raw_in_turns(both("ListServices"), services, "services")
    assert [each.endpoint.name for each in listed] == created


def test_the_history_of_a_policy(client, stub, other_stub, workspace, scope):
    client.create(workspace=workspace, name="box")
    for number in range(COUNT):
        endpoint = sandbox_pb2.NetworkEndpoint(host=f"h{number}.example.com", port=443)
        rule = sandbox_pb2.NetworkPolicyRule(name="web", endpoints=[endpoint])
        policy = sandbox_pb2.SandboxPolicy(version=1, network_policies={"web": rule})
        update = openshell_pb2.UpdateConfigRequest(workspace_scope=scope, sandbox="box", policy=policy)
        [stub, other_stub][number % 2].UpdateConfig(update)
    history = openshell_pb2.ListSandboxPoliciesRequest(workspace_scope=scope, sandbox="box")
    listed = raw_in_turns([other_stub.ListSandboxPolicies, stub.ListSandboxPolicies], history, "revisions")
    assert [revision.version for revision in listed] == [5, 4, 3, 2, 1]
    assert not any(revision.HasField("policy") for revision in listed)
    for version in (0, 2):
        asked = openshell_pb2.GetSandboxPolicyStatusRequest(workspace_scope=scope, sandbox="box", version=version)
        told = [each.GetSandboxPolicyStatus(asked) for each in (stub, other_stub)]
        assert told[0] == told[1]
        assert told[0].revision.version == (version or 5)
        assert told[0].revision.policy_hash == listed[5 - (version or 5)].policy_hash


def test_only_what_has_a_form_for_all_workspaces_is_listed_over_all(stub, other_stub):
    for edge in (stub, other_stub):
        for method, request in [
            (edge.ListWorkspaceMembers, openshell_pb2.ListWorkspaceMembersRequest(workspace_scope=EVERYWHERE)),
            (
                edge.ListSandboxProviders,
                openshell_pb2.ListSandboxProvidersRequest(workspace_scope=EVERYWHERE, sandbox="box"),
            ),
            (edge.ListServices, openshell_pb2.ListServicesRequest(workspace_scope=EVERYWHERE, sandbox="box")),
        ]:
            with pytest.raises(grpc.RpcError) as refused:
                method(request)
            assert GatewayError(refused.value).code() == grpc.StatusCode.INVALID_ARGUMENT


def test_what_is_written_at_one_edge_is_watched_at_the_other(
    client, stub, other_client, other_stub, workspace, scope
):
    created = client.create(workspace=workspace, name="box")
    request = openshell_pb2.WatchSandboxRequest(workspace_scope=scope, sandbox="box", follow_status=True)
    watch = other_stub.WatchSandbox(request, timeout=60)
    first = next(watch).sandbox
    assert first.metadata.id == created.id

    rule = sandbox_pb2.NetworkPolicyRule(
        name="web", endpoints=[sandbox_pb2.NetworkEndpoint(host="example.com", port=443)]
    )
    policy = sandbox_pb2.SandboxPolicy(version=1, network_policies={"web": rule})
    update = openshell_pb2.UpdateConfigRequest(
        workspace_scope=scope, sandbox="box", policy=policy, annotations={"note": "changed"}
    )
    stub.UpdateConfig(update)
    shown = next(event.sandbox for event in watch if dict(event.sandbox.metadata.annotations) == {"note": "changed"})
    assert shown.metadata.resource_version > first.metadata.resource_version

    client.delete("box", workspace=workspace)
    # It ends by itself.
    rest = [event.sandbox for event in watch if event.WhichOneof("payload") == "sandbox"]
    assert all(sandbox.metadata.id == created.id for sandbox in rest)
    with pytest.raises(GatewayError) as refused:
        other_client.get("box", workspace=workspace)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
