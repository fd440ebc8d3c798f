"""Changes to a policy, operation by operation."""

import uuid

import grpc
import pytest
from openshell import GatewayError
from openshell._proto import openshell_pb2, sandbox_pb2

READ_ONLY = sandbox_pb2.NETWORK_ACCESS_PRESET_READ_ONLY
CURL = sandbox_pb2.NetworkBinary(path="/usr/bin/curl")


def endpoint(host, **more):
    return sandbox_pb2.NetworkEndpoint(host=host, port=443, protocol="rest", **more)


def rule(*endpoints, binaries=(CURL,)):
    return sandbox_pb2.NetworkPolicyRule(name="web", endpoints=endpoints, binaries=binaries)


def operation(**operation):
    return openshell_pb2.PolicyMergeOperation(**operation)


def add_rule(name, added):
    return operation(add_rule=openshell_pb2.AddNetworkRule(rule_name=name, rule=added))


def remove_rule(name):
    return operation(remove_rule=openshell_pb2.RemoveNetworkRule(rule_name=name))


def target(**more):
    fields = {"rule_name": "web", "host": "api.example.com", "ports": [443], "binaries": [CURL], **more}
    return openshell_pb2.L7RuleTarget(**fields)


def allow(method, path, **more):
    allowed = sandbox_pb2.L7Rule(allow=sandbox_pb2.L7Allow(method=method, path=path))
    return operation(add_allow_rules=openshell_pb2.AddAllowRules(target=target(**more), rules=[allowed]))


def deny(method, path, **more):
    denied = sandbox_pb2.L7DenyRule(method=method, path=path)
    return operation(add_deny_rules=openshell_pb2.AddDenyRules(target=target(**more), deny_rules=[denied]))


@pytest.fixture
def box(client, workspace, scope, stub, new_name):
    """A sandbox with a policy of one rule."""
    name = new_name("box")
    policy = sandbox_pb2.SandboxPolicy(version=1)
    policy.network_policies["web"].CopyFrom(rule(endpoint("api.example.com", access=READ_ONLY)))
    spec = openshell_pb2.SandboxSpec(policy=policy)
    stub.CreateSandbox(openshell_pb2.CreateSandboxRequest(workspace_scope=scope, name=name, spec=spec))
    return name


@pytest.fixture
def merge(stub, scope, box):
    def merge(*operations, **more):
        return stub.UpdateConfig.with_call(
            openshell_pb2.UpdateConfigRequest(
                workspace_scope=scope, sandbox=box, merge_operations=operations, **more
            )
        )

    return merge


@pytest.fixture
def revision(stub, scope, box):
    def revision(version=0):
        request = openshell_pb2.GetSandboxPolicyStatusRequest(workspace_scope=scope, sandbox=box, version=version)
        return stub.GetSandboxPolicyStatus(request).revision

    return revision


def refused(call, *operations, **more) -> GatewayError:
    with pytest.raises(grpc.RpcError) as refusal:
        call(*operations, **more)
    return GatewayError(refusal.value)


def test_operations_are_applied_in_order_to_the_newest_revision(merge, revision):
    told, _ = merge(
        add_rule("git", rule(endpoint("git.example.com"), endpoint("old.example.com"))),
        operation(remove_endpoint=openshell_pb2.RemoveNetworkEndpoint(host="old.example.com", port=443)),
        allow("POST", "/issues"),
        deny("GET", "/secret"),
    )
    newest = revision()
    assert told.version == newest.version == 2
    assert told.policy_hash == newest.policy_hash
    assert newest.status == openshell_pb2.POLICY_STATUS_PENDING
    web, git = newest.policy.network_policies["web"], newest.policy.network_policies["git"]
    assert [endpoint.host for endpoint in git.endpoints] == ["git.example.com"]
    allowed = [(rule.allow.method, rule.allow.path) for rule in web.endpoints[0].rules]
    assert allowed == [("GET", "**"), ("HEAD", "**"), ("OPTIONS", "**"), ("POST", "/issues")]
    assert [(rule.method, rule.path) for rule in web.endpoints[0].deny_rules] == [("GET", "/secret")]

    told, _ = merge(operation(remove_binary=openshell_pb2.RemoveNetworkBinary(rule_name="git", binary_path=CURL.path)))
    assert told.version == 3
    assert list(revision().policy.network_policies) == ["web"]


def test_what_is_there_already_is_the_same_version(merge, revision):
    before = revision()
    told, _ = merge(add_rule("web", rule(endpoint("api.example.com", access=READ_ONLY))))
    assert (told.version, told.policy_hash) == (1, before.policy_hash)
    told, _ = merge(add_rule("web", rule(endpoint("api.example.com", access=READ_ONLY))), annotations={"by": "ann"})
    assert (told.version, told.policy_hash, dict(told.annotations)) == (2, before.policy_hash, {"by": "ann"})
    assert dict(revision().provenance) == {"by": "ann"}


