use roadstead_e2e::api::{request_id, scope};
use roadstead_proto::api::v1::{DeleteSandboxRequest, GetSandboxLogsRequest, WatchSandboxRequest};
use roadstead_testkit::eventually;
use tonic::Code;

use crate::world::{SOON, World, next_line};

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_resumes_exactly_after_its_line_at_every_edge_and_no_other_does() {
    let world = World::start().await;
    let (id, other_id) = (world.sandbox("s").await, world.sandbox("other").await);
    world.log(1, "s", &id, 0..300).await;
    world.log(2, "other", &other_id, 0..1).await;

    // The tail is 200 lines unless said otherwise.
    let mut stream = world.watch(1, world.follow("s")).await.unwrap();
    let mut cursors = Vec::new();
    for expected in 100..300 {
        let (number, cursor) = next_line(&mut stream).await;
        assert_eq!(number, expected);
        cursors.push(cursor);
    }
    assert!(cursors.is_sorted(), "their texts are in the order of the lines");
    world.log(2, "s", &id, 300..302).await;
    assert_eq!((next_line(&mut stream).await.0, next_line(&mut stream).await.0), (300, 301));

    for edge in [1, 2] {
        let request = WatchSandboxRequest { resume_after_cursor: cursors[150].clone(), ..world.follow("s") };
        let mut resumed = world.watch(edge, request).await.unwrap();
        for expected in 251..302 {
            assert_eq!(next_line(&mut resumed).await.0, expected, "edge {edge}");
        }
    }

    for broken in ["garbage", &cursors[0][1..], &cursors[0].to_uppercase(), &format!("{}0", cursors[0])] {
        assert_eq!(world.refused(2, "s", broken).await, Code::InvalidArgument, "{broken}");
    }
    assert_eq!(world.refused(1, "other", &cursors[0]).await, Code::InvalidArgument, "it is another sandbox's");

    // Its line is pushed out by newer ones.
    world.log(1, "s", &id, 302..2400).await;
    assert_eq!(world.refused(2, "s", &cursors[0]).await, Code::OutOfRange);
    let request = GetSandboxLogsRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: "s".to_owned(),
        lines: 3,
        ..Default::default()
    };
    let newest = world.edge(2).get_sandbox_logs(request).await.unwrap().into_inner();
    let messages = newest.logs.iter().map(|log| log.message.as_str()).collect::<Vec<_>>();
    assert_eq!((messages, newest.buffer_total), (vec!["2397", "2398", "2399"], 2000));
    assert!(newest.logs.iter().all(|log| log.source == "sandbox" && log.sandbox_id == id));
    let said = world.stack.run(&["sandbox", "--workspace", &world.workspace, "logs", "s", "-n", "1"]).await;
    assert!(said.trim_end().ends_with("INFO  sandbox test: 2399"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_an_earlier_sandbox_of_the_same_name_are_never_shown() {
    let world = World::start().await;
    let first = world.sandbox("s").await;
    world.log(1, "s", &first, 0..5).await;
    let mut stream = world.watch(2, world.follow("s")).await.unwrap();
    let cursor = next_line(&mut stream).await.1;
    let delete = DeleteSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: "s".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.edge(1).delete_sandbox(delete).await.unwrap();
    let second = eventually(SOON, "the name is free", async || {
        let request = GetSandboxLogsRequest {
            workspace_scope: scope(&world.workspace),
            sandbox: "s".to_owned(),
            ..Default::default()
        };
        match world.edge(1).get_sandbox_logs(request).await {
            Err(status) if status.code() == Code::NotFound => Some(world.sandbox("s").await),
            _ => None,
        }
    })
    .await;
    assert_ne!(first, second);
    world.log(2, "s", &second, 70..71).await;

    // The old stream ends with its sandbox, whatever was still to come of its lines.
    while let Some(event) = tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap() {
        assert!(!format!("{event:?}").contains(&second), "{event:?}");
    }
    assert_eq!(world.refused(1, "s", &cursor).await, Code::InvalidArgument);
    let mut stream = world.watch(1, world.follow("s")).await.unwrap();
    assert_eq!(next_line(&mut stream).await.0, 70);
}
