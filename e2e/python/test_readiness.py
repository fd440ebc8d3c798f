"""Waiting, through the SDK's stub, until a sandbox's supervisor has what was changed of its providers."""

import time
import uuid

import grpc
import pytest
from openshell._proto import datamodel_pb2, openshell_pb2, sandbox_pb2

WAIT_SECONDS = 30


def wait_for(stub, scope, sandbox, state, **asked):
    """What an SDK user does: ask again until the receipt is in that state."""
    request = openshell_pb2.GetSandboxProviderStatusRequest(workspace_scope=scope, sandbox=sandbox, **asked)
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        status = stub.GetSandboxProviderStatus(request).status
        if status.state == state:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.1)


def set_policy(stub, scope, sandbox, bound):
    """One endpoint; bound, the provider's credential may be used there."""
    endpoint = sandbox_pb2.NetworkEndpoint(host="git.example.com", port=443, protocol="rest")
    endpoint.access = sandbox_pb2.NETWORK_ACCESS_PRESET_READ_ONLY
    if bound:
        endpoint.credential_binding.provider = "git"
    policy = sandbox_pb2.SandboxPolicy(version=1)
    policy.network_policies["git"].CopyFrom(sandbox_pb2.NetworkPolicyRule(name="git", endpoints=[endpoint]))
    stub.UpdateConfig(openshell_pb2.UpdateConfigRequest(workspace_scope=scope, sandbox=sandbox, policy=policy))


def test_a_client_waits_until_a_provider_is_ready_and_until_it_is_revoked(client, stub, scope, workspace, supervise):
    credentials = {"TOKEN": uuid.uuid4().hex}
    metadata = datamodel_pb2.ObjectMeta(name="git")
    provider = datamodel_pb2.Provider(metadata=metadata, type="generic", credentials=credentials)
    stub.CreateProvider(openshell_pb2.CreateProviderRequest(workspace_scope=scope, provider=provider))
    sandbox = client.create(workspace=workspace, name="box").name
    change = {"workspace_scope": scope, "sandbox": sandbox, "provider": "git"}
    attached = stub.AttachSandboxProvider(openshell_pb2.AttachSandboxProviderRequest(**change)).receipt
    assert attached.kind == openshell_pb2.PROVIDER_MUTATION_KIND_ATTACH
    set_policy(stub, scope, sandbox, bound=True)
    wait_for(stub, scope, sandbox, openshell_pb2.PROVIDER_READINESS_STATE_PERSISTED, receipt_id=attached.receipt_id)

    supervise(sandbox)
    ready = wait_for(stub, scope, sandbox, openshell_pb2.PROVIDER_READINESS_STATE_READY, receipt_id=attached.receipt_id)
    assert ready.operation.state == openshell_pb2.CONFIG_UPDATE_OPERATION_STATE_APPLIED
    assert ready.observed.credentials_installed and ready.observed.policy_active
    looked = wait_for(stub, scope, sandbox, openshell_pb2.PROVIDER_READINESS_STATE_READY, provider="git")
    assert looked.receipt.kind == openshell_pb2.PROVIDER_MUTATION_KIND_OBSERVE

    set_policy(stub, scope, sandbox, bound=False)
    detached = stub.DetachSandboxProvider(openshell_pb2.DetachSandboxProviderRequest(**change)).receipt
    wait_for(stub, scope, sandbox, openshell_pb2.PROVIDER_READINESS_STATE_REVOKED, receipt_id=detached.receipt_id)
    for asked in ({"receipt_id": attached.receipt_id}, {"receipt_id": looked.receipt.receipt_id}):
        wait_for(stub, scope, sandbox, openshell_pb2.PROVIDER_READINESS_STATE_SUPERSEDED, **asked)


def test_a_receipt_that_there_is_not_is_not_found(client, stub, scope, workspace):
    sandbox = client.create(workspace=workspace, name="box").name
    for receipt_id in (str(uuid.uuid4()), "observe.1.2.3.4.5", "x"):
        request = openshell_pb2.GetSandboxProviderStatusRequest(
            workspace_scope=scope, sandbox=sandbox, receipt_id=receipt_id
        )
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetSandboxProviderStatus(request)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
