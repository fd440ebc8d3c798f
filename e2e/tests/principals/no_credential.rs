//! E1: whoever shows no credential, or not exactly one good one, is nobody. There is no standing to fall back to.

use roadstead_proto::method::{AuthMode, Method};
use tonic::Code;

use crate::requests::request;
use crate::world::{At, User, World};
use roadstead_e2e::raw::{bearer, judge_all};

/// What is shown in the header `authorization`, by what it is called.
fn shown(world: &World) -> Vec<(&'static str, Vec<String>)> {
    let (user, sandbox) = (User::PlatformAdmin.token(), world.sandbox.token.clone());
    let one = |text: String| vec![text];
    let both = |first: &str, second: &str| vec![format!("Bearer {first}"), format!("Bearer {second}")];
    vec![
        ("no header", Vec::new()),
        ("an empty header", one(String::new())),
        ("a scheme alone", one("Bearer".to_owned())),
        ("an empty bearer", one("Bearer ".to_owned())),
        ("blanks for a bearer", one("Bearer   ".to_owned())),
        ("garbage", bearer("garbage")),
        ("garbage with dots", bearer("a.b.c")),
        ("another scheme", one(format!("Basic {user}"))),
        ("a token without a scheme", one(user.clone())),
        ("two users", both(&user, &User::Admin.token())),
        ("a user twice", both(&user, &user)),
        ("a user and a sandbox", both(&user, &sandbox)),
        ("a sandbox and a user", both(&sandbox, &user)),
        ("a sandbox twice", both(&sandbox, &sandbox)),
        ("a user and an empty header", vec![format!("Bearer {user}"), String::new()]),
        ("two tokens in one header", one(format!("Bearer {user}, Bearer {sandbox}"))),
        ("a user's token in capitals", bearer(&user.to_uppercase())),
        ("a part of a user's token", bearer(&user[..user.len() - 1])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_exactly_one_good_credential_nothing_but_health_is_open() {
    let world = World::start().await;
    let before = (world.state().await, world.commands().await);
    let cases = shown(&world).into_iter().flat_map(|shown| {
        [At::Edge, At::Bridge].into_iter().flat_map(move |at| {
            let shown = shown.clone();
            Method::ALL.iter().map(move |&method| (at, shown.clone(), method))
        })
    });
    let faults = judge_all(cases, |(at, (what, authorization), method)| {
        let (world, request) = (&world, request(method, &world.sandbox.target));
        async move {
            let answer = world.door(at).call(method, &authorization, request).await;
            let good = if method.rule().auth == AuthMode::Unauthenticated {
                answer.code == Code::Ok
            } else {
                answer.code == Code::Unauthenticated && answer.message == "a valid credential is required"
            };
            (!good).then(|| format!("{method} at {at:?} with {what}: {:?}: {}", answer.code, answer.message))
        }
    })
    .await;
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!((world.state().await, world.commands().await), before, "something came of it");
}
