"""The demo's steps that go through the real SDK. Each prints one JSON object; `roadstead demo` calls them."""

import argparse
import json
import sys
import uuid

from openshell import SandboxClient, WorkspaceClient
from openshell._proto import datamodel_pb2, openshell_pb2, openshell_pb2_grpc


def create(client: SandboxClient, args: argparse.Namespace) -> dict:
    """A workspace and a sandbox by the SDK; a provider by its stubs, since the SDK has no call for that."""
    workspace = WorkspaceClient.from_sandbox_client(client).create(args.workspace)
    stub = openshell_pb2_grpc.OpenShellStub(client._channel)
    provider = stub.CreateProvider(
        openshell_pb2.CreateProviderRequest(
            workspace_scope=datamodel_pb2.WorkspaceSelector(workspace=args.workspace),
            provider=datamodel_pb2.Provider(
                metadata=datamodel_pb2.ObjectMeta(name=args.provider),
                type="generic",
                credentials={args.credential_key: args.credential_value},
            ),
            request_id=str(uuid.uuid4()),
        )
    ).provider
    if list(provider.credentials.values()) != ["REDACTED"]:
        raise SystemExit("the response shows a credential")
    spec = openshell_pb2.SandboxSpec(providers=[args.provider])
    sandbox = client.create(workspace=args.workspace, name=args.sandbox, spec=spec)
    return {"workspace": workspace.name, "sandbox_id": sandbox.id, "phase": sandbox.phase}


def wait_ready(client: SandboxClient, args: argparse.Namespace) -> dict:
    sandbox = client.wait_ready(args.sandbox, workspace=args.workspace, timeout_seconds=args.timeout)
    return {"phase": sandbox.phase, "policy_version": sandbox.current_policy_version}


def delete(client: SandboxClient, args: argparse.Namespace) -> dict:
    outcome = client.delete(args.sandbox, workspace=args.workspace)
    client.wait_deleted(args.sandbox, workspace=args.workspace, timeout_seconds=args.timeout)
    return {"outcome": outcome.outcome.name}


STEPS = {"create": create, "wait-ready": wait_ready, "delete": delete}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--endpoint", required=True, help="host:port of an edge")
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--sandbox", required=True)
    parser.add_argument("--provider", default="")
    parser.add_argument("--credential-key", default="")
    parser.add_argument("--credential-value", default="")
    parser.add_argument("--timeout", type=float, default=60.0)
    args = parser.parse_args()
    with SandboxClient(args.endpoint) as client:
        json.dump(STEPS[args.step](client, args), sys.stdout)


if __name__ == "__main__":
    main()
