use std::convert::Infallible;

use tokio::sync::oneshot;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

async fn until_stopped(stop: CancellationToken) -> Result<(), Infallible> {
    stop.cancelled().await;
    Ok(())
}

fn requested() -> Shutdown {
    let shutdown = Shutdown::new();
    shutdown.request();
    shutdown
}

#[tokio::test]
async fn ends_well_when_all_end_after_being_asked() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Serving, "listener", until_stopped);
    tasks.essential(Phase::Background, "relay", until_stopped);
    assert_eq!(tasks.run(&requested(), LONG).await, Ok(()));
}

#[tokio::test]
async fn background_tasks_go_on_until_serving_tasks_have_finished() {
    let tasks = Tasks::new();
    let (finish, finished) = oneshot::channel::<()>();
    let background = tasks.stop_token(Phase::Background).clone();
    tasks.essential(Phase::Serving, "call", |stop| async move {
        stop.cancelled().await;
        finished.await
    });
    tasks.essential(Phase::Background, "relay", until_stopped);
    let serving = tasks.stop_token(Phase::Serving).clone();
    let running = tokio::spawn(async move { tasks.run(&requested(), LONG).await });
    serving.cancelled().await;
    assert!(!background.is_cancelled());
    finish.send(()).unwrap();
    assert_eq!(running.await.unwrap(), Ok(()));
    assert!(background.is_cancelled());
}

#[tokio::test]
async fn an_essential_task_that_ends_early_stops_the_role_with_its_name() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Serving, "listener", until_stopped);
    tasks.essential(Phase::Background, "relay", |_| async { Ok::<_, Infallible>(()) });
    let stopped = tasks.run(&Shutdown::new(), LONG).await.unwrap_err();
    assert_eq!(stopped, Stopped::Essential { task: "relay", ending: Ending::Early });
    assert_eq!(stopped.to_string(), "task relay ended though nobody had asked it to");
}

#[tokio::test]
async fn an_essential_task_that_fails_says_why() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Background, "relay", |_| async { Err("the broker is gone") });
    let stopped = tasks.run(&Shutdown::new(), LONG).await.unwrap_err();
    assert_eq!(stopped.to_string(), "task relay failed: the broker is gone");
}

#[tokio::test]
async fn a_panic_stops_the_role_like_a_failure() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Background, "relay", |_| async {
        if true {
            panic!("on purpose");
        }
        Ok::<_, Infallible>(())
    });
    let stopped = tasks.run(&Shutdown::new(), LONG).await.unwrap_err();
    assert_eq!(stopped, Stopped::Essential { task: "relay", ending: Ending::Panicked });
}

#[tokio::test]
async fn optional_tasks_end_as_they_like() {
    let tasks = Tasks::new();
    let (ended, end) = oneshot::channel::<()>();
    tasks.optional(Phase::Serving, "stream", |_| async { Err("the client left") });
    tasks.optional(Phase::Background, "sweep", |_| async move {
        drop(ended);
        Ok::<_, Infallible>(())
    });
    assert!(end.await.is_err());
    let shutdown = Shutdown::new();
    let running = tokio::spawn({
        let (tasks, shutdown) = (tasks.clone(), shutdown.clone());
        async move { tasks.run(&shutdown, LONG).await }
    });
    shutdown.request();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn the_deadline_cuts_what_does_not_end_and_names_it() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Serving, "stuck", |_| std::future::pending::<Result<(), Infallible>>());
    tasks.essential(Phase::Background, "relay", until_stopped);
    let stopped = tasks.run(&requested(), Duration::ZERO).await.unwrap_err();
    assert_eq!(stopped, Stopped::Cut(vec!["stuck", "relay"]));
}

#[tokio::test]
async fn a_second_signal_cuts_at_once() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Serving, "stuck", |_| std::future::pending::<Result<(), Infallible>>());
    let shutdown = Shutdown::new();
    shutdown.cut_now();
    assert_eq!(tasks.run(&shutdown, LONG).await, Err(Stopped::Cut(vec!["stuck"])));
}

#[tokio::test]
async fn a_task_that_fails_while_draining_is_still_an_error() {
    let tasks = Tasks::new();
    tasks.essential(Phase::Serving, "listener", |stop| async move {
        stop.cancelled().await;
        Err("the last call was lost")
    });
    let stopped = tasks.run(&requested(), LONG).await.unwrap_err();
    assert_eq!(stopped.to_string(), "task listener failed: the last call was lost");
}
