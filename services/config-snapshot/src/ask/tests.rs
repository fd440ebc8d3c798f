use std::time::Duration;

use roadstead_proto::api::datamodel::AllWorkspaces;
use roadstead_proto::internal::{Principal, SandboxIdentity as Claimed};
use roadstead_proto::sealing::{SecretKey, seal_token};
use roadstead_service_kit::sandbox_token::TokenSigner;
use roadstead_service_kit::status::Code;
use secrecy::ExposeSecret as _;

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const DEPLOYMENT: Uuid = Uuid::from_u128(1);
const SANDBOX: Uuid = Uuid::from_u128(2);

fn user(platform_admin: bool) -> Kind {
    Kind::User(User { subject: "ann".into(), platform_admin, ..User::default() })
}

fn request(kind: Kind, asked: &impl Message) -> ReadRequest {
    ReadRequest {
        principal: Some(Principal { kind: Some(kind) }),
        request: asked.encode_to_vec().into(),
        ..ReadRequest::default()
    }
}

fn scope(selection: Selection) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(selection) })
}

fn config(name: &str, workspace_scope: Option<WorkspaceSelector>) -> GetSandboxConfigRequest {
    GetSandboxConfigRequest { name: name.into(), workspace_scope }
}

fn named_scope(name: &str) -> Option<WorkspaceSelector> {
    scope(Selection::Workspace(name.into()))
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.unwrap_err().status().code()
}

#[test]
fn a_user_names_one_workspace() {
    let asked = OfUser::read(request(user(false), &config("box", named_scope("w")))).unwrap();
    assert_eq!(
        (asked.workspace.as_str(), asked.sandbox.as_str(), asked.named().subject.as_deref()),
        ("w", "box", Some("ann"))
    );
    for bad in [None, named_scope(""), scope(Selection::AllWorkspaces(AllWorkspaces {})), Some(Default::default())] {
        assert_eq!(code(OfUser::read(request(user(true), &config("box", bad)))), Code::InvalidArgument);
    }
}

#[test]
fn a_stranger_learns_nothing_and_an_admin_what_is_missing() {
    let stranger = OfUser::read(request(user(false), &config("box", named_scope("w")))).unwrap();
    for exists in [true, false] {
        assert_eq!(code(stranger.judge(None, exists)), Code::PermissionDenied);
    }
    assert!(stranger.judge(Some(WorkspaceRole::User), true).is_ok());
    let admin = OfUser::read(request(user(true), &config("", named_scope("w")))).unwrap();
    assert_eq!(admin.named().subject, None);
    assert_eq!(code(admin.judge(None, false)), Code::NotFound);
    assert_eq!(code(admin.judge(None, true)), Code::InvalidArgument);
}

struct Deployment {
    signer: TokenSigner,
    tokens: Tokens,
}

fn snapshot_keys() -> CipherKeys {
    CipherKeys::new(("s1".to_owned(), SecretKey::from_bytes([8; 32])), [])
}

fn deployment() -> Deployment {
    let key = SecretKey::from_bytes([7; 32]);
    let public = ed25519_dalek::SigningKey::from_bytes(key.expose()).verifying_key().to_bytes();
    Deployment {
        signer: TokenSigner::new(DEPLOYMENT, "k1".into(), &key),
        tokens: Tokens {
            passed: snapshot_keys(),
            verifier: TokenVerifier::new(DEPLOYMENT, [("k1".to_owned(), public)]).unwrap(),
        },
    }
}

impl Deployment {
    fn sandbox(&self, claimed: Uuid, generation: u64) -> Kind {
        let minted = self.signer.mint(SANDBOX, generation, NOW, Duration::from_secs(900));
        let token = seal_token(&self.tokens.passed, minted.token.expose_secret());
        Kind::Sandbox(Claimed { sandbox_id: claimed.to_string(), generation, token })
    }

    fn read<Asked: Question>(&self, kind: Kind, asked: &Asked) -> Result<OfSandbox<Asked>, Refusal> {
        OfSandbox::read(request(kind, asked), &self.tokens, NOW)
    }
}

fn bootstrap(sandbox_id: Uuid) -> BootstrapRequest {
    BootstrapRequest { sandbox_id: sandbox_id.to_string() }
}

#[test]
fn a_sandbox_asks_about_itself_only() {
    let deployment = deployment();
    let asked = deployment.read(deployment.sandbox(SANDBOX, 3), &bootstrap(SANDBOX)).unwrap();
    assert_eq!(asked.identity.sandbox_id, SANDBOX);
    assert!(asked.judge(3).is_ok());
    assert_eq!(code(asked.judge(4)), Code::Unauthenticated);

    let other = Uuid::from_u128(9);
    assert_eq!(code(deployment.read(deployment.sandbox(SANDBOX, 3), &bootstrap(other))), Code::PermissionDenied);
    assert_eq!(code(deployment.read(deployment.sandbox(other, 3), &bootstrap(SANDBOX))), Code::PermissionDenied);
    let environment = GetSandboxProviderEnvironmentRequest { sandbox_id: other.to_string(), ..Default::default() };
    assert_eq!(code(deployment.read(deployment.sandbox(SANDBOX, 3), &environment)), Code::PermissionDenied);
}

#[test]
fn a_sandbox_names_itself_and_may_leave_out_its_workspace() {
    let deployment = deployment();
    let judged = |asked| {
        let asked = deployment.read(deployment.sandbox(SANDBOX, 3), &asked).unwrap();
        asked.judge_name("w", "box")
    };
    assert!(judged(config("box", None)).is_ok());
    assert!(judged(config("box", named_scope("w"))).is_ok());
    assert_eq!(code(judged(config("box", named_scope("v")))), Code::PermissionDenied);
    assert_eq!(code(judged(config("other", None))), Code::PermissionDenied);
    assert_eq!(code(judged(config("", None))), Code::PermissionDenied);
    assert_eq!(code(judged(config("box", scope(Selection::AllWorkspaces(AllWorkspaces {}))))), Code::InvalidArgument);
}

#[test]
fn each_door_has_its_own_kind_of_caller() {
    let deployment = deployment();
    assert_eq!(code(deployment.read(user(true), &bootstrap(SANDBOX))), Code::PermissionDenied);
    let asked = request(deployment.sandbox(SANDBOX, 1), &config("box", named_scope("w")));
    assert_eq!(code(OfUser::read(asked)), Code::PermissionDenied);
}

#[test]
fn a_broken_token_is_not_told_from_an_old_one() {
    let deployment = deployment();
    let Kind::Sandbox(mut claimed) = deployment.sandbox(SANDBOX, 1) else { panic!("a sandbox") };
    let token = open_token(&deployment.tokens.passed, &claimed.token).unwrap();
    let as_it_came = Kind::Sandbox(Claimed { token: token.to_string(), ..claimed.clone() });
    assert_eq!(code(deployment.read(as_it_came, &bootstrap(SANDBOX))), Code::Unauthenticated);
    claimed.token = seal_token(&deployment.tokens.passed, &format!("{}x", *token));
    assert_eq!(code(deployment.read(Kind::Sandbox(claimed), &bootstrap(SANDBOX))), Code::Unauthenticated);
    let late = NOW + Duration::from_secs(961);
    let asked = request(deployment.sandbox(SANDBOX, 1), &bootstrap(SANDBOX));
    assert_eq!(code(OfSandbox::<BootstrapRequest>::read(asked, &deployment.tokens, late)), Code::Unauthenticated);
}