@pytest.mark.parametrize(
    ("operations", "field"),
    [
        ([operation()], "merge_operations[0]"),
        ([remove_rule("web"), add_rule("", rule(endpoint("a.example.com")))], "merge_operations[1].add_rule.rule_name"),
        ([add_rule("_provider_x", rule(endpoint("a.example.com")))], "merge_operations[0].add_rule.rule_name"),
        ([add_rule("x", rule())], "merge_operations[0].add_rule.rule.endpoints"),
        ([add_rule("x", rule(endpoint("169.254.169.254")))], "merge_operations[0].add_rule.rule.endpoints[0].host"),
        ([remove_rule("_provider_x")], "merge_operations[0].remove_rule.rule_name"),
        (
            [operation(remove_endpoint=openshell_pb2.RemoveNetworkEndpoint(host="a.example.com"))],
            "merge_operations[0].remove_endpoint.port",
        ),
        ([deny("GET", "/", ports=[])], "merge_operations[0].add_deny_rules.target.ports"),
        ([allow("GET", "/", any_binary=True)], "merge_operations[0].add_allow_rules.target.binaries"),
    ],
)
def test_an_operation_that_is_not_well_formed_is_refused_with_its_field(merge, revision, operations, field):
    error = refused(merge, *operations)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.field_violations] == [field]
    assert revision().version == 1


@pytest.mark.parametrize(
    "impossible",
    [
        remove_rule("none"),
        operation(remove_endpoint=openshell_pb2.RemoveNetworkEndpoint(host="none.example.com", port=443)),
        operation(remove_binary=openshell_pb2.RemoveNetworkBinary(rule_name="web", binary_path="/none")),
        allow("GET", "/", host="none.example.com"),
        allow("GET", "/", ports=[443, 8443]),
        deny("GET", "/", binaries=[], any_binary=True),
        add_rule("web", rule(endpoint("other.example.com"), binaries=())),
        add_rule("web", rule(endpoint("other.example.com"), binaries=[sandbox_pb2.NetworkBinary(path="/bin/x")])),
    ],
)
def test_an_operation_that_the_policy_does_not_allow_undoes_the_ones_before_it(merge, revision, impossible):
    error = refused(merge, add_rule("git", rule(endpoint("git.example.com"))), impossible)
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "merge_operations[1]" in error.details()
    assert revision().version == 1


def test_a_merge_expects_a_version_and_is_replayed_by_its_id(merge, stub, scope, box, revision):
    found = stub.GetSandbox(openshell_pb2.GetSandboxRequest(workspace_scope=scope, name=box))
    current = found.sandbox.metadata.resource_version
    more = {"expected_resource_version": current, "request_id": str(uuid.uuid4())}
    first, _ = merge(add_rule("git", rule(endpoint("git.example.com"))), **more)
    merge(remove_rule("git"))
    second, call = merge(add_rule("git", rule(endpoint("git.example.com"))), **more)
    assert second == first
    assert ("openshell-replayed", "true") in [(entry.key, entry.value) for entry in call.initial_metadata()]
    assert revision().version == 3
    stale = refused(merge, remove_rule("web"), expected_resource_version=current)
    assert stale.code() == grpc.StatusCode.ABORTED
    assert stale.error_info.reason == "RESOURCE_VERSION_CONFLICT"


def test_a_policy_must_stand_before_it_is_changed(client, stub, scope, workspace, new_name):
    name = client.create(workspace=workspace, name=new_name("box")).name
    request = openshell_pb2.UpdateConfigRequest(workspace_scope=scope, sandbox=name, merge_operations=[remove_rule("x")])
    assert refused(stub.UpdateConfig, request).code() == grpc.StatusCode.FAILED_PRECONDITION


def test_a_history_keeps_its_newest_hundred(merge, stub, scope, box, revision):
    for _ in range(51):
        merge(add_rule("git", rule(endpoint("git.example.com"))))
        merge(remove_rule("git"))
    request = openshell_pb2.ListSandboxPoliciesRequest(workspace_scope=scope, sandbox=box, page_size=1000)
    versions = [revision.version for revision in stub.ListSandboxPolicies(request).revisions]
    # The first one is the one that counts as loaded.
    assert versions == [*range(103, 3, -1), 1]
    assert revision().version == 103
    assert refused(revision, 2).code() == grpc.StatusCode.NOT_FOUND
    assert revision(1).version == 1


def test_operators_merge_from_a_file(deployment, workspace, box, revision, tmp_path):
    if deployment is None:
        pytest.skip("needs a deployment of its own")
    file = tmp_path / "operations.json"
    file.write_text('[{"removeBinary": {"ruleName": "web", "binaryPath": "/usr/bin/curl"}}]')
    told = deployment.run("policy", "--workspace", workspace, "merge", box, str(file))
    assert told.startswith("version 2 ")
    assert not revision().policy.network_policies
