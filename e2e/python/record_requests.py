"""Prints what the installed public client puts on the wire, one call a line: the method, a tab, the message in hex.

    python record_requests.py > ../tests/outages/skew/requests.tsv

The client talks to a server of this script's, which writes down each request as it came and answers with a message that
holds nothing. Request ids are counted, so that the same client says the same again.
"""

import itertools
import uuid
from concurrent import futures

import grpc
from openshell import SandboxClient, ServiceExposure, WorkspaceClient
from openshell._proto import datamodel_pb2, openshell_pb2, openshell_pb2_grpc, sandbox_pb2

WORKSPACE = "golden"
RECORDED = []


class Recorder(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda request, _: self.record(call.method, request))

    def record(self, path, request):
        RECORDED.append((path.rpartition("/")[2], request))
        return b""


def policy():
    policy = sandbox_pb2.SandboxPolicy(version=1)
    endpoint = sandbox_pb2.NetworkEndpoint(
        host="api.example.com", port=443, protocol="rest", access=sandbox_pb2.NETWORK_ACCESS_PRESET_READ_ONLY
    )
    binary = sandbox_pb2.NetworkBinary(path="/usr/bin/curl")
    rule = sandbox_pb2.NetworkPolicyRule(name="web", endpoints=[endpoint], binaries=[binary])
    policy.network_policies["web"].CopyFrom(rule)
    return policy


def calls(client):
    workspaces, templates = WorkspaceClient.from_sandbox_client(client), client.sandbox_templates()
    scope = datamodel_pb2.WorkspaceSelector(workspace=WORKSPACE)
    # The calls that the client has no method for, in its own messages.
    stub = openshell_pb2_grpc.OpenShellStub(client._channel)
    spec = openshell_pb2.SandboxSpec(policy=policy(), log_level="debug")
    spec.environment["MODE"] = "golden"
    yield lambda: client.health()
    yield lambda: workspaces.create(WORKSPACE, labels={"team": "golden"})
    yield lambda: workspaces.create(WORKSPACE)
    yield lambda: workspaces.get(WORKSPACE)
    yield lambda: workspaces.get("none")
    yield lambda: workspaces.list_all()
    yield lambda: client.create(workspace=WORKSPACE, spec=spec, name="box", labels={"tier": "one"})
    yield lambda: client.create(workspace=WORKSPACE, spec=spec, name="box")
    exposures = [ServiceExposure(service="web", target_port=8080)]
    yield lambda: client.create(workspace=WORKSPACE, name="served", service_exposures=exposures)
    yield lambda: client.create(workspace=WORKSPACE, name="Not A Name")
    yield lambda: client.get("box", workspace=WORKSPACE)
    yield lambda: client.get("none", workspace=WORKSPACE)
    yield lambda: client.list_all(workspace=WORKSPACE, label_selector="tier=one")
    yield lambda: client.list_all(workspace=WORKSPACE, label_selector="((")
    yield lambda: client.list_all_for_all_workspaces(page_size=7)
    yield lambda: client.create_from_template(workspace=WORKSPACE, workload_template="none", name="other")
    yield lambda: templates.create(workspace=WORKSPACE, name="mold", image="example/image", environment={"A": "b"})
    yield lambda: templates.get("mold", workspace=WORKSPACE)
    yield lambda: templates.list_all(workspace=WORKSPACE)
    yield lambda: client.create_from_template(workspace=WORKSPACE, workload_template="mold", name="molded")
    yield lambda: templates.delete("mold", workspace=WORKSPACE)
    provider = datamodel_pb2.Provider(type="generic", metadata=datamodel_pb2.ObjectMeta(name="keys"))
    provider.credentials["TOKEN"] = "golden"
    yield lambda: stub.CreateProvider(
        openshell_pb2.CreateProviderRequest(workspace_scope=scope, provider=provider, request_id=str(uuid.uuid4()))
    )
    yield lambda: stub.AttachSandboxProvider(
        openshell_pb2.AttachSandboxProviderRequest(
            workspace_scope=scope, sandbox="box", provider="keys", request_id=str(uuid.uuid4())
        )
    )
    yield lambda: stub.GetProvider(openshell_pb2.GetProviderRequest(workspace_scope=scope, name="keys"))
    removed = openshell_pb2.PolicyMergeOperation(remove_rule=openshell_pb2.RemoveNetworkRule(rule_name="web"))
    yield lambda: stub.UpdateConfig(
        openshell_pb2.UpdateConfigRequest(
            workspace_scope=scope, sandbox="box", merge_operations=[removed], request_id=str(uuid.uuid4())
        )
    )
    yield lambda: stub.GetSandboxConfig(sandbox_pb2.GetSandboxConfigRequest(workspace_scope=scope, name="box"))
    yield lambda: stub.GetSandboxLogs(openshell_pb2.GetSandboxLogsRequest(workspace_scope=scope, sandbox="box"))
    yield lambda: stub.AddWorkspaceMember(
        openshell_pb2.AddWorkspaceMemberRequest(
            workspace_scope=scope, principal_subject="ben", role=openshell_pb2.WORKSPACE_ROLE_USER
        )
    )
    yield lambda: stub.ListWorkspaceMembers(openshell_pb2.ListWorkspaceMembersRequest(workspace_scope=scope))
    yield lambda: client.exec("box", ["true"], workspace=WORKSPACE)
    yield lambda: client.stop("none", workspace=WORKSPACE)
    yield lambda: client.start("box", workspace=WORKSPACE)
    yield lambda: client.delete("served", workspace=WORKSPACE)
    yield lambda: client.delete("none", workspace=WORKSPACE, allow_missing=True)
    yield lambda: client.delete("none", workspace=WORKSPACE)
    yield lambda: workspaces.delete(WORKSPACE)


def main():
    numbers = itertools.count(1)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers), version=4)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([Recorder()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with SandboxClient(f"127.0.0.1:{port}") as client:
        for call in calls(client):
            try:
                call()
            except Exception:  # The empty answer does not satisfy the client; what it asked is written down.
                pass
    server.stop(None)
    for method, request in RECORDED:
        print(f"{method}\t{request.hex()}")


main()
